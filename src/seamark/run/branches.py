"""One stream for several sinks, and the layout of its rows.

Sinks share the common parts of their plans (`spark/shared_stream.py`). Streams without common
parts are united. A lone sink's stream has the sink's own columns. Any other stream has a struct
column per sink; the struct is null in rows not meant for the sink.
"""

from collections.abc import Sequence
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seamark.run.layout import Layout
from seamark.spark.plans import selected
from seamark.spark.shared_stream import Branch


class United:
    """The one streaming DataFrame for all sinks, its layout, and its branches. The DataFrame is the
    union of the branches, from left to right."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self.branches = branches
        self._uids = tuple(sink.uid for branch in branches for sink in branch.sinks)

    @cached_property
    def stream(self) -> DataFrame:
        """The stream, of one branch or a union of several; made at the first access."""
        if len(self._uids) == 1:
            rows = self._lone_rows
            return rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
        types = [f.dataType for branch in self.branches for f in branch.stream.schema.fields]
        streams, first = [], 0
        for branch in self.branches:
            columns = [F.lit(None).cast(type_) for type_ in types]
            columns[first : first + len(branch.sinks)] = map(F.col, branch.stream.columns)
            first += len(branch.sinks)
            named = [column.alias(f"s{number}") for number, column in enumerate(columns)]
            streams.append(branch.stream.select(*named))
        return reduce(DataFrame.union, streams)

    @property
    def layout(self) -> Layout:
        """The places of the sinks' rows in the stream."""
        columns = self._lone_rows.columns if len(self._uids) == 1 else ()
        types = (column.dataType.simpleString() for column in self.stream.schema)
        return Layout(self._uids, tuple(columns), tuple(types))

    @cached_property
    def _lone_rows(self) -> DataFrame:
        return selected(self.branches[0].sinks[0])
