"""The table of `toTable`: found in Spark's catalog, or made there as Spark's own writer makes it,
once the query can start."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seamark.model.errors import ConfigurationError
from seamark.model.schema import quoted
from seamark.spark.plans import CATALYST, items, scala_class

_FORMATS = ("parquet", "json", "csv", "delta")
_OF_READERS = (
    "serialization.format", "inferschema", "mergeschema", "mode", "samplingratio",
    "columnnameofcorruptrecord", "enforceschema", "prefersdate",
)  # fmt: skip
"""Options of a table that say nothing of how its rows are written, in lower case."""
_OF_CSV = ("header", "sep", "delimiter", "nullvalue", "escape")
"""Options that a reader of CSV needs too: a table that is made has them."""
_READS_CSV = {"multiline": "true"}
"""What makes Spark read line ends in a text: every table of CSV has it, by this name."""
_TRACKED = "spark.sql.hive.manageFilesourcePartitions"


@dataclass(frozen=True)
class Table:
    """A table to write to, by `name`. `creation` is the SQL that makes it, "" if it is there."""

    name: str
    format: str
    path: str
    partition_by: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict)
    creation: str = ""

    def make(self, spark: SparkSession) -> None:
        """Make the table if it is missing."""
        if not self.creation:
            return
        session = spark._jsparkSession.cloneSession()
        session.conf().set(_TRACKED, "false")  # else its readers see partitions listed there alone
        session.conf().set("spark.sql.variable.substitute", "false")  # in a column's name
        with _in_one_line(self.name):
            session.sql(self.creation)


def find_table(
    frame: DataFrame,
    name: object,
    format_: str | None,
    by: Sequence[str],
    options: Mapping[str, str],
) -> Table:
    """Return the table for the rows of `frame`, partitioned by the columns `by`, or as it is if
    there are none. Raises ConfigurationError for one that cannot be written to."""
    with _in_one_line(name):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"tableName is {name!r}; give a name")
        spark, session = frame.sparkSession, frame.sparkSession._jsparkSession
        catalog = session.sessionState().catalog()
        parsed = session.sessionState().sqlParser().parseMultipartIdentifier(name)
        parts = [str(part) for part in items(parsed)]
        catalogs = session.sessionState().catalogManager()
        named = len(parts) > 2 or (len(parts) > 1 and catalogs.isCatalogRegistered(parts[0]))
        where = parts[0] if named else spark.catalog.currentCatalog()
        if len(parts) > 3 or where != "spark_catalog":
            raise ValueError(
                f"it is in the catalog {where!r}, and Seamark writes to tables of spark_catalog; "
                "give the sink, as sm.write_stream(df, sm.IcebergSink(…)), or foreach_batch"
            )
        parts = [spark.catalog.currentDatabase(), *parts][-2:]
        database = scala_class(session, "scala.Option").apply(parts[0])
        key = scala_class(session, f"{CATALYST}.TableIdentifier")(parts[1], database)
        path_of = scala_class(session, "org.apache.hadoop.fs.Path")
        view = catalog.isTempView(parsed)
        table = None if view or not catalog.tableExists(key) else catalog.getTableMetadata(key)
        if view or (table is not None and table.tableType().name() == "VIEW"):
            raise ValueError("it is a view; give a table")
        default = format_ or spark.conf.get("spark.sql.sources.default")
        own = list(items(table.provider())) or ["hive"] if table is not None else [default]
        provider = str(own[0]).lower()
        if provider not in _FORMATS or (table is not None and table.bucketSpec().isDefined()):
            what = f"of {provider!r}" if provider not in _FORMATS else "in buckets"
            raise ValueError(f"the table is {what}; there are tables of {', '.join(_FORMATS)}")
        if table is None:
            given = {key.lower(): value for key, value in options.items()}
            path = given.get("path") or _text_of(path_of(catalog.defaultTablePath(key)))
            creation = _creation(frame, quoted(*parts), provider, by, given)
            return Table(name, provider, path, by, creation=creation)
        columns = [str(column) for column in items(table.partitionColumnNames())]
        pairs = ((str(p._1()), str(p._2())) for p in items(table.storage().properties()))
        stored = {key: value for key, value in pairs if key.lower() not in _OF_READERS}
        if provider == "delta":
            stored = {}
            columns = spark.sql(f"DESCRIBE DETAIL {quoted(*parts)}").first().partitionColumns
        elif columns and table.tracksPartitionsInCatalog():
            raise ValueError(
                f"the table has partitions in the catalog's own list ({_TRACKED}), which new ones "
                "would not be in; give format(…) and the path, or write through foreach_batch"
            )
        if provider == "csv":
            stored = {key.lower(): value for key, value in stored.items()}
            if {key: stored.pop(key, "").lower() for key in _READS_CSV} != _READS_CSV:
                raise ValueError(
                    "Spark would read a line end in a text wrongly there; give ALTER TABLE "
                    f"{name} SET SERDEPROPERTIES ({_options(_READS_CSV)})"
                )
            theirs = [str(column) for column in table.dataSchema().fieldNames()]
            partitions = {column.lower() for column in columns}
            ours = [column for column in frame.columns if column.lower() not in partitions]
            if [column.lower() for column in ours] != [column.lower() for column in theirs]:
                raise ValueError(
                    f"Spark reads CSV by place: the table has the columns {', '.join(theirs)}, and "
                    f"the DataFrame {', '.join(ours)}; select them in the table's order"
                )
        if provider == "json":
            _require_exact_names(table.dataSchema(), frame._jdf.schema())
        if format_ is not None and format_.lower() != provider:
            raise ValueError(f"format is {format_!r}, and the table is of {provider!r}")
        if by and [c.lower() for c in by] != [c.lower() for c in columns]:
            raise ValueError(
                f"partitionBy is {list(by)!r}, and the table is partitioned by {list(columns)!r}"
            )
        return Table(name, provider, _text_of(path_of(table.location())), columns, stored)


def _require_exact_names(theirs: Any, ours: Any) -> None:
    """Raise ValueError for a name in another case, of a column or within it, as Java's schemas have
    them: Spark's reader of JSON would find null there."""
    stored = {str(kept.name()).lower(): kept for kept in theirs.fields()}
    for made in ours.fields():
        if (kept := stored.get(str(made.name()).lower())) is None:
            continue
        there, here = _shown(kept), _shown(made)
        if kept.name() != made.name() or (here != there and here.lower() == there.lower()):
            raise ValueError(
                f"Spark reads JSON by names in their case: the table has {there}, and the "
                f"DataFrame {here}; give the names as the table has them"
            )


def _shown(column: Any) -> str:
    return f"{quoted(str(column.name()))} {column.dataType().catalogString()}"


def _creation(
    frame: DataFrame, name: str, provider: str, by: Sequence[str], options: Mapping[str, str]
) -> str:
    columns = frame._jdf.schema().asNullable().toDDL()
    statement = f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING {provider}"
    if provider == "csv":
        own = {key: options[key] for key in _OF_CSV if key in options}
        statement += f" OPTIONS ({_options(own | _READS_CSV)})"
    if by:
        statement += f" PARTITIONED BY ({', '.join(map(quoted, by))})"
    return statement + (f" LOCATION {_literal(options['path'])}" if "path" in options else "")


@contextlib.contextmanager
def _in_one_line(name: object) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError, ValueError) as error:
        said = str(getattr(error, "java_exception", None) or error).strip().splitlines()[0]
        raise ConfigurationError(f"write_stream: toTable({name!r}): {said}") from None


def _options(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {_literal(value)}" for key, value in pairs.items())


def _text_of(path: Any) -> str:
    """Return Hadoop's path as `FileSink` takes it: a local one alone, its ``%41`` is no escape."""
    uri = path.toUri()
    return str(uri.getPath() if uri.getScheme() == "file" else path.toString())


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
