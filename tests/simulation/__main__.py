"""``make simulate SEEDS=…``: runs schedules by their seeds; on a failure shrinks it and prints it.

SEEDS is a number (that many, from 0) or a range ``A..B`` (without B); one seed alone is ``A..A+1``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from .data_source.run import schedule_of as schedule_of_a_query
from .run import schedule_of
from .search import Tally, explain, search_in_processes, simulating


def seeds_of(text: str) -> range:
    first, dots, end = text.partition("..")
    return range(int(first), int(end)) if dots else range(int(text))


def said(tally: Tally, took_s: float) -> str:
    ends = ", ".join(f"{count} {name}" for name, count in tally.ends.most_common())
    return (
        f"{tally.runs} schedules in {took_s:.0f} s ({tally.runs / took_s:.1f} a second), "
        f"{tally.steps} steps, {tally.drivers} drivers; drivers that stopped: {ends or 'none'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", default="5000", help="a number, or A..B")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time")
    parser.add_argument("--data-source", action="store_true", help='format("seamark") instead')
    given = parser.parse_args()
    of = schedule_of_a_query if given.data_source else schedule_of
    begun = time.monotonic()
    told_at, tally = begun, Tally()
    for tally in search_in_processes(of, seeds_of(given.seeds), given.jobs, given.minutes * 60):
        now = time.monotonic()
        if now - told_at > 60:
            told_at = now
            print(f"… {said(tally, now - begun)}", flush=True)
    print(said(tally, time.monotonic() - begun))
    if tally.failed is None:
        print("no promise was broken")
        return 0
    print(f"seed {tally.failed} fails: {tally.violation}\n\nlooking for the shortest schedule …")
    with simulating():
        print(explain(of(tally.failed)))
    more = " ARGS=--data-source" if given.data_source else ""
    print(f"\nrepeat it: make simulate SEEDS={tally.failed}..{tally.failed + 1}{more}")
    return 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
