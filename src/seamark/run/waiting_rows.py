"""Whether a program can take the rows that wait in the channel state of an earlier one.

`StartChecks` asks before a run, and a restore's plan before it writes anything.
"""

from seamark.checkpoint.channel_state import ChannelState, Stage
from seamark.run.job_plan import JobPlan
from seamark.run.layout import Layout

_AFTER = "after a stop with a savepoint (stop -p), which leaves no channel state"


def unfit_rows(state: ChannelState, plan: JobPlan) -> str:
    """Return what keeps the program from taking the rows, with the remedy, as the end of a sentence
    that has named them; "" if it takes them all."""
    sinks, now = plan.declared.sinks, _columns(plan.layout)
    processing = {uid for uid, sink in sinks.items() if sink.process is not None}
    for stage in state.stages:
        waiting = processing if stage.processes is None else set(stage.processes)
        for uid, columns in _columns(stage).items():
            if uid not in sinks:
                return (
                    f"some of them for sink {uid!r}, which the program lacks. Declare the sink "
                    f"again, and take it away {_AFTER}"
                )
            if uid in waiting - processing:
                return (
                    f"some of them for sink {uid!r} and not yet processed by its sm.process, which "
                    "the program lacks. Give the sink the result of sm.process again, and change "
                    f"that {_AFTER}"
                )
            if columns and columns != now[uid] and (uid in waiting) == (uid in processing):
                return (
                    f"some of them for sink {uid!r} with the columns {columns}, and the program's "
                    f"have {now[uid]}. Make its columns as they were, and change them {_AFTER}"
                )
    return ""


def _columns(of: Layout | Stage) -> dict[str, str]:
    """Return each sink's columns as Spark's text of a struct, "" in older records."""
    parts = ",".join(map(":".join, zip(of.columns, of.types, strict=False)))
    texts = (parts and f"struct<{parts}>",) if len(of.uids) == 1 else of.types
    return dict.fromkeys(of.uids, "") | dict(zip(of.uids, texts, strict=False))
