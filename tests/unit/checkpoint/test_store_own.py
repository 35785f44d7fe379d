"""An attempt that can be told from another driver's is committed only by its own decision.

In real-time mode by the offsets to which it has read, with a keyed operator by its state's unique
id. How: the store on real local directories.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.files.local import LocalDirectory
from seamark.model.errors import DecisionVoidError
from seamark.protocol.states import Seal

ENDS = [{"clicks": {"0": 12, "1": 7}}]
PARTS = {"sink": SinkEpoch(3, (b"handle",))}


def a_store(directory: Path) -> CheckpointStore:
    store = CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))
    store.create_identity(JobIdentity("a" * 32, "l" * 32, "clicks", 0, 1.5))
    return store


def attempt(directory: Path, offsets: str | None) -> CheckpointStore:
    """Return a store with an attempt at epoch 7 that has read to ENDS, and Spark's decision; its
    offset log has `offsets`."""
    store = a_store(directory)
    store.note_own(7, ends=ENDS)
    store.write_prepared(7, 2, PARTS, None)
    if offsets is not None:
        store.spark_files.create("offsets/7", f"v1\n{{}}\n{offsets}".encode())
    store.spark_files.create("commits/7", b"v1\n{}")
    return store


@pytest.mark.parametrize("again", [False, True], ids=["its driver", "a later driver"])
def test_an_attempt_with_the_log_s_offsets_is_committed(tmp_path: Path, again: bool) -> None:
    store = attempt(tmp_path, '{"clicks": {"1": 7, "0": 12}}')
    store = a_store(tmp_path) if again else store
    assert store.seal(7, 2, Seal.COMMIT) is Seal.COMMIT


@pytest.mark.parametrize("again", [False, True], ids=["its driver", "a later driver"])
@pytest.mark.parametrize("offsets", ['{"clicks":{"0":11,"1":7}}', None], ids=["others", "none"])
def test_an_attempt_with_other_offsets_is_aborted(
    tmp_path: Path, offsets: str | None, again: bool
) -> None:
    store = attempt(tmp_path, offsets)
    store = a_store(tmp_path) if again else store
    with pytest.raises(DecisionVoidError, match="epoch 7 was decided by a driver"):
        store.seal(7, 2, Seal.COMMIT)
    assert store.epoch(7).seals == {2: Seal.ABORT}


def test_other_attempts_have_no_offsets_of_their_own(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.note_own(7, ends=ENDS)
    store.write_prepared(8, 1, PARTS, None)
    assert store.seal(8, 1, Seal.COMMIT) is Seal.COMMIT


STATE = {"store": "0/1", "id": "b"}


@pytest.mark.parametrize("again", [False, True], ids=["its driver", "a later driver"])
@pytest.mark.parametrize(
    ("ids", "seal"),
    [('[["a"],["b"]]', Seal.COMMIT), ('[["b"],["c"]]', Seal.ABORT), (None, Seal.COMMIT)],
    ids=["its own", "another", "deleted since by Spark"],
)
def test_an_attempt_is_committed_with_its_own_state_alone(
    tmp_path: Path, ids: str | None, seal: Seal, again: bool
) -> None:
    store = a_store(tmp_path)
    store.note_own(7, state=STATE)
    store.write_prepared(7, 2, PARTS, None)
    if ids is not None:
        store.spark_files.create("commits/7", f'v2\n{{"stateUniqueIds":{{"0":{ids}}}}}'.encode())
    store = a_store(tmp_path) if again else store
    if seal is Seal.ABORT:
        with pytest.raises(DecisionVoidError, match="epoch 7 was decided by a driver"):
            store.seal(7, 2, Seal.COMMIT)
    else:
        assert store.seal(7, 2, Seal.COMMIT) is Seal.COMMIT
    assert store.epoch(7).seals == {2: seal}
