"""A job's state: Flink's ``JobStatus``, and three more that only an outsider sees."""

from enum import Enum


class JobState(Enum):
    """The state of one execution of a job: one `Job.run`."""

    INITIALIZING = "INITIALIZING"
    """The job settles older drivers' epochs; no row is read yet."""
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    """The restart strategy waits after a failure."""
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    """The sources ended, or the job was stopped; everything is committed."""
    CANCELED = "CANCELED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    """A restore has begun the job's next lineage: this one never runs again."""
    UNREACHABLE = "UNREACHABLE"
    """Its driver has recorded no end, and does not answer: it was killed, or the network is in
    between. The job's next start settles everything it left."""
    UNOBSERVED = "UNOBSERVED"
    """A query of ``format("seamark")``: Spark runs it, and tells nobody when it ends."""

    @property
    def is_terminal(self) -> bool:
        """Whether the execution has recorded its end, or can never go on."""
        return self in (
            JobState.FINISHED,
            JobState.CANCELED,
            JobState.FAILED,
            JobState.SUPERSEDED,
        )


OUTSIDE = (JobState.SUPERSEDED, JobState.UNREACHABLE, JobState.UNOBSERVED)
"""The states that no driver has."""
