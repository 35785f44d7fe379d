"""Columns in place of a stream's bytes: a decoder's work as a step of Spark's plan, in its Python
workers. The step keeps no state, and what is below it is read as without it."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, StructField, StructType

from seamark.contracts.source import UNREADABLE, RowDecoder
from seamark.model.errors import ConfigurationError
from seamark.spark.connect import require_classic


def require_frame(df: object, where: str) -> None:
    """Raise ConfigurationError for what is no DataFrame of this program's, at the entrance `where`:
    a source, say."""
    require_classic(df, where)
    if not isinstance(df, DataFrame):
        raise ConfigurationError(
            f"{where}: df is of type {type(df).__name__}; give the DataFrame that job.source "
            "returns, or one read with spark.readStream"
        )


def decoded(df: DataFrame, decoder: RowDecoder) -> DataFrame:
    """Return the stream with the bytes of its column `value` decoded, and all others as they are.

    Raises ConfigurationError.
    """
    if "value" not in df.columns or df.schema["value"].dataType != BinaryType():
        raise ConfigurationError(
            f"a DataFrame with the columns {', '.join(df.columns)} has no bytes in a column "
            "'value' to decode; give the DataFrame of a Kafka source"
        )
    if decoder.keeps_unreadable and UNREADABLE.name in df.columns:
        raise ConfigurationError(
            f"the DataFrame has a column {UNREADABLE.name!r} already, and unreadable records are "
            "to have it; rename it"
        )
    made = [
        StructField(f.name, from_arrow_type(decoder.value_type, prefer_timestamp_ntz=True))
        if f.name == "value"
        else f
        for f in df.schema
    ]
    if decoder.keeps_unreadable:
        made.append(StructField(UNREADABLE.name, from_arrow_type(UNREADABLE.type)))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(decoder.decode, batches)

    return df.mapInArrow(run, StructType(made))
