"""The uids of a query's sources and stateful operators, by Spark's numbers.

Spark knows its parts by number alone (`planned_query.py`). A user gives a uid to a DataFrame: its
source, or its last stateful operator, is the part of the query with the mark of that uid, or else
one that is written in the same way.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from seamark.model.errors import ConfigurationError
from seamark.spark.planned_query import PlannedQuery, sources_of
from seamark.spark.plans import Compared, name_of


@dataclass(frozen=True)
class OperatorUids:
    """The uids by Spark's numbers; a part without a uid is called by its number. `source_lines`
    lists, line by line, the numbers of the sources with offsets in the offset log."""

    sources: Mapping[int, str] = field(default_factory=dict)
    operators: Mapping[int, str] = field(default_factory=dict)
    source_lines: tuple[int, ...] = ()
    operator_count: int = 0
    source_names: Mapping[int, str] = field(default_factory=dict)
    """The names given by ``DataStreamReader.name``, by number: Spark's keys in the offset log."""
    source_kinds: Mapping[str, str] = field(default_factory=dict)
    """Spark's names of the kinds of source, by uid."""

    def lines_of(self, offsets: Mapping[int | str, Any]) -> list[Any]:
        """Return the offset of each source in `source_lines`, from `read_offsets`; as many as there
        are if they are another program's."""
        last = {number: str(line) for line, number in enumerate(self.source_lines)}
        keys = {**last, **self.source_names}
        by_name = self.source_names and 0 not in offsets
        if by_name or set(offsets) == set(keys.values()):
            return [offsets.get(keys[number]) for number in self.source_lines]
        return list(offsets.values())

    def by_directory(self, offsets: Mapping[int | str, Any]) -> dict[str, Any]:
        """Return the sources' offsets, from `read_offsets`, by their directories' names."""
        lines = zip(self.source_lines, self.lines_of(offsets), strict=False)
        return {self.source_names.get(number, str(number)): offset for number, offset in lines}

    def moves(self, before: Mapping[str, Sequence[str]], offsets: Sequence[Any]) -> Iterator[str]:
        """Yield a sentence for each operator and source with another uid than in the checkpoint,
        whose uids `before` lists by kind and Spark's number; a part without a uid may have got one
        since. And for each source at whose `source_lines` the `offsets` differ: at its last start
        the program read another source in one of them."""
        sources = {} if self.source_names else self.sources  # Spark goes by the names
        for kind, now in (("operator", self.operators), ("source", sources)):
            for number, uid in enumerate(before.get(kind, ())):
                if uid != f"{kind}-{number}" and now.get(number, uid) != uid:
                    yield (
                        f"{kind} {number} of the checkpoint is {uid!r}, and {now[number]!r} in the "
                        "program"
                    )
        first = dict[int, Any]()
        for line, (number, offset) in enumerate(zip(self.source_lines, offsets, strict=False)):
            if first.setdefault(number, offset) != offset:
                yield (
                    f"reading {line} of the checkpoint's sources is of another source than "
                    f"{self.of_source(number)!r}, which the program reads there"
                )

    def of_source(self, index: int) -> str:
        """Return the uid of a source."""
        return self.sources.get(index, f"source-{index}")

    def of_operator(self, index: int) -> str:
        """Return the uid of a stateful operator."""
        return self.operators.get(index, f"operator-{index}")

    def source_numbers(self) -> dict[str, int]:
        """Return Spark's number of each source by uid."""
        return {self.of_source(index): index for index in sorted(set(self.source_lines))}

    def operator_numbers(self) -> dict[str, int]:
        """Return Spark's number of each stateful operator by uid."""
        return {self.of_operator(index): index for index in range(self.operator_count)}


def find_uids(
    query: PlannedQuery,
    sources: Mapping[str, DataFrame],
    operators: Mapping[str, DataFrame],
    branches: Sequence[str] = ("",),
) -> OperatorUids:
    """Return the uids in a query; `sources` and `operators` map them to the user's DataFrames.
    `branches` are the names of the query's branches: an operator in several of them is called after
    each. Raises ConfigurationError if Spark's plan does not tell which operator has a uid."""

    @cache
    def last_operator(uid: str) -> Compared | None:
        try:
            alone = PlannedQuery(operators[uid], query.mode, "")
        except (Py4JJavaError, PySparkException):  # only the whole can be planned
            return None
        return next((Compared(alone.node(p)) for p in alone.operators if p.place is not None), None)

    by_branch = []
    for number in range(len(branches)):
        here = [p for p in query.operators if p.branch == number and p.place is not None]
        by_branch.append(
            _matched(
                {uid: [part.number for part in here if uid in part.uids] for uid in operators},
                {part.number: partial(query.node, part) for part in here},
                last_operator,
            )
        )
    times = Counter(uid for uids in by_branch for uid in uids.values())
    lost = operators.keys() - times.keys()
    if lost and not query.traced:
        raise ConfigurationError(
            f"operator {min(lost)!r}: Spark's optimizer rewrites this program, and its plan does "
            "not tell which of its operators that is; leave this uid out, or write as one what "
            "Spark makes one, such as two limits"
        )
    own = _matched(
        {uid: [n for n, uids in query.readings if uid in uids] for uid in sources},
        {n: partial(query.leaves.__getitem__, n) for n in range(len(query.leaves))},
        lambda uid: Compared(sources_of(sources[uid])[0]),
    )
    names = {n: name for n, leaf in enumerate(query.leaves) if (name := name_in_spark(leaf))}
    called = {n: own.get(n) or names.get(n) or f"source-{n}" for n in range(len(query.leaves))}
    return OperatorUids(
        {**names, **own},
        {
            number: f"{uid}@{name}" if times[uid] > 1 else uid
            for name, uids in zip(branches, by_branch, strict=True)
            for number, uid in uids.items()
        },
        tuple(number for number, _ in query.readings),
        len(query.operators),
        names,
        {called[number]: _kind_of(leaf) for number, leaf in enumerate(query.leaves)},
    )


def _matched(
    marked: Mapping[str, Sequence[int | None]],
    nodes: Mapping[int | None, Callable[[], Any]],
    own: Callable[[str], Compared | None],
) -> dict[int, str]:
    """Return uids by number. A uid belongs to the first part with its mark (`marked`), as ever,
    else to the first other one of `nodes` that is written as the uid's `own`."""
    named = dict[Any, str]()
    for uid, numbers in marked.items():
        if numbers:
            named.setdefault(numbers[0], uid)
    for uid in [uid for uid in marked if uid not in named.values()]:
        free = {number: node for number, node in nodes.items() if number not in named}
        wanted = own(uid) if free else None
        equal = (n for n, node in free.items() if wanted is not None and Compared(node()) == wanted)
        if (number := next(equal, None)) is not None:
            named[number] = uid
    return named


def name_in_spark(leaf: Any) -> str:
    """Return the name given to a source by ``DataStreamReader.name``; "" if it has none."""
    try:
        name = leaf.sourceIdentifyingName()
    except Py4JError:  # Spark before 4.2, or no source of its own
        return ""
    return str(name.name()) if name_of(name) == "UserProvided" else ""


def _kind_of(leaf: Any) -> str:
    """Return Spark's name of a source's kind, the same for all formats of files."""
    with suppress(Py4JError):
        return str(leaf.source().get().shortName())
    with suppress(Py4JError):
        return str(leaf.sourceName()).partition("[")[0]  # FileSource[/its/path]
    return name_of(leaf)
