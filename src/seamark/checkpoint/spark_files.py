"""Spark's side of a checkpoint: the files of its checkpoint location needed by a restart after one
epoch, and the check that they are there and whole.

With V = N + 1, epoch N needs ``metadata``, ``offsets/N`` (and ``N-1`` where there is one),
``commits/N``, the source logs up to their offset in ``offsets/N``, the state's metadata, and for
each state store:

| backend | files |
|---|---|
| hashmap | the latest ``*.snapshot`` up to V, then each ``*.delta`` up to V |
| RocksDB | ``V.zip`` and the SST files named in it |
| RocksDB, changelog | the latest ``*.zip`` up to V and its SST files, then each ``*.changelog`` |

In Spark's checkpoint format 2 the names are ``V_<unique id>.*``, with the unique id in
``commits/N``. `inspection.py` calls this; `manifest.py` records the small files' contents.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.files import Directory
from seamark.model.errors import CorruptRecordError

_VERSIONED = re.compile(
    r"state/(?P<store>\d+/\d+(?:/[^/]+)?)/(?P<version>\d+)(?:_(?P<id>[0-9a-f-]{36}))?"
    r"\.(?P<kind>delta|snapshot|zip|changelog)(?P<crc>\.crc)?"
)
_WHOLE = ("snapshot", "zip")
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Spark's setting for sources with names of their own; the offset log has it."""
KAFKA, _FILES = "kafka", "FileSource"
"""Spark's names of the kinds of source that are told by their offsets."""
_KEY = re.compile(r"^(\w+):")  # no offset's JSON begins so
_SOURCE_LOG = re.compile(r"(\d+)(\.compact)?")

StoreGroup = tuple[str, str, int]
"""(operator, store name or "", number of partitions): the state stores of one operator."""

ByDirectory = Callable[[Mapping[int | str, Any]], Mapping[str, Any]]
"""Makes offsets from `read_offsets` the sources', by the names of their directories."""


METADATA_VERSION = re.compile(r"(.*/_metadata/v2/)(\d+)")
"""The path of an operator's metadata in format 2, and the epoch before which it was written."""


@dataclass(frozen=True)
class _Version:
    name: str
    kind: str
    id: str | None


@dataclass
class StateTree:
    """The files below ``state/``: each store's versioned files, and the metadata beside them;
    `sizes` are the bytes of every file."""

    stores: dict[str, dict[int, list[_Version]]] = field(default_factory=dict)
    checksums: set[str] = field(default_factory=set)
    metadata: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(files: Directory) -> "StateTree":
        """List ``state/``."""
        tree = StateTree()
        listed = files.tree("state").items()
        tree.sizes = {path: size for path, size in listed if "/." not in path}
        for path in tree.sizes:
            tree._add(path)
        return tree

    def _add(self, path: str) -> None:
        match = _VERSIONED.fullmatch(path)
        if match is not None and match["crc"]:
            self.checksums.add(path)
        elif match is not None:
            versions = self.stores.setdefault(match["store"], {})
            versions.setdefault(int(match["version"]), []).append(
                _Version(path, match["kind"], match["id"])
            )
        elif "/_metadata/" in path or "/_stateSchema/" in path:
            self.metadata.append(path)

    def groups(self) -> list[StoreGroup]:
        """Return the stores, as operator, store name and number of partitions."""
        highest: dict[tuple[str, str], int] = {}
        for store in self.stores:
            operator, partition, *name = store.split("/")
            key = operator, "".join(name)
            highest[key] = max(highest.get(key, -1), int(partition))
        return [(operator, name, last + 1) for (operator, name), last in sorted(highest.items())]

    def chain(
        self, store: str, version: int, ids: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Return the files read by a load of `version`, and the missing ones among them.

        `ids`: the unique ids of this store in format 2. The last version must have one of them. Of
        an earlier version each attempt's files are returned: only Spark's files say which count.
        """
        versions = dict(self.stores.get(store, {}))
        missing = []
        if ids and version:
            own = [f for f in versions.pop(version, []) if f.id in ids]
            versions |= {version: own} if own else {}
        whole = [v for v, files in versions.items() if v <= version and _each_is_whole(files)]
        start = max(whole, default=0)
        needed = [f.name for f in versions.get(start, []) if f.kind in _WHOLE]
        for v in range(start + 1, version + 1):
            needed += [f.name for f in versions.get(v, [])]
            if v not in versions:
                own_name = ids and v == version
                kind = f"_{ids[0]}.*" if own_name else f".{self._extension(store)}"
                missing.append(f"state/{store}/{v}{kind}")
        needed += [crc for name in list(needed) if (crc := f"{name}.crc") in self.checksums]
        return needed, missing

    def _extension(self, store: str) -> str:
        kinds = {f.kind for files in self.stores.get(store, {}).values() for f in files}
        return next((kind for kind in ("changelog", "zip") if kind in kinds), "delta")


def _each_is_whole(files: Iterable[_Version]) -> bool:
    """Whether each attempt at a version has left a whole copy: a load may begin with it."""
    return {f.id for f in files} == {f.id for f in files if f.kind in _WHOLE}


def store_directories(groups: Iterable[StoreGroup]) -> list[str]:
    """Return each store's directory below ``state/``."""
    return [
        f"{operator}/{partition}" + (f"/{name}" if name else "")
        for operator, name, partitions in groups
        for partition in range(partitions)
    ]


def metadata_at(paths: Iterable[str], epoch: int) -> list[str]:
    """Return the paths in force at `epoch`.

    Spark writes an operator's metadata (format 2) anew at each start of the query, and deletes
    files older than its oldest commit, even if nothing newer was there at that commit. So an
    operator's file in force is the newest up to `epoch`, or, if that is gone, the oldest of the
    later ones.
    """
    current: list[str] = []
    versions: dict[str, list[int]] = {}
    for path in paths:
        if match := METADATA_VERSION.fullmatch(path):
            versions.setdefault(match[1], []).append(int(match[2]))
        else:
            current.append(path)
    for directory, numbers in versions.items():
        until = [number for number in numbers if number <= epoch]
        current.append(f"{directory}{max(until) if until else min(numbers)}")
    return current


def log_paths(files: Directory, epoch: int, by_directory: ByDirectory | None = None) -> list[str]:
    """Return the metadata file, the logs' entries and the source logs needed by `epoch`. Without
    `by_directory`, the plan's, also later entries of the source logs, if a source may be in several
    places of the plan: the offset log then does not tell which line is whose.

    Raises CorruptRecordError or FileNotFoundError if ``offsets/<epoch>`` can't be read.
    """
    paths = ["metadata", f"offsets/{epoch}", f"commits/{epoch}"]
    if files.exists(f"offsets/{epoch - 1}"):
        paths.append(f"offsets/{epoch - 1}")
    directories, offsets = files.list("sources"), read_offsets(files, epoch)
    if by_directory is not None:
        known = by_directory(offsets)
    else:
        known = {str(key): offset for key, offset in offsets.items()}
        if known.keys() != set(directories):
            known = {}
    for source in directories:
        offset = known.get(source)
        limit = offset.get("logOffset") if isinstance(offset, dict) else None
        entries = {}
        for name in files.list(f"sources/{source}"):
            if match := _SOURCE_LOG.fullmatch(name):
                number = int(match[1])
                if not isinstance(limit, int) or number <= limit:
                    entries[name] = number
        compacted = max((n for name, n in entries.items() if name.endswith(".compact")), default=-1)
        paths += [f"sources/{source}/{name}" for name, n in entries.items() if n >= compacted]
    return paths


def read_offsets(files: Directory, epoch: int) -> dict[int | str, Any]:
    """Return the sources' offsets in an entry of Spark's offset log: by their lines' numbers; in
    version 2 by Spark's keys, a source's name or, as text, the line of its last reading."""
    _, *lines = _read_lines(files, f"offsets/{epoch}")
    return {n if key is None else key: offset for n, (key, offset) in enumerate(lines)}


def read_log(files: Directory, path: str) -> list[Any]:
    """Return the JSON lines of an entry of Spark's offset or commit log, without its version, and
    of an offset log of version 2 without the keys."""
    return [value for _, value in _read_lines(files, path)]


def _read_lines(files: Directory, path: str) -> list[tuple[str | None, Any]]:
    """Return the key, None without one, and the JSON of each line of an entry."""
    try:
        version, *lines = files.read(path).decode().split("\n")
        if not re.fullmatch(r"v\d+", version) or not lines:
            raise ValueError(f"it begins with {version[:20]!r}")
        keyed = [(_KEY.match(line), _KEY.sub("", line)) for line in lines]
        return [
            (key and key[1], None if text == "-" else json.loads(text or "{}"))
            for key, text in keyed
        ]
    except ValueError as error:
        raise CorruptRecordError(
            f"{files.uri}/{path}: this is not a whole entry of Spark's log: {error}"
        ) from None


def with_metadata(entry: str, metadata: Mapping[str, Any]) -> str:
    """Return an entry of Spark's offset or commit log with other metadata, its second line."""
    version, _, *lines = entry.split("\n")
    return "\n".join([version, json.dumps(metadata, separators=(",", ":")), *lines])


def newest_file(files: Directory, source: str, offset: Any) -> str:
    """Return the last path in the log of a file source's directory up to its `offset`, as Spark
    writes it; "" if there is none."""
    if not isinstance(offset, dict) or "logOffset" not in offset:
        return ""
    logged = filter(None, map(_SOURCE_LOG.fullmatch, files.list(f"sources/{source}")))
    entries = {number: m[0] for m in logged if (number := int(m[1])) <= offset["logOffset"]}
    if not entries:
        return ""
    path = f"sources/{source}/{entries[max(entries)]}"
    try:  # the last line alone: a compacted log may have a million
        return str(json.loads(files.read(path).decode().rpartition("\n")[2])["path"])
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptRecordError(
            f"{files.uri}/{path}: this is not a whole entry of Spark's log: {error}"
        ) from None


def is_kafka(offset: Any) -> bool:
    """Whether an offset is one of Kafka's: ``{topic: {partition: offset}}``."""
    return isinstance(offset, dict) and all(
        isinstance(of_topic, dict)
        and all(p.isdigit() and isinstance(o, int) for p, o in of_topic.items())
        for of_topic in offset.values()
    )


def not_its_own(uid: str, offset: Any, before: str, now: str) -> str:
    """Return a clause if a source of the kind `now` cannot go on from an offset; "" if it can.

    `before` is the kind whose offset it is. Where it is unknown, "", the offset's form decides for
    Spark's files and Kafka: others may have any form. Spark would not always find it: its file
    source takes the number of another source for a place in its log, and leaves out as many files.
    """
    form = KAFKA if is_kafka(offset) else ""
    if isinstance(offset, dict) and "logOffset" in offset:
        form = _FILES
    another = before not in ("", now) or (now in (KAFKA, _FILES) and form != now)
    if not now or not another or offset is None:
        return ""
    of = f" of {before!r}" if before not in ("", now) else ""
    return (
        f"source {uid!r} is at the offset {json.dumps(offset)}{of}, from which {now!r}, its kind "
        "in the program, cannot go on"
    )


def log_version(files: Directory, path: str) -> int:
    """Return the version of an entry of Spark's offset or commit log. A commit log's version is
    Spark's checkpoint format, 1 or 2."""
    return int(files.read(path).decode().split("\n", 1)[0].removeprefix("v"))


def unique_ids(commit: Sequence[Any], store: str) -> list[str]:
    """Return one store's unique ids in a commit log entry (format 2); otherwise []."""
    operator, partition = store.split("/")[:2]
    body = commit[0] if commit and isinstance(commit[0], dict) else {}
    ids = ((body.get("stateUniqueIds") or {}).get(operator) or [])[int(partition) :][:1]
    return [i for i in (ids[0] if ids and isinstance(ids[0], list) else ids) if i]


def zip_references(files: Directory, path: str) -> list[tuple[str, int | None]]:
    """Return the files named in a RocksDB checkpoint's zip, with their sizes in bytes.

    Raises CorruptRecordError if the zip is damaged.
    """
    directory = path.rsplit("/", 1)[0]
    data = files.read(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if bad := archive.testzip():
                raise ValueError(f"its part {bad} does not match its checksum")
            body = json.loads(archive.read("metadata").decode().split("\n", 1)[1])
        return [
            (f"{directory}/{folder}/{entry[key]}", entry.get("sizeBytes"))
            for part, folder, key in (
                ("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")
            )
            for entry in body.get(part) or []
            if entry.get(key)
        ]  # fmt: skip
    except (zipfile.BadZipFile, ValueError, KeyError, IndexError, OSError, EOFError) as error:
        raise CorruptRecordError(f"{files.uri}/{path}: the zip is damaged: {error}") from None
    except Exception as error:  # zlib.error, NotImplementedError of a flipped method field
        raise CorruptRecordError(f"{files.uri}/{path}: the zip is damaged: {error}") from None
