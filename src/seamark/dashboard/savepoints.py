"""The savepoints of the dashboard's jobs: their list, their existence, and their disposal without a
driver.

The list has the savepoints recorded by the jobs' drivers (`checkpoint/statistics_store.py`).
Afterwards only a savepoint's owner decides where it lies, and under which name.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from seamark.dashboard.shared_pages import Page, Shared
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.rest.operations import Operations, TooManyOperationsError, beside
from seamark.runtime.checkpoint_history import exists, open_storage
from seamark.savepoints.claims import dispose
from seamark.savepoints.record import SAVEPOINT

log = logging.getLogger(__name__)

_LOOKED_FOR_AT_ONCE = 16
KIND = "savepoint-disposal"


class Savepoints:
    """The savepoints of all jobs in a storage. Safe to use from any thread."""

    def __init__(self, storage: str) -> None:
        self._storage = storage
        self._there: Shared[bool | None] = Shared()
        self._disposals = Operations()

    def page(self, found: CheckpointingStatistics) -> dict[str, Any]:
        """Return the savepoints of one job, newest first, in Flink's fields of a checkpoint, with
        operators. `there` (Seamark's) says whether a savepoint still lies at its path; null if
        unknown."""
        known = [one for one in found.history if one.is_savepoint]
        with ThreadPoolExecutor(_LOOKED_FOR_AT_ONCE) as pool:
            there = list(pool.map(self._is_there, known))
        return {
            "savepoints": [
                {**one.to_json(details=True), "there": is_there}
                for one, is_there in zip(known, there, strict=True)
            ]
        }

    def _is_there(self, one: CheckpointStatistics) -> bool | None:
        if one.status is not CheckpointStatus.COMPLETED:
            return None

        def look() -> bool | None:
            try:
                path = one.external_path
                return exists(path) and open_storage(path).exists(SAVEPOINT)
            except Exception as error:  # its file system is away
                log.info("savepoint %s: %s", one.external_path, error)
                return None

        return self._there.get(one.external_path, look)

    def dispose(self, path: str, trigger_id: str | None) -> Page:
        """Begin to delete a savepoint, unless somebody needs it; return the trigger id."""
        work = partial(dispose, path, storage=self._storage)
        try:
            trigger = self._disposals.begin(KIND, trigger_id, lambda: beside(work), lambda _: {})
        except TooManyOperationsError as error:
            return Page.problem(429, str(error))
        return Page.of({"request-id": trigger}, 202)

    def disposal(self, trigger_id: str) -> Page:
        """Return the outcome of a disposal."""
        operation = self._disposals.find(KIND, trigger_id)
        if operation is None:
            return Page.problem(404, f"There is no {KIND} with the trigger id {trigger_id}")
        return Page.of(operation.answer())
