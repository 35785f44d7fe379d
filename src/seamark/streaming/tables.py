"""``toTable``: a table of Spark's catalog as a format and a path."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from seamark.model.errors import ConfigurationError

_FORMATS = ("parquet", "json", "csv", "delta")


def table_options(frame: DataFrame, name: str, format_: str | None) -> tuple[str, str]:
    """Return format and path of a table; make it if it is missing, in the format given, parquet
    otherwise, with the columns of `frame`."""
    spark = frame.sparkSession
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"write_stream: toTable: tableName is {name!r}; give a name")
    try:
        if not spark.catalog.tableExists(name):
            spark.catalog.createTable(name, source=format_ or "parquet", schema=frame.schema)
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except AnalysisException as error:
        said = str(error).splitlines()[0]
        raise ConfigurationError(f"write_stream: toTable({name!r}): {said}") from None
    found = {row.col_name.lower(): row.data_type for row in rows if row.col_name}
    provider, path = found.get("provider", "").lower(), found.get("location", "")
    parted = "# partition information" in found or "partition provider" in found
    if provider not in _FORMATS or not path or (parted and provider != "delta"):
        raise ConfigurationError(
            f"write_stream: toTable({name!r}): the table is of {provider or 'no format'!r}"
            + (" and has partitions in the catalog" if parted else "")
            + f"; there are tables of {', '.join(_FORMATS)}, the files without partitions. Give "
            "format(…) and the path, or write through foreach_batch"
        )
    if format_ is not None and format_.lower() != provider:
        raise ConfigurationError(
            f"write_stream: toTable({name!r}): format is {format_!r}, and the table is of "
            f"{provider!r}; leave format out"
        )
    return provider, path
