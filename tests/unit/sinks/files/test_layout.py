"""A changed program into a directory of files: what a start and `explain --preflight` refuse, and
what they bear.

How: committers' preflights on a real directory, one for each program. Spark's readers are the judge
in `tests/spark/sinks/test_file_layout.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark.contracts.sink import SinkContext
from seamark.files import open_directory
from seamark.model.errors import PreflightError
from seamark.model.schema import Column
from seamark.sinks.files import FileSink, layout
from seamark.sinks.files.layout import Layout

DRIVER = SinkContext("job", "job", "out", 1, 5.0)


def schema(text: str) -> tuple[Column, ...]:
    """Return columns written as ``id bigint; name string``."""
    return tuple(Column(*column.split(" ", 1)) for column in text.split("; "))


def start(sink: FileSink, columns: str, driver: SinkContext = DRIVER) -> None:
    sink.create_committer(replace(driver, schema=schema(columns))).preflight()


def refusal(sink: FileSink, columns: str, driver: SinkContext = DRIVER) -> str:
    """Return what a start says, which `explain --preflight` says too; neither leaves a record."""
    before = records(Path(sink.path))
    context = replace(driver, schema=schema(columns))
    (found,) = sink.inspect(context)
    with pytest.raises(PreflightError) as error:
        sink.create_committer(context).preflight()
    assert error.value.finding is not None
    assert (found.code.name, found.found) == ("SV005", error.value.finding.found)
    assert "\n" not in str(error.value) and sink.path in str(error.value)
    assert records(Path(sink.path)) == before
    return str(error.value)


def records(directory: Path) -> list[Path]:
    return sorted(directory.glob("_seamark/layout/*"))


ROWS = "id bigint; day date; country string"


def made(directory: Path, by: tuple[str, ...], form: Any = "parquet", **options: Any) -> FileSink:
    return FileSink(directory, form, partition_by=by, **options)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ((), ("day",), "plain parquet files, and this program gives parquet files partitioned by"),
        (("day",), (), "parquet files partitioned by 'day', and this program gives plain"),
        (("day",), ("country",), "by 'day', and this program gives .* by 'country'"),
        (("day",), ("day", "country"), "by 'day', and this program gives .* by 'day', 'country'"),
        (("day", "country"), ("country", "day"), "by 'day', 'country', and .* 'country', 'day'"),
    ],
)
def test_other_partition_columns(tmp_path: Path, before: Any, after: Any, says: str) -> None:
    start(made(tmp_path, before), ROWS)
    said = refusal(made(tmp_path, after), ROWS)
    (record,) = records(tmp_path)
    for part in (says, "give (plain )?parquet files", "another directory", str(record)):
        assert layout.re.search(part, said), said
    start(made(tmp_path, before), ROWS)
    record.unlink()  # nothing was written yet
    start(made(tmp_path, after), ROWS)


def test_another_format(tmp_path: Path) -> None:
    start(made(tmp_path, ()), ROWS)
    assert "it has plain parquet files, and this program gives plain json files" in refusal(
        made(tmp_path, (), "json"), ROWS
    )


def test_another_job_into_the_directory(tmp_path: Path) -> None:
    start(made(tmp_path, ()), ROWS)
    other = replace(DRIVER, job_id="other", sink_uid="else")
    assert "partitioned by 'day'" in refusal(made(tmp_path, ("day",)), ROWS, other)
    start(made(tmp_path, ()), ROWS, other)
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("part-0.snappy.parquet", "it has plain parquet files"),
        ("country=DE/a.json.gz", "it has json files partitioned by 'country'"),
        ("day=1/part-0.json", "it has json files partitioned by 'day'"),
        ("_day=1/part-0.json", "it has json files partitioned by '_day'"),
    ],
)
def test_files_without_a_record(tmp_path: Path, file: str, says: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert says in refusal(made(tmp_path, (), "json"), ROWS)
    # Whoever reads a mixed directory already is not kept from it.
    (tmp_path / "mine.json").touch()
    start(made(tmp_path, (), "json"), ROWS)


@pytest.mark.parametrize(
    "file", ["_SUCCESS.parquet", "_tmp/a.parquet", ".a.parquet", "sub/a.parquet", "README.md"]
)
def test_files_that_are_none_of_the_directorys(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    start(made(tmp_path, ("day",), "json"), ROWS)


BORNE = {
    "parquet": [
        ("id bigint", "id bigint; more string"),
        ("id bigint; name string", "more int; name string"),
        ("id bigint; name string", "name string; id bigint"),
        ("id bigint; name string", "id bigint; NAME string"),
        ("d decimal(5,2)", "d decimal(9,2)"),
        ("s struct<a:int>", "s struct<b:int>"),
        ("s array<struct<a:int>>", "s array<struct<a:int,b:array<int>>>"),
        ("m map<string,struct<a:int>>", "m map<string,struct<a:int,b:int>>"),
        ("s string", "s varchar(5)"),
        ("s struct<>>:int>", "s struct<>>:int>"),
    ],
    "json": [
        ("id bigint; name string", "more int; name string"),
        ("id bigint", "id int"),
        ("f float", "f double"),
        ("f int", "f double"),
        ("d decimal(5,2)", "d decimal(9,4)"),
        ("s array<int>", "s array<bigint>"),
        ("s struct<a:int>", "s struct<a:bigint,b:int>"),
    ],
    "csv": [
        ("id bigint; name string", "id int; NAME string; more date"),
        ("id bigint; name string", "id bigint"),
        ("d decimal(5,2); s array<int>; f double", "d string; s string; f string"),
    ],
}
REFUSED = {
    "parquet": [
        ("id int", "id bigint", "'id' is int in its files, and bigint in this program"),
        ("f float", "f double", "'f' is float in its files"),
        ("id bigint", "id string", "'id' is bigint"),
        ("at timestamp", "at timestamp_ntz", "'at' is timestamp in"),
        ("d decimal(5,2)", "d decimal(9,4)", "'d' is decimal"),
        ("s struct<a:int>", "s struct<a:string>", "column 'a' is int in its files, and string"),
        ("s struct<a:int>", "s struct<A:int>", "'A' in this program is 'a' in its files"),
        ("s array<int>", "s map<int,int>", "'s' is array<int>"),
        ("s struct<>>:int>", "s struct<>>:string>", "'s' is struct"),
    ],
    "json": [
        ("id bigint", "id double", "'id' is bigint"),
        ("id int", "id string", "'id' is int"),
        ("id string", "id binary", "'id' is string"),
        ("id int", "ID int", "'ID' in this program is 'id' in its files"),
        ("d decimal(38,0)", "d decimal(38,10)", "'d' is decimal"),
        ("s struct<a:int>", "s int", "'s' is struct"),
    ],
    "csv": [
        ("id int; no int", "no int; id int", "column 1 of its files is 'id', and 'no' in this"),
        ("id int; no int", "no int", "select id, no in this order, new columns behind them"),
        ("id int; no int", "id int; more int; no int", "column 2 of its files is 'no'"),
        ("id int; no int", "id int; no string", "'no' is int in its files, and string"),
        ("d date; f double", "d string; f double", "'d' is date"),
    ],
}


@pytest.mark.parametrize(
    ("form", "before", "after"), [(form, *pair) for form in BORNE for pair in BORNE[form]]
)
def test_columns_that_are_read_together(tmp_path: Path, form: str, before: str, after: str) -> None:
    for columns in (before, after, before):
        start(made(tmp_path, (), form), columns)
    assert len(records(tmp_path)) == (
        1 if before == after else len({before, after} - {"s varchar(5)"})
    )


@pytest.mark.parametrize(
    ("form", "before", "after", "says"),
    [(form, *three) for form in REFUSED for three in REFUSED[form]],
)
def test_columns_that_are_not(
    tmp_path: Path, form: str, before: str, after: str, says: str
) -> None:
    start(made(tmp_path, (), form), before)
    assert says in refusal(made(tmp_path, (), form), after)


def test_a_column_that_an_earlier_program_had_keeps_its_type(tmp_path: Path) -> None:
    for columns in ("id bigint; more int", "id bigint"):
        start(made(tmp_path, ()), columns)
    said = refusal(made(tmp_path, ()), "id bigint; more string")
    assert "column 'more' is int in its files, and string in this program" in said


@pytest.mark.parametrize(
    "options", [{"header": False}, {"delimiter": ";"}, {"null_value": "NULL"}, {"escape": "\\"}]
)
def test_other_settings_of_csv(tmp_path: Path, options: dict[str, Any]) -> None:
    start(made(tmp_path, (), "csv"), ROWS)
    ((name, value),) = options.items()
    assert f"{name}={value!r}" in refusal(made(tmp_path, (), "csv", **options), ROWS)
    start(made(tmp_path, (), "csv", compression="gzip"), ROWS)


def test_rows_whose_columns_the_program_has_made_text_are_not_compared(tmp_path: Path) -> None:
    """As a query of ``format("seamark")`` with the option ``selected`` gives them."""
    selected = "_seamark_json string; day string"
    for columns in (ROWS, selected):
        start(made(tmp_path, ("day",), "json"), columns)
    assert "partitioned by 'day'" in refusal(made(tmp_path, (), "json"), selected)


def test_of_two_drivers_that_start_at_once_one_at_least_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = layout._write

    def after_the_other(directory: Any, mine: Layout) -> str:
        write(directory, Layout("parquet", ("day",), ("id", "country"), ("bigint", "string")))
        return write(directory, mine)

    monkeypatch.setattr(layout, "_write", after_the_other)
    with pytest.raises(PreflightError, match="partitioned by 'day'"):
        start(made(tmp_path, ()), ROWS)
    (left,) = records(tmp_path)
    assert b'"day"' in left.read_bytes()
    monkeypatch.undo()
    start(made(tmp_path, ("day",)), ROWS)


def test_a_record_of_a_later_version_or_damaged_is_refused(tmp_path: Path) -> None:
    start(made(tmp_path, ()), ROWS)
    (record,) = records(tmp_path)
    record.write_bytes(record.read_bytes()[:-3])
    said = refusal(made(tmp_path, ()), ROWS)
    assert "damaged" in said and str(record.parent) in said


def test_a_record_has_the_specified_bytes(tmp_path: Path) -> None:
    start(made(tmp_path, ("day",), "csv", null_value="NULL"), ROWS)
    (record,) = records(tmp_path)
    version, _, rest = record.read_bytes().partition(b" ")
    assert version == b"1"
    assert rest[9:] == (
        b'{"columns":["id","country"],'
        b'"csv":["header=True","delimiter=\',\'","null_value=\'NULL\'","escape=\'\\"\'"],'
        b'"format":"csv","partition_by":["day"],"types":["bigint","string"]}'
    )
    assert open_directory(str(tmp_path), DRIVER.hadoop).list(layout.PLACE) == [record.name]
