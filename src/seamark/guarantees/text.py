"""A `GuaranteeReport` as plain text, for ``print`` and logs; the command line draws its own."""

from __future__ import annotations

from collections.abc import Sequence

from seamark.guarantees.end_to_end import GuaranteeReport


def render_text(report: GuaranteeReport) -> str:
    """Return the report as lines of text without a newline at the end."""
    rows = [("KIND", "UID", "GUARANTEE", "WHAT", "WHY")]
    rows += [(p.kind, p.uid, p.guarantee.value, p.description, p.why) for p in report.parts]
    lines = [*_table(rows), "", f"checkpoint mode: {report.mode.value}", "end to end:"]
    for sink in report.sinks:
        note = f" ({sink.note})" if sink.note else ""
        lowered = f", because of {sink.weakest}" if sink.weakest else ""
        lines.append(f"  into {sink.uid}: {sink.guarantee.value}{note}{lowered}")
    if not report.sinks:
        lines.append("  no sink is declared yet")
    lines.append(f"the job: {report.guarantee.value}")
    if report.weakest:
        lines.append(f"weakest link: {report.weakest}; to raise it, {report.remedy}")
    return "\n".join([*lines, *(f"plan: {line}" for line in report.sharing)])


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
