"""How: the checks of a start on real directories, of a plan without sources; what fails is a
directory where Spark's file is to be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model.errors import RecordNotStoredError
from seamark.run.closing_epoch import plan_closing_epoch
from seamark.run.start_checks import StartChecks
from seamark.spark.operator_uids import OperatorUids


def test_a_storage_that_refuses_a_look_after_the_recovery_is_named(tmp_path: Path) -> None:
    """Any other error would be a failure of the program, without a remedy."""
    store = CheckpointStore(LocalDirectory(tmp_path), LocalDirectory(tmp_path / "spark"))
    (tmp_path / "spark/commits/0").mkdir(parents=True)
    job: Any = SimpleNamespace(name="clicks", store=store)
    plan: Any = SimpleNamespace(uids=OperatorUids())
    coordinator: Any = SimpleNamespace(last_committed=0)
    with pytest.raises(RecordNotStoredError, match=r"cannot be read.*check the address"):
        StartChecks(job, plan, {}, real_time=False).after(coordinator)
    with pytest.raises(RecordNotStoredError, match=r"commits/0 cannot be read"):
        plan_closing_epoch(store, 0)
