"""`from_registry`: the columns of a Kafka stream's values, for a stream that Spark itself reads."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from seamark.sources.registry_values import RegistryValues
from seamark.spark.decoded import decoded, require_frame


def from_registry(
    df: DataFrame,
    value_format: str,
    schema_registry: Mapping[str, Any],
    *,
    subject: str | None = None,
    value_schema: int | str | None = None,
    on_bad_row: str = "fail",
) -> DataFrame:
    """Return a Kafka DataFrame whose `value` has columns instead of bytes.

    df: read with ``spark.readStream.format("kafka")`` (or ``spark.read``). Use
        ``KafkaSource(value_format=…)`` for a source of `Job`.

    The others are those of `KafkaSource`; the schema is known by `subject`, or given as the text of
    `value_schema`. Called when the program builds its stream: it asks the registry. Raises
    ConfigurationError, PreflightError and MissingDependencyError.
    """
    require_frame(df, "sm.from_registry")
    values = RegistryValues(
        "sm.from_registry", (), value_format, schema_registry, subject, value_schema, on_bad_row
    )
    return decoded(df, values.decoder())
