"""Tells Spark Connect apart at every entrance: there the program has no JVM to work in. Imports no
Spark."""

from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding, FindingCode


def require_classic(of: Any, where: str) -> None:
    """Raise ConfigurationError (SC005), naming the entrance `where`, if `of` is a DataFrame or a
    session of Spark Connect; any other value passes."""
    if any(each.__module__.startswith("pyspark.sql.connect") for each in type(of).__mro__):
        raise needs_driver(where)


def needs_driver(where: str) -> ConfigurationError:
    """Return the error of a program that reaches Spark through Connect alone."""
    return ConfigurationError(
        Finding(
            FindingCode.SC005,
            where,
            "this is Spark Connect, and Seamark works inside of Spark's driver",
            'write it with df.writeStream.format("seamark") (docs/data-source.md); or run the '
            "program where the driver is: with python or spark-submit, without "
            "SparkSession.builder.remote, SPARK_REMOTE and spark.api.mode=connect",
        )
    )
