"""The differences between two savepoints, by their ``savepoint.json``; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seamark.savepoints.record import NOT_KNOWN, Operator, SavepointRecord


@dataclass(frozen=True)
class Difference:
    """One difference. `part` is ``savepoint``, ``source``, ``operator`` or ``sink``; `uid` is of
    the source, operator or sink, else empty; `old` and `new` are None if there is no value. A part
    in only one of the two savepoints differs in `what` = ``present`` alone."""

    part: str
    uid: str
    what: str
    old: Any
    new: Any


def diff(old: SavepointRecord, new: SavepointRecord) -> list[Difference]:
    """Return the differences, first of the savepoints as a whole, then by uid. It does not matter
    when and where they were taken, and how their state is divided into files."""
    differences = [*_by_uid("savepoint", {"": _own(old)}, {"": _own(new)})]
    differences += _by_uid(
        "source",
        {s.uid: {"offset": s.offset} for s in old.sources},
        {s.uid: {"offset": s.offset} for s in new.sources},
    )
    differences += _by_uid(
        "operator",
        {o.uid: _of_operator(o) for o in old.operators},
        {o.uid: _of_operator(o) for o in new.operators},
    )
    differences += _by_uid(
        "sink",
        _of_sinks(old),
        _of_sinks(new),
    )
    return differences


def _of_sinks(savepoint: SavepointRecord) -> dict[str, dict[str, Any]]:
    types = dict.fromkeys(savepoint.committables, "") | {s.uid: s.type for s in savepoint.sinks}
    return {
        uid: {"type": type_, "committables": len(savepoint.committables.get(uid, ()))}
        for uid, type_ in types.items()
    }


def _of_operator(operator: Operator) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": operator.name, "properties": operator.properties}
    for store in operator.stores:
        for family in store.families:
            # The only family of the only store needs no name.
            at = "" if (store.name, family.name) == ("default", "default") else (
                f"{family.name} " if store.name == "default" else f"{store.name} "
            )  # fmt: skip
            facts[f"{at}rows"] = family.rows
            facts[f"{at}bytes"] = family.bytes
            facts[f"{at}key schema"] = family.key_schema
            facts[f"{at}value schema"] = family.value_schema
    return facts


def _own(savepoint: SavepointRecord) -> dict[str, Any]:
    names = (
        "job_id",
        "job_name",
        "epoch",
        "type",
        "spark_version",
        "state_backend",
        "partitions",
        "watermark_ms",
    )
    settings = {**savepoint.settings, **savepoint.values_by}
    return {name: getattr(savepoint, name) for name in names} | dict(sorted(settings.items()))


def _by_uid(
    part: str, old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> Iterator[Difference]:
    for uid in [*old, *(uid for uid in new if uid not in old)]:
        if uid not in new or uid not in old:
            yield Difference(part, uid, "present", uid in old, uid in new)
            continue
        for what in {**old[uid], **new[uid]}:
            before, after = old[uid].get(what), new[uid].get(what)
            known = part != "operator" or NOT_KNOWN not in (before, after)
            if known and before != after:
                yield Difference(part, uid, what, before, after)
