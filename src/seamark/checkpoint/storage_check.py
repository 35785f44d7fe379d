"""Tries out whether a store can hold checkpoints, before the job writes anything.

Leases, seals and prepared records rely on exactly one of several creators winning. No store states
reliably whether it guarantees this: some S3 servers ignore the condition of a write, some look
first and write afterwards. `CheckpointStore.preflight` calls `check_storage` at each start of a
program.
"""

import threading
import uuid
from contextlib import suppress

from seamark.checkpoint.envelope import is_there
from seamark.files import Directory
from seamark.files.deadline import CallHangsError, call_within
from seamark.model.errors import PreflightError, SeamarkError
from seamark.model.findings import Finding, FindingCode

DEADLINE_S = 30.0
RACERS = 8
"""The number of threads creating the same file at once; two on a local disk, where hard links are
known to work."""


def check_storage(files: Directory, deadline_s: float = DEADLINE_S) -> None:
    """Create, read, list and delete a file below `files`, as a checkpoint will; leave nothing.

    Raises PreflightError naming the store, its behaviour and the remedy, also when it does not
    answer within `deadline_s`. Takes a few milliseconds on a local disk, some ten calls elsewhere.
    """
    where = f"checkpoint storage {files.uri}"
    try:
        # A store's client may wait for ever. Then only a thread does; the program can still end.
        call_within(deadline_s, lambda: _try_out(files))
    except CallHangsError:
        raise PreflightError(
            f"{where} has not answered within {deadline_s:g} s; check that its server runs and can "
            "be reached from here"
        ) from None
    except OSError as error:
        raise PreflightError(f"{where}: {error}; {_remedy(error)}") from error


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "let this user write there, or give the credentials of one who may"
    if isinstance(error, FileNotFoundError):
        return "make what is missing (a bucket, a mount), or correct the address"
    return "check the address, and that its server runs and has room"


def _try_out(files: Directory) -> None:
    directory = f"preflight-{uuid.uuid4().hex}"
    path = f"{directory}/probe"
    try:
        winner = _race(files, path)
        if files.read(path) != winner:
            raise _unfit(files, "a file that was just created reads differently")
        if files.list(directory) != ["probe"]:
            raise _unfit(files, "a file that was just created is not listed")
        try:
            files.create(path, b"again")
        except FileExistsError:
            pass
        else:
            raise _unfit(files, "a file that exists was created once more")
        files.delete(path)
        if files.exists(path) or files.list(directory):
            raise _unfit(files, "a file that was just deleted is still there")
    except (ConnectionError, TimeoutError):
        raise  # a deletion would not be answered either
    except BaseException:
        with suppress(OSError):  # the earlier error matters
            files.delete(directory)
        raise
    files.delete(directory)


def _race(files: Directory, path: str) -> bytes:
    """Let several threads create one file at once; return the content of the only winner."""
    racers = 2 if files.uri.startswith("file:") else RACERS
    start = threading.Barrier(racers)
    outcomes: dict[int, BaseException | None] = {}

    def create(number: int) -> None:
        start.wait()
        own = b"%d" % number
        try:
            try:
                files.create(path, own)
            except FileExistsError:
                if not is_there(files, path, own):
                    raise
            outcomes[number] = None
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=create, args=(n,), daemon=True) for n in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in outcomes.values():
        if error is not None and not isinstance(error, FileExistsError):
            raise error
    winners = [number for number, error in outcomes.items() if error is None]
    if len(winners) != 1:
        raise _unfit(files, f"{len(winners)} of {racers} at once created the same file")
    return b"%d" % winners[0]


def _unfit(files: Directory, found: str) -> SeamarkError:
    return PreflightError(
        Finding(
            FindingCode.CP003,
            f"checkpoint storage {files.uri}",
            f"it is not fit for checkpoints: {found}. Two drivers of a job could both believe that "
            "they hold it",
            "choose another storage: a local disk, HDFS, Google's store, or an S3 server with "
            "conditional writes (If-None-Match); docs/operations/storage.md",
        )
    )
