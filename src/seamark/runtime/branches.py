"""One stream for several sinks: what a row of it holds, and for whom.

Sinks share what they have in common (`shared_stream.py`); streams that have nothing in common are
united. A lone sink's stream has the sink's own columns, every other one a struct column per sink,
which is null in the rows that do not go to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seamark.api.declarations import DeclaredSink
from seamark.runtime.shared_stream import Branch, branches_of


@dataclass(frozen=True)
class Layout:
    """Which columns of the united stream hold which sink's rows.

    The struct column of sink number n is ``s<n>``. A lone sink's own columns travel as ``c0``,
    ``c1``, …, since `mapInArrow` resolves names anew and stumbles over dots and backticks;
    `columns` are what the sink calls them.
    """

    uids: tuple[str, ...]
    columns: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the stream is a lone sink's own columns."""
        return len(self.uids) == 1

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (sink uid, its rows with its own columns) for one Arrow batch of the stream."""
        if self.plain:
            yield self.uids[0], batch.rename_columns(list(self.columns))
            return
        for uid, rows in zip(self.uids, batch.columns, strict=True):
            if rows.null_count:
                rows = rows.filter(rows.is_valid())
            if len(rows):
                yield uid, pa.RecordBatch.from_struct_array(rows)


@dataclass(frozen=True)
class United:
    """The one streaming DataFrame that feeds all sinks, its layout, and the branches that it is the
    union of, from left to right."""

    stream: DataFrame
    layout: Layout
    branches: tuple[Branch, ...]


def unite(
    sinks: Sequence[DeclaredSink],
    sources: Mapping[str, DataFrame] = MappingProxyType({}),
    operators: Mapping[str, DataFrame] = MappingProxyType({}),
) -> United:
    """Return the one stream for `sinks`: of one branch, or a union of several. `sources` and
    `operators` are the DataFrames that the program gives uids to."""
    branches = tuple(branches_of(sinks, sources, operators))
    uids = tuple(sink.uid for branch in branches for sink in branch.sinks)
    if len(uids) == 1:
        frame = sinks[0].dataframe.selectExpr(*sinks[0].select_expressions)
        names = [f"c{number}" for number in range(len(frame.columns))]
        return United(frame.toDF(*names), Layout(uids, tuple(frame.columns)), branches)
    types = [field.dataType for branch in branches for field in branch.stream.schema.fields]
    streams, first = [], 0
    for branch in branches:
        columns = [F.lit(None).cast(type_) for type_ in types]
        columns[first : first + len(branch.sinks)] = map(F.col, branch.stream.columns)
        first += len(branch.sinks)
        named = [column.alias(f"s{number}") for number, column in enumerate(columns)]
        streams.append(branch.stream.select(*named))
    return United(reduce(DataFrame.union, streams), Layout(uids), branches)
