"""Moves a job in Kafka: from a savepoint's offsets to others, in a copy.

`operations/offsets.py` asks the brokers. State stays; `consequences` has the effect on the rows.
"""

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seamark.checkpoint.spark_files import is_kafka
from seamark.files import Directory
from seamark.model.durations import moment_text
from seamark.model.errors import DamagedCheckpointError, SavepointError
from seamark.savepoints.record import (
    SavepointRecord,
    Source,
    require_new,
    write_savepoint,
    write_taking,
)

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


@dataclass(frozen=True)
class Move:
    """One partition of a source: its offset in the savepoint (`old`) and in the copy (`new`), None
    if it is not there.

    `log_start`, `log_end`: the range of its log, None if nobody has asked or there is no log.
    `renamed_from`: the old name of its topic, if it takes over that topic's offset.
    """

    source: str
    topic: str
    partition: int
    old: int | None
    new: int | None
    log_start: int | None = None
    log_end: int | None = None
    renamed_from: str | None = None

    @property
    def reread(self) -> int:
        """The number of offsets read again."""
        return max(self.old - self.new, 0) if self.old is not None and self.new is not None else 0

    @property
    def skipped(self) -> int:
        """The number of offsets never read: those between old and new, or, if the partition is new
        to the job, those before `new`. 0 in a renamed topic."""
        if self.new is None or self.renamed_from is not None:
            return 0
        begin = self.old if self.old is not None else self.log_start
        return max(self.new - begin, 0) if begin is not None else 0

    @property
    def remaining(self) -> int | None:
        """The number of offsets left to read, by the restored job or by nobody. None if unknown."""
        here = self.old if self.new is None else self.new
        return None if here is None or self.log_end is None else max(self.log_end - here, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the numbers derived from them."""
        return {
            **asdict(self),
            "reread": self.reread,
            "skipped": self.skipped,
            "remaining": self.remaining,
        }


@dataclass(frozen=True)
class Change:
    """A requested change of offsets.

    `partitions`: offsets given one by one. `topics`: new names of topics by their old ones.
    `position`: a function that returns the new offsets of all partitions it is given; None leaves
    them. It gets partitions without an offset too. `only_back`: a partition that is already before
    its new position stays where it is, and one without an offset gets none.
    """

    partitions: Mapping[Partition, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    position: Callable[[Sequence[Partition]], Mapping[Partition, int]] | None = None
    only_back: bool = False


def partitions_of(offset: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    """Return Kafka's offsets by partition."""
    return {(t, int(p)): o for t, of_topic in offset.items() for p, o in of_topic.items()}


def choose(
    sources: Sequence[Source], at: str, uid: str | None, change: Change
) -> list[tuple[Source, Change]]:
    """Return the Kafka sources affected by a change, each with its part of it: the source `uid`, or
    all. `at` is the savepoint's name in an error. Raises SavepointError if `uid` is unknown or
    reads no Kafka, if no source reads Kafka, or if the change names a topic that none of them
    reads, or a partition that may belong to several."""
    known = {source.uid: source for source in sources}
    if uid is not None and uid not in known:
        has = ", ".join(map(repr, known)) or "none"
        raise SavepointError(f"{at} has no source {uid!r}; it has {has}")
    if uid is not None and not is_kafka(known[uid].offset):
        raise SavepointError(f"{at}: source {uid!r} {why_fixed(known[uid].offset)}")
    chosen = [s for s in sources if is_kafka(s.offset) and uid in (None, s.uid)]
    if not chosen:
        why = "; ".join(f"{s.uid!r} {why_fixed(s.offset)}" for s in sources)
        raise SavepointError(f"{at} has no source whose offsets can be changed: {why or 'none'}")
    for topic in change.topics:
        if not any(topic in source.offset for source in chosen):
            topics = ", ".join(sorted({topic for source in chosen for topic in source.offset}))
            raise SavepointError(f"{at} has no offsets of topic {topic!r}; it has {topics}")
    of_source: dict[str, dict[Partition, int]] = {source.uid: {} for source in chosen}
    for partition, offset in change.partitions.items():
        readers = [s.uid for s in chosen if partition[0] in _topics_after(s, change)]
        if not readers and len(chosen) == 1:
            readers = [chosen[0].uid]  # a topic that the program is to read from now on
        if len(readers) != 1:
            raise SavepointError(
                f"{at}: topic {partition[0]!r} is read by {len(readers)} of its sources; say which "
                "one is meant with --source"
            )
        of_source[readers[0]][partition] = offset
    return [(source, replace(change, partitions=of_source[source.uid])) for source in chosen]


def why_fixed(offset: Any) -> str:
    """Return why an offset that is not Kafka's cannot be changed, as the end of a sentence."""
    if offset is None:
        return "has no offset: it begins where its program says"
    if isinstance(offset, dict) and "logOffset" in offset:
        return (
            "reads files: its offset is the number of an entry in Spark's log of the files that it "
            "has read, no place in them. To read files again give it another uid; to leave some "
            "out, move them away"
        )
    return (
        f"has the offset {json.dumps(offset)}, which is not Kafka's; only its own connector knows "
        "which others there are. To begin again give the source another uid"
    )


def moves(source: Source, change: Change, there: Callable[[str], Sequence[int]]) -> list[Move]:
    """Return each partition of a Kafka source with its offset now and after `change`. `there`: a
    topic's partitions at the brokers. Raises SavepointError if two topics become one, or if one
    that is read from a position is missing."""
    old = partitions_of(source.offset)
    names = _topics_after(source, change)
    if len(set(names)) < len(names):
        raise SavepointError(
            f"source {source.uid!r} would read {', '.join(sorted(set(names)))}, where two topics "
            "have become one; each has offsets of its own. Rename to a topic that it does not read"
        )
    came_from = {new: name for name, new in change.topics.items() if name in source.offset}
    new: dict[Partition, int] = {}
    for (topic, partition), offset in old.items():
        # With a new position, the old offsets mean nothing in another topic's log.
        if topic not in change.topics or change.position is None:
            new[change.topics.get(topic, topic), partition] = offset
    if change.position is not None:
        # The brokers may have more partitions than the savepoint: Spark would begin them at their
        # start, which skips nothing.
        topics = came_from if change.only_back else names
        begun = [(topic, number) for topic in topics for number in there(topic)]
        if missing := came_from.keys() - {topic for topic, _ in begun}:
            raise SavepointError(
                f"source {source.uid!r}: the brokers have no topic {min(missing)!r}, so nothing "
                "would be read; give the new topic's name, or make it first"
            )
        for at, offset in change.position(list(dict.fromkeys([*new, *begun]))).items():
            new[at] = min(new[at], offset) if change.only_back and at in new else offset
    new.update(change.partitions)
    after = [
        Move(source.uid, *at, old.get(at), offset, renamed_from=came_from.get(at[0]))
        for at, offset in sorted(new.items())
    ]
    return after + [Move(source.uid, *at, old[at], None) for at in sorted(old) if at not in new]


def _topics_after(source: Source, change: Change) -> list[str]:
    return [change.topics.get(topic, topic) for topic in source.offset]


def offset_after(moves: Sequence[Move], uid: str) -> dict[str, dict[str, int]]:
    """Return a source's new offset, as in Spark's offset log."""
    offset: dict[str, dict[str, int]] = {}
    for move in moves:
        if move.source == uid and move.new is not None:
            offset.setdefault(move.topic, {})[str(move.partition)] = move.new
    return offset


def problems(moves: Sequence[Move]) -> list[str]:
    """Return a line for each moved partition whose new offset is not in the brokers' logs."""
    said = []
    for move in moves:
        at = f"{move.topic}:{move.partition}={move.new}"
        if move.new is None or move.new == move.old:
            continue
        if move.log_start is None or move.log_end is None:
            said.append(f"{at}: the brokers have no such partition")
        elif not move.log_start <= move.new <= move.log_end:
            said.append(f"{at}: its log holds the offsets {move.log_start} to {move.log_end}")
    return said


def consequences(moves: Sequence[Move], watermark_ms: int) -> list[str]:
    """Return how these offsets change the guarantee of a job restored with them, in sentences.
    `watermark_ms`: the savepoint's, 0 if it has none."""
    said = []
    if reread := sum(move.reread for move in moves):
        late = ""
        if watermark_ms > 0:
            moment = moment_text(watermark_ms)
            late = f", but drop as late what is older than the watermark ({moment})"
        said.append(
            f"Up to {reread:,} rows are read again: for them every sink is at-least-once; they are "
            "written a second time (an upsert by key overwrites). The state stays as it is, so its "
            f"operators count them again{late}."
        )
    if skipped := sum(move.skipped for move in moves):
        said.append(
            f"Up to {skipped:,} rows are never read: for them the job is at-most-once; they are "
            "missing in the state and in every sink."
        )
    for new, old in sorted({(m.topic, m.renamed_from) for m in moves if m.renamed_from}):
        before = sum(m.new - (m.log_start or 0) for m in moves if m.topic == new and m.new)
        said.append(
            f"{new} takes the place of {old}: of up to {before:,} rows that it holds before these "
            "offsets, none is read."
        )
    for topic in sorted({move.topic for move in moves if move.new is None}):
        left = [move.remaining for move in moves if move.topic == topic and move.new is None]
        rows = sum(n for n in left if n is not None)
        said.append(
            f"Of {topic} nothing more is read; "
            + (
                "what it held is not known."
                if None in left
                else f"up to {rows:,} rows stay unread."
            )
        )
    gone = [
        f"{m.topic}:{m.partition}"
        for m in moves
        if m.new is not None and m.new == m.old and m.log_start is not None
        and not m.log_start <= m.new <= (m.log_end or 0)
    ]  # fmt: skip
    if gone:
        said.append(
            f"{', '.join(gone)}: the log no longer holds the offset where the job is. It will stop "
            "there, unless the source's failOnDataLoss is false."
        )
    return said or ["No row is read again or left out: the guarantee stays as it was."]


# --- the copy


def write_copy(
    savepoint: SavepointRecord,
    offsets: Mapping[str, Any],
    source: Directory,
    target: Directory,
    copy: Callable[[str], tuple[int, int]],
) -> SavepointRecord:
    """Write a copy of `savepoint`, at `source`, into the new directory `target`, with the offsets
    of the sources in `offsets` (JSON, by uid); return it. ``savepoint.json`` is written last:
    without it the copy was cut off, and is not restored.

    `copy` copies one file (`state/copies.py`), and returns its bytes and CRC-32. Raises
    SavepointError if `target` is not empty, DamagedCheckpointError if a file is missing or altered.
    """
    require_new(target)
    write_taking(target, savepoint.job_id, savepoint.job_name, savepoint.uri, savepoint.epoch)
    log = f"spark/offsets/{savepoint.epoch}"
    files = dict(savepoint.files)
    for path, known in savepoint.files.items():
        data = b""
        try:
            if path == log:
                data = source.read(path)
                copied = len(data), zlib.crc32(data)
            else:
                copied = copy(path)
        except FileNotFoundError:
            copied = -1, 0
        if copied != tuple(known):
            raise DamagedCheckpointError(
                f"savepoint {savepoint.uri} is damaged: {path} is missing, or not as it was "
                f"written. What is copied of it, {target.uri}, is to be deleted",
                problems=(f"{savepoint.uri}/{path}",),
            )
        if path == log:
            data = _with_offsets(data, savepoint, offsets)
            target.create(path, data)
            files[path] = len(data), zlib.crc32(data)
    changed = replace(
        savepoint,
        uri=target.uri,
        created_at=time.time(),
        sources=tuple(
            replace(s, offset=offsets[s.uid], topics={}) if s.uid in offsets else s
            for s in savepoint.sources
        ),
        files=files,
        offsets_set=True,
    )
    write_savepoint(target, changed)
    return changed


def _with_offsets(data: bytes, savepoint: SavepointRecord, offsets: Mapping[str, Any]) -> bytes:
    """Return the offset log's entry with other lines for these sources."""
    version, metadata, *lines = data.decode().split("\n")
    uids = {source.index: source.uid for source in savepoint.sources}
    for number, index in enumerate(savepoint.source_lines):
        if uids.get(index) in offsets:
            lines[number] = json.dumps(offsets[uids[index]], separators=(",", ":"))
    return "\n".join([version, metadata, *lines]).encode()
