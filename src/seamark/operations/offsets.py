"""`seamark offsets`: a savepoint's or job's source offsets, and a copy with others.

`savepoints/edit/offsets.py` has the rules; this module asks the brokers.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from seamark.checkpoint.spark_files import is_kafka
from seamark.files.location import storage_uri
from seamark.jobs.checkpoint_history import exists, open_storage, open_store
from seamark.jobs.listing import directory_of
from seamark.model.errors import UserError
from seamark.operations.storage import readable, storage_of
from seamark.savepoints.claims import open_savepoint
from seamark.savepoints.edit.offsets import (
    Change,
    Move,
    Partition,
    choose,
    consequences,
    moves,
    offset_after,
    partitions_of,
    problems,
    write_copy,
)
from seamark.savepoints.record import SAVEPOINT, SavepointRecord, Source
from seamark.savepoints.state.copies import copier
from seamark.savepoints.take.checkpoint import (
    savepoint_of_checkpoint,
    sources_of_job,
    watermark_of_job,
)
from seamark.sources.kafka_log import KafkaLog
from seamark.sources.settings import kafka_time_ms, moment_of
from seamark.spark.session import spark_session

EARLIEST, LATEST = "earliest", "latest"


Brokers = Callable[[], KafkaLog]
"""Opens the logs of the sources' cluster: no savepoint has its address."""


@dataclass(frozen=True)
class Preview:
    """The effect of a change: `moves` are all partitions of the changed sources, `problems` forbid
    the change, `consequences` tell its effect on the guarantee."""

    moves: tuple[Move, ...]
    problems: tuple[str, ...]
    consequences: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            "partitions": [move.to_json() for move in self.moves],
            "problems": list(self.problems),
            "consequences": list(self.consequences),
        }


@dataclass(frozen=True)
class Base:
    """Where a savepoint goes on, or a job after its last decided epoch."""

    name: str
    sources: Sequence[Source]
    watermark_ms: int


def brokers_at(servers: str | None, config: Path | None) -> Brokers | None:
    """Return how to open the logs at these servers, with the settings in the file `config`; None
    without servers. Raises UserError."""
    return None if servers is None else partial(KafkaLog, servers, read_options(config))


def names_savepoint(what: str) -> bool:
    """Whether `what` is a savepoint's directory, rather than the name of a job."""
    if "/" in what:
        return True
    uri = storage_uri(what, "savepoint")
    return exists(uri) and open_storage(uri).exists(SAVEPOINT)


def base_of(what: str, storage: str | None) -> Base:
    """Return where a savepoint, or the job named `what`, goes on. Raises SavepointError; UserError
    if there is no such job."""
    if names_savepoint(what):
        savepoint = open_savepoint(what)
        at = f"savepoint {savepoint.uri}"
        return Base(at, savepoint.sources, savepoint.watermark_ms)
    uri = _directory(what, storage)
    with readable(uri):
        store = open_store(open_storage, uri)
        return Base(f"job {what}", sources_of_job(store), watermark_of_job(store))


def _directory(job: str, storage: str | None) -> str:
    uri = storage_of(storage)
    with readable(uri):
        try:
            return f"{uri}/{directory_of(uri, job)}"
        except UserError as error:
            raise UserError(f"{job!r} is no savepoint's path, and {error}") from None


def savepoint_of_newest(job: str, storage: str | None, beside: str) -> SavepointRecord:
    """Write a savepoint of the newest checkpoint of a job without a driver; return it. It is a new
    directory beside the path `beside`. Starts a Spark session. Raises SavepointError."""
    directory = _directory(job, storage)
    with readable(directory):
        id_ = open_store(open_storage, directory).read_identity().job_id
    target = _beside(storage_uri(beside, "--to"), id_)
    return savepoint_of_checkpoint(spark_session("seamark"), directory, target)


def _beside(path: str, id_: str) -> str:
    above = path.rpartition("/")[0]
    return f"{above}/savepoint-{id_[:6]}-{uuid.uuid4().hex[:12]}"


def show(base: Base, brokers: Brokers | None) -> list[Move]:
    """Return the partitions of the Kafka sources; with `brokers`, also the bounds of their logs."""
    moves = [
        Move(source.uid, *at, offset, offset)
        for source in base.sources
        if is_kafka(source.offset)
        for at, offset in sorted(partitions_of(source.offset).items())
    ]
    if brokers is None or not moves:
        return moves
    with closing(brokers()) as log:
        return _with_logs(moves, log)


def preview(
    base: Base, change: Change, position: str | int | None, source: str | None, brokers: Brokers
) -> Preview:
    """Return the effect of a change of the source `source`, None is all; nothing is written.
    `position` is the change's: EARLIEST, LATEST, milliseconds since 1970, or None. Raises
    SavepointError for a senseless change, OperationFailedError if the brokers do not answer."""
    with closing(brokers()) as log:
        change = replace(change, position=_position(position, log))
        kafka_moves = [
            move
            for each, part in choose(base.sources, base.name, source, change)
            for move in moves(each, part, log.partitions)
        ]
        kafka_moves = _with_logs(kafka_moves, log)
    return Preview(
        tuple(kafka_moves),
        tuple(problems(kafka_moves)),
        tuple(consequences(kafka_moves, base.watermark_ms)),
    )


def write(savepoint: SavepointRecord, shown: Preview, target: str | None) -> SavepointRecord:
    """Write the previewed copy, without problems, into the new directory `target`, by default one
    beside the savepoint; return it. Raises SavepointError if `target` is not empty,
    DamagedCheckpointError if the savepoint is damaged."""
    target = target or _beside(savepoint.uri, savepoint.job_id)
    source, files = open_storage(savepoint.uri), open_storage(storage_uri(target, "--to"))
    offsets = {
        uid: offset_after(shown.moves, uid) for uid in sorted({m.source for m in shown.moves})
    }
    copy = copier(source, files, lambda: spark_session("seamark"))
    return write_copy(savepoint, offsets, source, files, copy)


def parse_partitions(given: Sequence[str]) -> dict[Partition, int]:
    """Parse ``TOPIC:PARTITION=OFFSET`` texts; raises UserError."""
    offsets: dict[Partition, int] = {}
    for text in given:
        at, _, offset = text.rpartition("=")
        topic, _, partition = at.rpartition(":")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise UserError(f"--partition is {text!r}; give TOPIC:PARTITION=OFFSET, as clicks:0=12")
        if (topic, int(partition)) in offsets:
            raise UserError(f"--partition gives {topic}:{partition} twice")
        offsets[topic, int(partition)] = int(offset)
    return offsets


def parse_topics(given: Sequence[str]) -> dict[str, str]:
    """Parse ``OLD=NEW`` texts; raises UserError."""
    renamed = {}
    for text in given:
        old, _, new = text.partition("=")
        if not (old and new) or old == new or old in renamed:
            raise UserError(f"--topic is {text!r}; give OLD=NEW, each topic once")
        renamed[old] = new
    return renamed


def parse_moment(text: str) -> int:
    """Return a moment in milliseconds since 1970. `text` is this number, or ISO 8601 with its time
    zone. Raises UserError."""
    if text.isdecimal() and len(text) < 19:
        return int(text)
    moment = moment_of(text)
    if moment is None or moment.utcoffset() is None:
        raise UserError(
            f"--to-timestamp is {text!r}; give a moment with its time zone, as "
            "2026-01-31T08:00:00Z, or milliseconds since 1970"
        )
    return kafka_time_ms(moment)


def read_options(path: Path | None, option: str = "--command-config") -> dict[str, str]:
    """Return the settings in the file of an option: ``name=value`` lines, as Kafka's own tools take
    them. Raises UserError; never shows a value."""
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{option} {path}: it is no text in UTF-8") from None
    options = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise UserError(f"{option} {path}: line {number} is no name=value")
        options[name.strip()] = value.strip()
    return options


def _position(
    position: str | int | None, log: KafkaLog
) -> Callable[[Sequence[Partition]], Mapping[Partition, int]] | None:
    if position is None:
        return None

    def at(partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        bounds = log.bounds(partitions)
        if isinstance(position, int):
            return log.at_time(bounds, position)
        return {p: b.start if position == EARLIEST else b.end for p, b in bounds.items()}

    return at


def _with_logs(moves: Sequence[Move], log: KafkaLog) -> list[Move]:
    bounds = log.bounds((move.topic, move.partition) for move in moves)
    return [
        replace(move, log_start=at.start, log_end=at.end)
        if (at := bounds.get((move.topic, move.partition)))
        else move
        for move in moves
    ]
