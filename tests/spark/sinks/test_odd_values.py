"""The conformance suite's odd values have the texts that Spark's CAST gives, and Spark reads the
sinks' text forms back: the suite itself needs no Spark. Nested, they are written beside Spark's own
writers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

import seamark as sm
from seamark import WriteAheadSink
from seamark.contracts.sink import SinkContext
from seamark.contracts.text_forms import as_text
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema, quoted
from seamark.sinks.delta import DeltaSink
from seamark.sinks.files import FileSink
from seamark.sinks.internal.columns import cast_to_text, to_json
from seamark.sinks.kafka.record_columns import RecordColumns
from seamark.spark.session import require_format
from seamark.verify.conformance import ODD_NAMES, ODD_VALUES, steps
from seamark.verify.conformance.steps import JOB, UID, attempt, until_proved

FORMS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Those of the sinks' JSON: by itself Spark cuts microseconds."""


@pytest.fixture(autouse=True)
def in_utc(spark: SparkSession) -> Iterator[None]:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", zone)


def test_the_texts_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for name, (kind, values) in ODD_VALUES.items():
            if name in ("string", "binary", "timestamp_ntz"):
                continue
            column = pa.array(values.values(), kind)
            frame = spark.createDataFrame(pa.table({"v": column}))
            assert frame.schema["v"].dataType.simpleString() == name
            text = to_json("v") if pa.types.is_nested(kind) else "CAST(v AS STRING)"
            found = [row[0] for row in frame.selectExpr(text).collect()]
            assert found == list(values), name
            if name.startswith("decimal"):
                spark.conf.set("spark.sql.ansi.enabled", "false")
                plain = frame.selectExpr(cast_to_text(Column("v", name))).collect()
                spark.conf.set("spark.sql.ansi.enabled", ansi)
                assert [row[0] for row in plain] == as_text(column).to_pylist() == found
            if pa.types.is_temporal(kind):
                read_back_by_spark(spark, tmp_path / name, name, column, list(values))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.parser.escapedStringLiterals",
        "spark.sql.ansi.doubleQuotedIdentifiers",
        "spark.sql.legacy.consecutiveStringLiterals.enabled",
    ],
)
def test_times_in_json_do_not_depend_on_how_spark_reads_a_literal(
    spark: SparkSession, setting: str
) -> None:
    frame = spark.sql("SELECT timestamp'2026-01-02 03:04:05.000006Z' AS t").withColumn(
        "n", F.to_timestamp_ntz("t")
    )
    spark.conf.set(setting, "true")
    try:
        (found,) = frame.selectExpr(to_json("struct(*)")).first() or ()
    finally:
        spark.conf.unset(setting)
    times = {"t": "2026-01-02T03:04:05.000006Z", "n": "2026-01-02T03:04:05.000006"}
    assert json.loads(found) == times


def read_back_by_spark(
    spark: SparkSession, path: Path, name: str, column: pa.Array, texts: list[str]
) -> None:
    """Write a CSV file; Spark's reader finds the same values."""
    sink, schema = FileSink(path, "csv"), (Column("n", "bigint"), Column("v", name))
    rows = pa.record_batch([pa.array(range(len(column))), column], names=["n", "v"])
    commit(sink, schema, [rows])
    read = spark.read.schema(f"n BIGINT, v {name}").csv(str(path), header=True)
    assert [r[0] for r in read.orderBy("n").selectExpr("CAST(v AS STRING)").collect()] == texts


@pytest.mark.parametrize("null", ["", "NULL", "\\N"])
def test_texts_in_csv_are_read_by_spark_as_its_own(
    spark: SparkSession, tmp_path: Path, null: str
) -> None:
    """As `write_stream` writes them: a query that had Spark's sink keeps its readers."""
    texts = [text for text in ODD_VALUES["string"][1].values() if len(text) < 999 and text != null]
    texts += ["a\\", '"', '\\"', '"\\', 'a,"b"\\', 'say ""x"", ok', "C:\\d,e\\", "N", '\\"N"', None]
    sink = FileSink(tmp_path, "csv", header=False, null_value=null, escape="\\")
    columns = {"n": range(len(texts)), "v": texts, "w": ["after"] * len(texts)}
    kinds = pa.schema([("n", pa.int64()), ("v", pa.string()), ("w", pa.string())])
    schema = (Column("n", "bigint"), Column("v", "string"), Column("w", "string"))
    commit(sink, schema, [pa.RecordBatch.from_pydict(columns, kinds)])
    read = spark.read.schema("n BIGINT, v STRING, w STRING").option("multiLine", True)
    found = read.csv(str(tmp_path), nullValue=null).orderBy("n").collect()
    assert [tuple(row) for row in found] == [(n, text, "after") for n, text in enumerate(texts)]


def commit(sink: Any, schema: Schema, batches: Sequence[pa.RecordBatch]) -> None:
    """Write and commit the rows, as an epoch with one task."""
    context = SinkContext(JOB, "orders", UID, 1, 5.0, schema, spool_uri=steps.spool_uri())
    committer = sink.create_committer(context)
    committer.preflight()
    writer = sink.create_writer(attempt())
    for batch in batches:
        writer.write(batch)
    until_proved(committer.commit, list(writer.prepare_commit()))
    committer.close()


class TestNested:
    """One row with each value of the pool, in each kind of nesting, beside Spark's own writers."""

    @pytest.fixture(scope="class")
    @classmethod
    def frame(cls, spark: SparkSession) -> DataFrame:
        columns = {}
        for number, (kind, values) in enumerate(ODD_VALUES.values()):
            given = [value for value in values.values() if len(str(value)) < 999]
            nested = pa.struct(
                {"a": kind, "b": pa.list_(kind), "c": pa.map_(pa.string(), kind)}.items()
            )
            rows = [{"a": v, "b": [v, None], "c": [("k", v)]} for v in given]
            rows += [
                None,
                dict.fromkeys("abc"),
                {"a": None, "b": [], "c": []},
                {"a": None, "b": [None], "c": [("", None)]},
            ]
            columns[f"v{number}"] = pa.array([rows], pa.list_(nested))
        bytes_ = "CAST(X'61ff62' AS STRING)"
        return spark.createDataFrame(pa.table(columns)).selectExpr(
            "*",
            "IF(rand() > 1, v0, NULL) w",
            f"{bytes_} x",
            f"array({bytes_}) y",
            "array('A' COLLATE UTF8_LCASE) z",
        )

    def test_files_are_those_of_sparks_own_writers(
        self, spark: SparkSession, frame: DataFrame, tmp_path: Path
    ) -> None:
        for form, options in (("parquet", {}), ("json", FORMS)):
            ours, sparks = str(tmp_path / form), str(tmp_path / f"{form} of spark")
            written(FileSink(ours, form), frame)  # type: ignore[arg-type]
            frame.write.format(form).options(**options).save(sparks)
            read = spark.read.schema(frame.schema).format(form).options(**options)
            assert canonical(read.load(ours)) == canonical(read.load(sparks)), form
            if form == "parquet":
                assert canonical(read.load(ours)) == canonical(frame)
                assert spark.read.parquet(ours).count() == 1
            else:
                assert spark.read.text(ours).collect() == spark.read.text(sparks).collect()

    def test_delta_has_them(self, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
        frame = frame.drop("z")
        written(DeltaSink(str(tmp_path), create_table=True), frame)
        files = DeltaTable(str(tmp_path)).file_uris()
        assert canonical(spark.read.parquet(*files)) == canonical(frame)

    def test_they_come_out_of_a_spool(self, frame: DataFrame) -> None:
        """Named as odd as can be."""
        found: list[Any] = []
        names = [n for n in ODD_NAMES if n == n.lower() and len(n) < 4 and "\0" not in n]
        odd = frame.toDF(*names[-len(frame.columns) :])

        def take(rows: DataFrame, token: Any) -> None:
            found.append((rows.columns, canonical(rows)))

        written(WriteAheadSink.foreach_batch(take), odd)
        assert found == [(odd.columns, canonical(odd))]

    def test_kafka_values_have_them(self, spark: SparkSession, frame: DataFrame) -> None:
        json_ = RecordColumns("a sink", "t", (), (), "json", None)
        (value,) = frame.selectExpr(*json_.select_expressions(schema_of(frame))).collect()
        (row,) = frame.selectExpr(to_json(f"struct({', '.join(frame.columns)})")).collect()
        assert value.value == row[0].encode()

        require_format(spark, "avro")
        frame = frame.drop("z")
        avro = RecordColumns("a sink", "t", (), (), "avro", None)
        values = frame.selectExpr(*avro.select_expressions(schema_of(frame)))
        text = avro.value_text(schema_of(frame))
        assert text is not None
        back = values.select(from_avro("value", text).alias("v")).select("v.*")
        assert canonical(back) == canonical(frame)


def schema_of(frame: DataFrame) -> Schema:
    return tuple(Column(f.name, f.dataType.simpleString()) for f in frame.schema.fields)


def written(sink: Any, frame: DataFrame) -> None:
    """Write the rows as a job would."""
    rows = frame.selectExpr(*sink.select_expressions(schema_of(frame)))
    names = rows.columns
    numbered = rows.toDF(*map(str, range(len(names)))).toArrow()
    commit(sink, schema_of(frame), numbered.rename_columns(names).to_batches())


def canonical(frame: DataFrame) -> list[Any]:
    """Return the bytes of each column's text, in UTC; the text tells apart what Python does not."""
    names = [quoted(name) for name in frame.columns]
    texts = frame.selectExpr(*(f"CAST(CAST({name} AS STRING) AS BINARY)" for name in names))
    return [tuple(row) for row in texts.collect()]


@pytest.mark.parametrize("within", ["{}", "array({})", "map('k', {})", "named_struct('s', {})"])
def test_a_struct_with_two_fields_of_one_name_is_refused(
    spark: SparkSession, tmp_path: Path, within: str
) -> None:
    rows = spark.readStream.format("rate").load()
    twins = rows.selectExpr(within.format("named_struct('a', 1, 'b', 2, 'a', 3)") + " AS v")
    job = sm.Job("twins", sm.CheckpointConfig(storage=str(tmp_path)))
    job.source(rows, "rate", replayable=True)
    with pytest.raises(ConfigurationError, match="column 'v' has a struct with two fields 'a'"):
        job.sink(twins, FileSink(str(tmp_path / "out"), format="json"), "out")
