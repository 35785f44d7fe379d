"""The programs that a browser may start: those that the dashboard's own user has named."""

from collections.abc import Callable, Sequence
from functools import partial

from seamark.dashboard.shared_pages import Page
from seamark.rest.models import ProgramRunRequest
from seamark.rest.operations import Operations, beside

KIND = "program-run"

Start = Callable[[ProgramRunRequest], str]
"""Starts one of the programs in the background; returns its job's id when the job runs. Raises
SeamarkError with the program's last words if it ends before."""


class Programs:
    """Starts programs by their paths in `allowed`. For any thread."""

    def __init__(self, allowed: Sequence[str], start: Start) -> None:
        self.allowed = tuple(allowed)
        self._start = start
        self._runs = Operations()

    def page(self) -> Page:
        """Return ``/programs``."""
        return Page.of({"programs": self.allowed})

    def run(self, asked: ProgramRunRequest) -> Page:
        """Begin to start a program; its driver outlives the dashboard."""
        if asked.program not in self.allowed:
            return Page.problem(
                403,
                f"this dashboard may not run {asked.program}; its user names each program that a "
                "browser may start: seamark dashboard --allow-run APP.PY",
            )
        work = partial(self._start, asked)
        trigger = self._runs.trigger(KIND, asked, partial(beside, work), lambda jid: {"jobid": jid})
        return Page.of(trigger, 202)

    def running(self, trigger_id: str) -> Page:
        """Return the outcome of a start."""
        return Page.of(self._runs.answer(KIND, trigger_id))
