"""The state of a native savepoint: the files that Spark's state stores need at one epoch, copied.

On a cluster Spark's tasks read and write them, so the bytes flow where the executors are. Each task
is a Spark job of its own. Beside a stream only half of the cores get one at a time, so the stream's
own tasks come in between. With a local master threads of the driver's JVM do the same beside
Spark's tasks, without the time that a Spark job takes to begin. `take/export.py` calls
`describe_operators` and `copy_state`, `restore/location.py` calls `copy_back`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from seamark.checkpoint.spark_files import (
    StateTree,
    read_log,
    store_directories,
    unique_ids,
    zip_references,
)
from seamark.files import Directory
from seamark.model.errors import CheckpointError, DamagedCheckpointError
from seamark.savepoints.record import NOT_KNOWN, Operator, SavepointRecord, Store
from seamark.savepoints.state.layout import StateLayout, read_operators
from seamark.savepoints.state.rows import StateClasses, hadoop_of
from seamark.spark.java_calls import java_list, root_cause
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.session import is_local

LEAST_BYTES, MOST_BYTES = 64_000_000, 512_000_000
"""Bytes of files for one task, at least (if there are as many) and at most; a larger file is a task
of its own. Beginning a task takes as long as copying some 20 MB."""
LEAST_BYTES_OF_A_THREAD = 4_000_000
"""Bytes for each thread of the driver's own JVM; it begins at once."""
DAMAGED, MISSING = -1, -2
"""In place of a file's bytes: the file system found it altered, or did not find it."""


def describe_operators(
    layout: StateLayout, source: Directory, epoch: int, uids: OperatorUids
) -> list[Operator]:
    """Return the stateful operators of `source` as of `epoch`, with schemas, without row counts."""

    def of_files(store: Store, index: int) -> Store:
        families = (replace(family, rows=NOT_KNOWN, bytes=NOT_KNOWN) for family in store.families)
        return replace(store, path=f"state/{index}", families=tuple(families))

    operators = [layout.operator(info, uids)[0] for info in read_operators(source, epoch)]
    return [replace(o, stores=tuple(of_files(s, o.index) for s in o.stores)) for o in operators]


def copy_state(
    spark: SparkSession,
    source: Directory,
    files: Directory,
    needed: Mapping[str, int],
    *,
    aside: bool,
) -> dict[str, tuple[int, int]]:
    """Copy the `needed` files of the state (`state_files`) from a Spark checkpoint location into
    the savepoint `files`; return bytes and CRC-32 of each. `aside`: as in `read_files`. Raises
    DamagedCheckpointError with the name of each missing or damaged file."""
    copied = read_files(spark, source.uri, needed, to=files.uri, aside=aside)
    problems = problems_of(source.uri, copied)
    if problems:
        raise DamagedCheckpointError.found(f"the state in {source.uri} cannot be copied", problems)
    return copied


def state_files(source: Directory, tree: StateTree, epoch: int) -> dict[str, int]:
    """Return the state's files that a start after `epoch` needs, with their bytes; raises
    DamagedCheckpointError if the listing `tree` lacks some."""
    commit = read_log(source, f"commits/{epoch}")
    needed, missing = [], []
    for directory in store_directories(tree.groups()):
        chain, lacking = tree.chain(directory, epoch + 1, unique_ids(commit, directory))
        needed += chain
        missing += lacking
    for path in [path for path in needed if path.endswith(".zip")]:
        needed += [name for name, _ in zip_references(source, path)]
    needed = list(dict.fromkeys(needed))
    missing += [path for path in needed if path not in tree.sizes]
    if missing:
        lines = [f"{source.uri}/{path}: missing" for path in missing]
        at = f"the state of epoch {epoch} in {source.uri}"
        raise DamagedCheckpointError.found(f"{at} is not whole", lines)
    return {path: tree.sizes[path] for path in needed}


def copy_back(
    spark: SparkSession, savepoint: SavepointRecord, operator: Operator, target: str, index: int
) -> None:
    """Copy the files of an operator's state into the Spark checkpoint location `target` (a URI),
    under the operator's number `index` there. Files of a call that died are overwritten. Raises
    CheckpointError if a file was changed during the copy."""
    mine = f"state/{operator.index}/"
    known = {path: sums for path, sums in savepoint.files.items() if path.startswith(mine)}
    copies = {path: f"state/{index}/{path.removeprefix(mine)}" for path in known}
    sizes = {path: size for path, (size, _) in known.items()}
    sums = read_files(spark, savepoint.uri, sizes, to=target, copies=copies, sums=True)
    if changed := [path for path in known if sums[path] != known[path]]:
        raise CheckpointError(
            f"restore of {savepoint.uri}: {len(changed)} files were changed while they were "
            f"copied, {changed[0]} is one; delete the new job's directory and restore again"
        )


# --- in Spark's tasks


def read_files(
    spark: SparkSession,
    directory: str,
    sizes: Mapping[str, int],
    *,
    to: str | None = None,
    copies: Mapping[str, str] | None = None,
    sums: bool = False,
    aside: bool = False,
) -> dict[str, tuple[int, int]]:
    """Read files below `directory` (a URI) through, and copy them below `to`, if given; return
    bytes and CRC-32 of each. `problems_of` names the damage among them.

    `sizes`: the files, with their approximate bytes. `copies`: the path of each copy, by default
    the file's own. `sums`: whether local copies get Hadoop's checksum files, with which Spark finds
    damage. `aside`: leave room for the tasks of a running stream. Raises CheckpointError.
    """
    if not sizes:
        return {}
    jvm: Any = spark._jvm
    context = spark.sparkContext
    classes = StateClasses.of(spark)
    task = classes.new("Files", directory, to, sums, hadoop_of(spark))

    def lines(paths: Iterable[str]) -> str:
        return "\n".join(f"{path}\t{(copies or {}).get(path, path)}" for path in paths)

    def in_thread(shared: Any) -> Any:
        if aside:
            return classes.call_aside(task, shared.iterator())[0]
        return task.call(shared.iterator()).next()

    def in_task(batch: Sequence[str]) -> Any:
        given = java_list(jvm, [lines(batch)])
        return context._jsc.parallelize(given, 1).mapPartitions(task).collect().get(0)

    call: Callable[[Any], Any]
    parts: Iterable[Any]
    total, at_once = sum(sizes.values()), context.defaultParallelism
    if is_local(context.master):
        at_once = max(1, min(at_once, total // LEAST_BYTES_OF_A_THREAD))
        shared = classes.new("Lines", lines(sorted(sizes, key=lambda path: -sizes[path])))
        call, parts = in_thread, [shared] * at_once
    else:
        at_once = max(1, at_once // (2 if aside else 1))
        limit = min(max(total // at_once, LEAST_BYTES), MOST_BYTES)
        call, parts = inheritable_thread_target(spark)(in_task), _batches(sizes, limit)
    read = {}
    try:
        with ThreadPoolExecutor(at_once) as pool:
            for row in pool.map(call, parts):
                for line in row.getString(0).splitlines():
                    path, size, crc = line.split("\t")
                    read[path] = int(size), int(crc)
    except Py4JJavaError as error:
        raise CheckpointError(
            f"files of {directory} cannot be {'read' if to is None else f'copied to {to}'}: "
            f"{root_cause(error)}"
        ) from error
    return read


def _batches(sizes: Mapping[str, int], limit: int) -> Iterator[list[str]]:
    """Yield the paths in batches of at most `limit` bytes, for one task each, the largest first."""
    batch: list[str] = []
    left = limit
    for path in sorted(sizes, key=lambda path: -sizes[path]):
        if batch and left < sizes[path]:
            yield batch
            batch, left = [], limit
        batch.append(path)
        left -= sizes[path]
    if batch:
        yield batch


def problems_of(directory: str, read: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a line for each file found missing or damaged by `read_files`."""
    says = {MISSING: "missing", DAMAGED: "the file system's checksum does not match"}
    return [f"{directory}/{path}: {says[size]}" for path, (size, _) in read.items() if size in says]
