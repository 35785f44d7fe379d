"""Which programs can take the rows that wait; jobs: `spark/jobs/test_unaligned.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seamark.checkpoint.channel_state import ChannelState, Segment, Stage
from seamark.contracts.spool import SpoolFile
from seamark.run.layout import Layout
from seamark.run.waiting_rows import unfit_rows

LANE = (Segment(SpoolFile("/s", f"7/g1-e7-p0-a9-{'0' * 32}.arrow", 5, 500, 77)),)


def stage(types: tuple[str, ...], *, uids: tuple[str, ...] = ("out",), **how: Any) -> ChannelState:
    columns = ("id", "name") if len(uids) == 1 else ()
    found = ChannelState.of([Stage(uids, columns, (LANE,), types=types, **how)])
    assert ChannelState.from_json(found.to_json()) == found
    return found


def a_plan(layout: Layout, *processing: str) -> Any:
    sinks = {u: SimpleNamespace(process="p" if u in processing else None) for u in layout.uids}
    return SimpleNamespace(layout=layout, declared=SimpleNamespace(sinks=sinks))


ONE = Layout(("out",), ("id", "name"), ("bigint", "string"))
TWO = Layout(("out", "more"), (), ("struct<id:bigint,name:string>", "struct<id:bigint>"))


@pytest.mark.parametrize(
    ("state", "plan", "why"),
    [
        (stage(ONE.types), a_plan(ONE), ""),
        (stage(()), a_plan(ONE), ""),
        (stage(TWO.types, uids=TWO.uids), a_plan(TWO), ""),
        (stage((), uids=TWO.uids), a_plan(TWO), ""),
        (stage(ONE.types), a_plan(TWO), ""),
        (stage(("bigint", "int")), a_plan(ONE), "with the columns struct<id:bigint,name:int>, and"),
        (stage(("struct<id:int>",), uids=TWO.uids), a_plan(TWO), "have struct<id:bigint,name:str"),
        (stage(TWO.types, uids=TWO.uids), a_plan(ONE), "for sink 'more', which the program lacks"),
        (stage(ONE.types, processes=("out",)), a_plan(ONE), "not yet processed by its sm.process"),
        (stage(ONE.types, processes=("out",)), a_plan(ONE, "out"), ""),
        (stage(("int", "int"), processes=("out",)), a_plan(ONE, "out"), "struct<id:int,name:int>"),
        (stage(("int", "int"), processes=()), a_plan(ONE, "out"), ""),
        (stage(("int", "int")), a_plan(ONE, "out"), "struct<id:int,name:int>"),
    ],
)
def test_a_program_takes_rows_of_its_own_sinks_columns(
    state: ChannelState, plan: Any, why: str
) -> None:
    found = unfit_rows(state, plan)
    assert why in found and bool(why) == bool(found)
