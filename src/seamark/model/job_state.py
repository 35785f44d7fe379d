"""What a job is doing: Flink's ``JobStatus``, with one state that only an outsider sees."""

from __future__ import annotations

from enum import Enum


class JobState(Enum):
    """The state of one execution of a job: of one `Job.run`."""

    INITIALIZING = "INITIALIZING"
    """Older drivers' epochs are being settled; no row is read yet."""
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    """A failure is being waited out, by the restart strategy."""
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    """The sources ended, or the job was stopped; everything is committed."""
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    UNREACHABLE = "UNREACHABLE"
    """Its driver has not said that it ended, and does not answer: it was killed, or the network is
    in between. What it left is settled by the job's next start."""

    @property
    def is_terminal(self) -> bool:
        """Whether the execution has ended, and said so."""
        return self in (JobState.FINISHED, JobState.CANCELED, JobState.FAILED)
