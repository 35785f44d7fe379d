"""One stream for several sinks: branches, tagged and united.

Sinks that share a DataFrame share a branch, so that Spark computes it once. A lone branch of a lone
sink travels as the sink's own columns; everything else as one struct column per sink, and with
several branches a tag that says whose row it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.api.declarations import DeclaredSink

TAG = "_tidemark_branch"


@dataclass(frozen=True)
class Layout:
    """Which columns of the united stream hold which sink's rows: by branch, the sinks' uids.

    A sink's struct column has its position in the flattened order as name: ``s0``, ``s1``, …
    A lone sink's own columns travel as ``c0``, ``c1``, …, since `mapInArrow` resolves names anew
    and stumbles over dots and backticks; `columns` are what the sink calls them.
    """

    branches: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the stream is a lone sink's own columns."""
        return len(self.branches) == 1 and len(self.branches[0]) == 1

    @property
    def uids(self) -> tuple[str, ...]:
        """All sinks, in the order of their struct columns."""
        return tuple(uid for branch in self.branches for uid in branch)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (sink uid, its rows with its own columns) for one Arrow batch of the stream."""
        if self.plain:
            yield self.branches[0][0], batch.rename_columns(list(self.columns))
            return
        column = 0
        tags = batch.column(TAG) if len(self.branches) > 1 and batch.num_rows else None
        lone = None
        if tags is not None:
            # A batch comes from one partition, and a partition of a union from one branch.
            bounds = pc.min_max(tags)
            lone = bounds["min"].as_py() if bounds["min"] == bounds["max"] else None
        for number, uids in enumerate(self.branches):
            rows = batch
            if tags is not None and lone is None:
                rows = batch.filter(pc.equal(tags, number))
            for uid in uids:
                if (lone is None or lone == number) and rows.num_rows:
                    yield uid, pa.RecordBatch.from_struct_array(rows.column(f"s{column}"))
                column += 1


def branches_of(sinks: Sequence[DeclaredSink]) -> list[list[DeclaredSink]]:
    """Return the sinks by the DataFrame that they share."""
    branches: list[list[DeclaredSink]] = []
    for sink in sinks:
        for branch in branches:
            if branch[0].dataframe is sink.dataframe:
                branch.append(sink)
                break
        else:
            branches.append([sink])
    return branches


def unite(sinks: Sequence[DeclaredSink]) -> tuple[DataFrame, Layout]:
    """Return the one streaming DataFrame that feeds all sinks, and its layout."""
    branches = branches_of(sinks)
    layout = Layout(tuple(tuple(s.uid for s in branch) for branch in branches))
    if layout.plain:
        frame = sinks[0].dataframe.selectExpr(*sinks[0].select_expressions)
        names = [f"c{number}" for number in range(len(frame.columns))]
        return frame.toDF(*names), Layout(layout.branches, tuple(frame.columns))

    structs: list[DataFrame] = []
    column = 0
    for branch in branches:
        columns = []
        for sink in branch:
            columns.append(f"struct({', '.join(sink.select_expressions)}) AS s{column}")
            column += 1
        structs.append(branch[0].dataframe.selectExpr(*columns))
    if len(structs) == 1:
        return structs[0], layout
    types = {f.name: f.dataType for frame in structs for f in frame.schema.fields}
    tagged = [
        frame.select(
            F.lit(number).alias(TAG),
            *(
                F.col(name) if name in frame.columns else F.lit(None).cast(type_).alias(name)
                for name, type_ in types.items()
            ),
        )
        for number, frame in enumerate(structs)
    ]
    return reduce(DataFrame.union, tagged), layout
