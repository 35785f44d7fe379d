"""The name by which Spark finds ``format("seamark")``: a top-level module ``pyspark_…`` with a
`DefaultSource`. docs/data-source.md is its page.

Spark imports this module when a session meets its first Python data source, whoever wrote that one,
and an import that fails would fail it too. So what may be missing is imported with a query's first
batch: PyArrow, a class that this Spark lacks, a part of Seamark.
"""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc]
    """The class that Spark finds. Made in a worker that plans a batch; its copy, made once for a
    run and pickled, commits the batches."""

    commits = False

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "seamark"

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "commits": True}

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one batch's tasks; in the copy, the one that commits a batch.

        Called by Spark before each batch's tasks. All mistakes of the query are found here.
        """
        from seamark.datasource.writers import BatchCommit, in_one_line, place_of, plan_batch

        with in_one_line():
            place = place_of(dict(self.options), schema, overwrite=overwrite)
            return BatchCommit(place) if self.commits else plan_batch(place)

    def _refuse(self, *schema: object, **overwrite: object) -> NoReturn:
        """Called by Spark for all else that a data source could be."""
        from seamark.datasource.writers import in_one_line
        from seamark.model.errors import ConfigurationError

        with in_one_line():
            raise ConfigurationError(
                'format("seamark") only writes streams, df.writeStream.format("seamark"); for a '
                "batch, and to read, give the format of the sink's own system"
            )

    schema = reader = streamReader = writer = _refuse  # noqa: N815 - Spark's names
