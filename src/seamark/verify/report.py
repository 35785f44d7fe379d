"""The report of a verification: one HTML page without any outside resource."""

import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from seamark.verify.epochs import Epoch
from seamark.verify.history import Anomaly
from seamark.verify.outcome import Event, Outcome

_LEFT = 130
_LANE = 26
_WIDTH = 1080
_PIXELS_A_SECOND = 2.0
"""At least; a long run gets a wider picture, to be scrolled."""
_ROWS_SHOWN, _NUMBERS_SHOWN = 500, 50


def page(outcome: Outcome) -> str:
    """Return the report as HTML."""
    tone = "good" if outcome.good else "bad"
    parts = [
        f"<h1>seamark verify: {escape(outcome.workload)}</h1>",
        f'<p class="dim">{_clock(outcome.begun_s, "%Y-%m-%d %H:%M:%S")}, '
        f"{outcome.ended_s - outcome.begun_s:.0f} s; sinks: {escape(', '.join(outcome.sinks))}</p>",
        f'<p class="verdict {tone}">{escape(outcome.verdict())}</p>',
        f"<p>To repeat this plan of faults: <code>{escape(outcome.command)}</code></p>",
        _figures(outcome),
        "<h2>Time-line</h2>",
        _time_line(outcome),
        "<h2>Anomalies</h2>",
        _anomalies(outcome),
        _failures(outcome),
        "<h2>Faults</h2>",
        _faults(outcome),
        _left_out(outcome),
    ]
    frame = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    return frame.substitute(title=escape(outcome.workload), body="".join(parts))


def _figures(outcome: Outcome) -> str:
    recoveries = sorted(e.ended_s - e.begun_s for e in outcome.events if e.kind == "recovery")
    waits = sorted(e.committed_s - e.decided_s for e in outcome.epochs)
    figures = {
        "rows": f"{outcome.counts['rows']:,}",
        "epochs": f"{len(outcome.epochs):,}",
        "reads": f"{outcome.counts['reads']:,}",
        "driver starts": f"{outcome.counts['driver starts']:,}",
        "deaths at failpoints": f"{outcome.counts['deaths at failpoints']:,}",
        "recovery, median": f"{_middle(recoveries):.1f} s",
        "recovery, longest": f"{max(recoveries, default=0):.1f} s",
        "decision to commit, median": f"{_middle(waits) * 1000:.0f} ms",
    }
    cells = (
        f"<div><b>{value}</b><span class=dim>{name}</span></div>" for name, value in figures.items()
    )
    return f'<h2>Figures</h2><div class="figures">{"".join(cells)}</div>'


def _time_line(outcome: Outcome) -> str:
    """Draw lanes: one for each kind of fault, then recoveries, epochs and anomalies."""
    span_s = max(outcome.ended_s - outcome.begun_s, 1)
    width = max(_WIDTH, span_s * _PIXELS_A_SECOND)

    def bar(lane: int, begun_s: float, ended_s: float, kind: str, title: str) -> str:
        x = _LEFT + (begun_s - outcome.begun_s) / span_s * width
        long = max((ended_s - begun_s) / span_s * width, 2)
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{lane * _LANE + 6}" width="{long:.1f}" '
            f'height="{_LANE - 10}" rx="1.5"><title>{escape(title)}</title></rect>'
        )

    lanes = [*dict.fromkeys(_lane(event) for event in outcome.events if event.kind == "fault")]
    lanes += ["recovery", "epochs", "anomalies"]
    marks = []
    for event in outcome.events:
        title = f"{_clock(event.begun_s)} {event.name}: {event.detail}"
        marks.append(
            bar(lanes.index(_lane(event)), event.begun_s, event.ended_s, event.kind, title)
        )
    at = lanes.index("epochs")
    for run in _runs(outcome.epochs, span_s / width):
        begun_s = max(run[0].planned_s, outcome.begun_s)
        marks.append(bar(at, begun_s, run[-1].committed_s, "epoch", _title(run)))
    for anomaly in outcome.found[:2000]:
        marks.append(bar(len(lanes) - 1, anomaly.at_s, anomaly.at_s, "anomaly", str(anomaly)))
    height = len(lanes) * _LANE
    names = (
        f'<line x1="0" x2="{_LEFT + width:.0f}" y1="{(i + 1) * _LANE}" y2="{(i + 1) * _LANE}"/>'
        f'<text x="8" y="{i * _LANE + 17}">{escape(name)}</text>'
        for i, name in enumerate(lanes)
    )
    ticks = "".join(_ticks(span_s, width, height))
    return (
        f'<div class="scroll"><svg width="{_LEFT + width + 20:.0f}" height="{height + 24}" '
        f'role="img" aria-label="faults, recoveries and epochs over time">{"".join(names)}{ticks}'
        f"{''.join(marks)}</svg></div>"
    )


def _runs(epochs: Sequence[Epoch], pixel_s: float) -> list[list[Epoch]]:
    """Return the epochs by bar: those that no pixel lies between share one, so that the picture of
    an hour has hundreds of bars."""
    runs: list[list[Epoch]] = []
    for epoch in epochs:
        last = runs[-1] if runs else None
        end_s = max(last[-1].committed_s, last[0].planned_s + 2 * pixel_s) if last else 0.0
        if last and epoch.planned_s < end_s + pixel_s:
            last.append(epoch)
        else:
            runs.append([epoch])
    return runs


def _title(run: Sequence[Epoch]) -> str:
    longest = max(epoch.committed_s - epoch.planned_s for epoch in run)
    if len(run) == 1:
        return f"epoch {run[0].number}: {longest:.2f} s to its commit"
    return f"epochs {run[0].number} to {run[-1].number}: at most {longest:.2f} s to a commit"


def _lane(event: Event) -> str:
    if event.kind == "fault":
        return event.name.partition(":")[0].partition(" ")[0].partition(",")[0]
    return "recovery"


def _ticks(span_s: float, width: float, height: int) -> Iterable[str]:
    step_s = next(s for s in (10, 30, 60, 300, 600, 3600, 36_000) if span_s / s <= width / 80)
    for at_s in range(0, int(span_s) + 1, step_s):
        x = _LEFT + at_s / span_s * width
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>'
        yield f'<text x="{x + 3:.1f}" y="{height + 16}">{at_s // 60}:{at_s % 60:02}</text>'


def _anomalies(outcome: Outcome) -> str:
    counts = _table(
        ["kind", "rows"], [[kind, f"{count:,}"] for kind, count in outcome.rows_by_kind.items()]
    )
    if not outcome.found:
        return f'<p class="good">None.</p>{counts}'
    rows = [
        [
            _clock(anomaly.at_s), anomaly.kind.value, f"{anomaly.where} ({stream})",
            anomaly.reader, f"{len(anomaly.rows):,}", anomaly.detail, _rows(anomaly),
        ]
        for stream, of_stream in outcome.anomalies.items()
        for anomaly in of_stream[:_ROWS_SHOWN]
    ]  # fmt: skip
    return counts + _table(["time", "kind", "sink", "reader", "rows", "what", "numbers"], rows)


def _rows(anomaly: Anomaly) -> str:
    shown = ", ".join(map(str, anomaly.rows[:_NUMBERS_SHOWN]))
    return shown + (", …" if len(anomaly.rows) > _NUMBERS_SHOWN else "")


def _failures(outcome: Outcome) -> str:
    if not outcome.failures:
        return ""
    texts = "".join(f"<pre>{escape(text)}</pre>" for text in outcome.failures)
    return f"<h2>Failures of the job</h2>{texts}"


def _faults(outcome: Outcome) -> str:
    rows, number = [], 0
    for at, event in enumerate(outcome.events):
        if event.kind == "recovery":
            continue
        number += event.kind == "fault"
        back = next((e for e in outcome.events[at + 1 :] if e.kind != "driver"), None)
        recovery = ""
        if event.kind == "fault" and back is not None and back.kind == "recovery":
            recovery = f"{back.ended_s - event.ended_s:.1f} s"
        rows.append(
            [
                str(number) if event.kind == "fault" else "", _clock(event.begun_s), event.name,
                event.detail, f"{event.ended_s - event.begun_s:.1f} s", recovery,
            ]
        )  # fmt: skip
    return _table(["#", "time", "fault", "what came of it", "took", "then an epoch after"], rows)


def _left_out(outcome: Outcome) -> str:
    left = {**outcome.left_out, **outcome.not_read}
    if not left:
        return ""
    return "<h2>Left out</h2>" + _table(["what", "why"], [[k, v] for k, v in left.items()])


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _clock(at_s: float, form: str = "%H:%M:%S") -> str:
    return time.strftime(form, time.localtime(at_s))


def _middle(values: Sequence[float]) -> float:
    return values[len(values) // 2] if values else 0.0
