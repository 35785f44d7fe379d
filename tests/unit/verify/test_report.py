"""The report and the verdict: everything found is in them, and nothing from outside."""

from __future__ import annotations

import re

from seamark.verify.epochs import Epoch
from seamark.verify.history import Anomaly, Kind
from seamark.verify.outcome import Event, Outcome
from seamark.verify.report import page


def outcome() -> Outcome:
    made = Outcome("windows", 42, "seamark verify --seed 42", 1000.0, 1060.0, sinks=["<topic>"])
    made.counts.update({"rows": 12_345, "driver starts": 3})
    made.events = [
        Event("fault", "driver, then at sealed:2", 1010, 1011, "killed"),
        Event("driver", "driver 2 ended with 1", 1012, 1012),
        Event("recovery", "after driver", 1011, 1018),
    ]
    made.epochs = [Epoch(n, 1000 + n, 1000.2 + n, 1000.3 + n, {}) for n in range(40)]
    return made


def test_a_good_run() -> None:
    good = outcome()
    assert good.verdict() == (
        "GOOD: no anomaly in 12,345 rows, 40 epochs, 1 faults, 3 driver starts, seed 42"
    )
    html = page(good)
    assert "GOOD: no anomaly" in html and "seamark verify --seed 42" in html
    assert html.count('class="epoch"') == 40
    assert "7.0 s" in html, "the recovery after the fault"


def test_a_bad_run_names_its_rows() -> None:
    bad = outcome()
    bad.anomalies = {"rows": [Anomaly(Kind.LOST, "<topic>", "final", 1050, (77, 78), "why & how")]}
    bad.failures = ["driver 9: <it> does not come back"]
    assert bad.verdict().startswith("BAD: 2 lost, 1 failures of the job in 12,345 rows")
    html = page(bad)
    assert "77, 78" in html and "why &amp; how" in html
    assert "&lt;it&gt; does not come back" in html


def test_the_page_needs_nothing_from_outside() -> None:
    html = page(outcome())
    assert not re.search(r"https?:|src=|@import|url\(", html)
    assert "<topic>" not in html


def test_an_hour_is_told_in_less_than_a_megabyte() -> None:
    hour = outcome()
    hour.ended_s = hour.begun_s + 3600
    hour.epochs = [
        Epoch(n, 1000 + n * 0.5, 1000.3 + n * 0.5, 1000.4 + n * 0.5, {}) for n in range(7200)
    ]
    died = "killed, then died at decided, then died at recovery-committed:1"
    hour.events = [
        Event(kind, "driver, then at recovery-committed:1", at_s, at_s + 9, died)
        for at_s in range(1000, 4600, 10)
        for kind in ("fault", "recovery")
    ]
    assert len(page(hour)) < 400_000
    assert "epochs 0 to 7199: at most 0.40 s to a commit" in page(hour)
    hour.epochs = [e for e in hour.epochs if e.number % 10]
    assert page(hour).count('class="epoch"') == 720, "a gap that can be seen parts them"


def test_the_verdict_tells_when_the_first_was_found() -> None:
    bad = outcome()
    bad.failures, bad.first_s = ["driver 9 does not come back"], 1042.4
    assert bad.verdict().startswith("BAD: 1 failures of the job (the first after 42 s) in 12,345")
