"""The jobs of one storage: each page is made here, once a second at most, from the job's driver or
from the storage.

The savepoints of a job are those recorded by its drivers (`checkpoint/statistics_store.py`).
Afterwards only a savepoint's owner decides where it lies, and under which name.

Invariant: a driver is asked at most once a second for each of its pages, whatever the number of
browsers, and only while someone looks.
"""

import json
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from seamark.checkpoint.executions import Execution
from seamark.dashboard.checkpoint_pages import (
    checkpoints_page,
    details_page,
    epoch_beside,
    with_those_under_way,
)
from seamark.dashboard.shared_pages import Page, Shared
from seamark.dashboard.stored_jobs import JobNotFoundError, StoredJob
from seamark.files import in_threads
from seamark.jobs.checkpoint_history import READ_AT_ONCE, exists, jobs_in, open_storage
from seamark.jobs.driver import ASK_S, Driver, DriverSilentError
from seamark.jobs.listing import known_lineages, open_job
from seamark.model.checkpoint_series import series
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import UserError
from seamark.model.job_state import JobState
from seamark.rest.epochs import EpochPage
from seamark.rest.models import JobDetails, SavepointDisposalRequest
from seamark.rest.observed import job_page, lineage_page
from seamark.rest.operations import Operations, beside
from seamark.savepoints.claims import dispose
from seamark.savepoints.record import SAVEPOINT

log = logging.getLogger(__name__)

KIND = "savepoint-disposal"
ACT_S = 10.0
"""How long a driver may take to answer a request to change its job."""
NOTHING_KNOWN = Page(b"", 204)
"""Only the job's driver could know the page; it does not answer, or is too old to have the page."""


class Jobs:
    """Makes the dashboard's pages. For any thread; methods may read files and wait for drivers."""

    def __init__(self, storage: str) -> None:
        self.storage = storage
        self._pages: Shared[Page] = Shared()
        self._scans: Shared[dict[str, StoredJob]] = Shared()
        self._jobs: dict[str, StoredJob] = {}
        self._last_seen: dict[str, int] = {}
        self._there: Shared[bool | None] = Shared()
        self._disposals = Operations()

    def fresh(self, key: str) -> Page | None:
        """Return a page if it need not be made again yet. Never waits."""
        return self._pages.fresh(key)

    # --- all jobs

    def overview(self, key: str) -> Page:
        """Return ``/jobs/overview``: running jobs before ended jobs, the last started first."""

        def row(job: StoredJob) -> dict[str, Any] | None:
            try:
                details = self._details(job)
            except JobNotFoundError:  # deleted this very moment
                return None
            details.pop("vertices", None)
            details.pop("plan", None)
            return {**details, **job.row()}

        def make() -> Page:
            jobs = list(self.find_all().values())
            answers = in_threads(row, jobs, READ_AT_ONCE)
            rows = [one for one in answers if one is not None]
            rows.sort(key=lambda one: (one["end-time"] >= 0, -one["start-time"]))
            return Page.of({"jobs": rows, "storage": self.storage})

        return self._pages.get(key, make)

    def find_all(self) -> dict[str, StoredJob]:
        """Return the jobs of the storage by id."""

        def make() -> dict[str, StoredJob]:
            known = {job.directory: job for job in self._jobs.values()}

            def find(name: str) -> StoredJob | None:
                if (job := known.get(name)) is not None and job.newest() is not None:
                    return job
                listed = open_job(self.storage, name)
                return None if listed is None else StoredJob(listed)

            look = partial(known_lineages, self.storage)
            chains = in_threads(look, jobs_in(self.storage), READ_AT_ONCE)
            jobs = in_threads(find, [at for chain in chains for at in chain], READ_AT_ONCE)
            self._jobs = {job.job_id: job for job in jobs if job is not None}
            for job in self._jobs.values():
                job.superseded = any(job.directory in chain[:-1] for chain in chains)
            return self._jobs

        return self._scans.get("", make)

    def _find(self, jid: str) -> tuple[StoredJob, Execution]:
        job = self._jobs.get(jid)
        if job is None or (execution := job.newest()) is None:
            job = self.find_all().get(jid)
            execution = None if job is None else job.newest()
        if job is None or execution is None:
            raise JobNotFoundError(
                f"Job {jid} not found in {self.storage}; its checkpoints may have been deleted"
            )
        return job, execution

    # --- one job, from its driver if that answers

    def details(self, jid: str) -> Page:
        """Return ``/jobs/:id``."""
        job, _ = self._find(jid)
        return self._live_details(job)

    def _live_details(self, job: StoredJob) -> Page:
        def make() -> Page:
            execution = job.execution()
            page = _from_driver(job, execution)
            # Another driver may have the port by now.
            if page is not None and _start_time(page) == round(execution.start.started_at * 1000):
                self._last_seen[job.job_id] = round(time.time() * 1000)
                return page
            seen = self._last_seen.get(job.job_id)
            reason = "" if execution.end is None else execution.end.reason
            shown = {**job_page(job), "reason": reason}
            return Page.of({**shown, "last-seen": seen} if seen else shown)

        return self._pages.get(f"/jobs/{job.job_id}", make)

    def _details(self, job: StoredJob) -> dict[str, Any]:
        return dict(json.loads(self._live_details(job).body))

    def from_driver(self, jid: str, page: str) -> Page:
        """Return a page of the job's driver; if that is silent, the page stored at its start."""
        job, execution = self._find(jid)

        def make() -> Page:
            if (answer := _from_driver(job, execution, f"/{page}")) is not None:
                # A driver of an older version may lack the page.
                return NOTHING_KNOWN if answer.status == 404 else answer
            stored = job.told(page)
            return Page.of(stored) if stored is not None else NOTHING_KNOWN

        return self._pages.get(f"/jobs/{jid}/{page}", make)

    def ask_driver(self, jid: str, path: str) -> Page:
        """Return a driver's answer of this moment, for pages polled by one browser alone."""
        job, execution = self._find(jid)
        return _answer(Driver(execution, job.name), path)

    def stopping(self, jid: str, trigger_id: str) -> Page:
        """Return the progress of a stop, told by the driver until its end, then by the storage."""
        answer = self.ask_driver(jid, f"/stop/{trigger_id}")
        _, execution = self._find(jid)
        if answer.status != 502 or execution.end is None:
            return answer
        state = execution.end.state.value
        return Page.of({"status": {"id": "COMPLETED"}, "operation": {"state": state}})

    def act(self, jid: str, method: str, path: str, body: bytes) -> Page:
        """Forward a request to change the job, with the job's token. The token goes only to the
        driver whose record is signed with it."""
        job, execution = self._find(jid)
        driver = Driver(execution, job.name)
        try:
            token = driver.token()
        except UserError as error:
            return Page.problem(409, str(error))
        if token is None:
            return Page.problem(
                409,
                "No token of this job lies in this user's home on this machine: its driver has "
                "ended, or runs elsewhere or as another user; use `seamark` there, or start the "
                "dashboard with the driver's SEAMARK_TOKEN or SEAMARK_TOKEN_FILE",
            )
        return _answer(driver, path, method, body, token, ACT_S)

    # --- savepoints

    def dispose(self, jid: str, request: SavepointDisposalRequest) -> Page:
        """Begin to delete one of this job's savepoints."""
        job, _ = self._find(jid)
        known = {one.external_path for one in job.history().history if one.is_savepoint}
        if request.savepoint_path not in known:
            return Page.problem(
                409,
                f"{request.savepoint_path} is no savepoint that job {job.name} has taken; dispose "
                "of others with: seamark savepoint -d PATH",
            )
        work = partial(dispose, request.savepoint_path, storage=self.storage)
        trigger = self._disposals.trigger(KIND, request, partial(beside, work), lambda _: {})
        return Page.of(trigger, 202)

    def disposal(self, trigger_id: str) -> Page:
        """Return the outcome of a disposal."""
        return Page.of(self._disposals.answer(KIND, trigger_id))

    def _with_those_under_way(
        self, job: StoredJob
    ) -> tuple[CheckpointingStatistics, dict[str, Any] | None]:
        """Return the history, and beside it the epoch page; None if no driver answers with one."""
        epoch = self.from_driver(job.job_id, "epoch")
        try:
            if epoch.status == 200:
                known = EpochPage.model_validate_json(epoch.body).model_dump(by_alias=True)
                statistics = job.history(epoch.made_s)
                return with_those_under_way(statistics, known), epoch_beside(statistics, known)
        except ValueError:  # no driver of this version answered
            pass
        return job.history(), None

    # --- one job, from the storage

    def page(self, jid: str, key: str, make: Callable[[StoredJob], Page]) -> Page:
        """Return a page made from the storage."""
        job, _ = self._find(jid)
        return self._pages.get(key, lambda: make(job))

    def savepoints(self, job: StoredJob) -> Page:
        """Return ``/jobs/:id/savepoints``: the savepoints recorded by the job's drivers, newest
        first, in Flink's fields of a checkpoint, with operators. `there` (Seamark's) says whether a
        savepoint still lies at its path; or null."""
        history = self._with_those_under_way(job)[0].history
        known = [one for one in history if one.is_savepoint]
        there = in_threads(self._is_there, known, READ_AT_ONCE)
        shown = [
            {**one.to_json(details=True), "there": is_there}
            for one, is_there in zip(known, there, strict=True)
        ]
        return Page.of({"savepoints": shown})

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

    def lineage(self, job: StoredJob) -> Page:
        """Return ``/jobs/:id/lineage``; a running job's state is its driver's answer."""
        return Page.of(lineage_page(job, JobState(self._details(job)["state"])))

    def checkpoints(
        self,
        job: StoredJob,
        limit: int,
        before: int | None,
        status: CheckpointStatus | None,
        since: int | None = None,
    ) -> Page:
        """Return ``/jobs/:id/checkpoints``, with a part of the history, and of the same moment the
        series from `since` on (None: without it)."""
        statistics, epoch = self._with_those_under_way(job)
        page = checkpoints_page(statistics, limit, before, status, epoch)
        if since is not None:
            ended = [c for c in statistics.history if c.status is not CheckpointStatus.IN_PROGRESS]
            page["series"] = series(ended, since)
        return Page.of(page)

    def checkpoint(
        self, job: StoredJob, checkpoint_id: int, uid: str | None, triggered: int | None = None
    ) -> Page:
        """Return one checkpoint with its operators, or its operator `uid` with the subtasks. The
        attempt is the newest, or the attempt triggered at `triggered` (ms since 1970)."""
        checkpoint = job.history().find(checkpoint_id, triggered)
        if checkpoint is None:
            execution = job.execution()
            if execution.end is None and execution.start.rest_url:  # in progress, perhaps
                return self.ask_driver(job.job_id, f"/checkpoints/details/{checkpoint_id}")
            return Page.problem(404, f"Checkpoint {checkpoint_id} is not in the history")
        if uid is None:
            return Page.of(details_page(checkpoint))
        for task in checkpoint.tasks:
            if task.uid == uid:
                return Page.of(task.to_json(checkpoint_id))
        return Page.problem(404, f"Checkpoint {checkpoint_id} has no operator {uid}")


def _answer(
    driver: Driver,
    path: str,
    method: str = "GET",
    body: bytes = b"",
    token: str | None = None,
    timeout_s: float = ASK_S,
) -> Page:
    """Return a driver's answer, or that it does not answer: 502, as a proxy of the driver's."""
    try:
        answer = driver.ask(path, method, body, token, timeout_s)
        return Page(answer.body, answer.status)
    except DriverSilentError as error:
        url = driver.start.rest_url
        return Page.problem(502, f"The job's driver does not answer: {url}: {error}")


def _from_driver(job: StoredJob, execution: Execution, path: str = "") -> Page | None:
    """Return a page of the job's driver; None if that has ended, or does not answer."""
    if execution.end is not None or not execution.start.rest_url:
        return None
    page = _answer(Driver(execution, job.name), path)
    return None if page.status == 502 else page


def _start_time(page: Page) -> int | None:
    """Return the start in a job's page; None if no driver answered with one."""
    try:
        return JobDetails.model_validate_json(page.body).start_time if page.status == 200 else None
    except ValueError:
        return None
