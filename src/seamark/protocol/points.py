"""The numbered points of the protocol: a driver may die between any two of them.

`SEAMARK_FAILPOINT` takes these names; the model checker crashes and pauses drivers at each.
"""

from enum import Enum


class Point(Enum):
    """In the order of an epoch, and then of a recovery."""

    # An epoch, in the driver (1 is before anything; tasks have points of their own).
    EPOCH_STARTED = "epoch-started"
    PRE_COMMITTED = "pre-committed"
    FENCE_CHECKED = "fence-checked"
    PREPARED = "prepared"
    DECIDED = "decided"
    SEALED = "sealed"
    SINK_COMMITTED = "sink-committed"
    COMMITTED = "committed"
    # A take-over.
    GENERATION_CLAIMED = "generation-claimed"
    PREDECESSOR_SEALED = "predecessor-sealed"
    PREDECESSORS_FENCED = "predecessors-fenced"
    DECISION_VOIDED = "decision-voided"
    RECOVERY_COMMITTED = "recovery-committed"
    SINK_ABORTED = "sink-aborted"
    PLAN_VOIDED = "plan-voided"
    RECOVERED = "recovered"
    # A restore under the name of a job.
    SUPERSEDED = "superseded"
