"""The raw records as Markdown: medians, and the least and the most of the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

Records = list[dict[str, Any]]
WORKS = {
    "a": "Copy",
    "b-row": "A Python function, called for each row",
    "b-batch": "A Python function, called for each batch of rows",
    "c": "A count per key and window of ten seconds",
}


def report(records: Records) -> str:
    """Return all tables."""
    parts = [engines([r for r in records if r["kind"] == "engine"])]
    for work, title in WORKS.items():
        parts.append(throughput(title, [r for r in records if r.get("work") == work]))
    parts.append(nexmark([r for r in records if r["kind"] == "nexmark"]))
    parts.append(recovery([r for r in records if r["kind"] == "recovery"]))
    parts.append(latency([r for r in records if r["kind"] == "latency"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def engines(records: Records) -> str:
    rows = [[f"`{r['engine']}`", r["version"], r["guarantee"], r["settings"]] for r in records]
    return table(["engine", "version", "guarantee", "settings"], rows)


def throughput(title: str, records: Records) -> str:
    done = [r for r in records if r["kind"] == "throughput" and r["round"] >= 0]
    rows = [
        [
            f"`{engine}`",
            spread(of, "rows_per_s"),
            spread(of, "cpu_s_per_million", "{:.1f}"),
            spread(of, "peak_mb"),
            f"{max(r['duplicates'] for r in of):,}",
        ]
        for engine, of in grouped(done, "engine").items()
    ]
    rows += [[f"`{r['engine']}`", r["reason"], "", "", ""] for r in records if "reason" in r]
    names = ["engine", "rows/s", "CPU s per 1,000,000 rows", "peak memory, MB", "duplicates"]
    shown = table(names, rows)
    return shown and f"**{title}**, {sizes(done)} rows in:\n\n{shown}"


def nexmark(records: Records) -> str:
    """Return the table of the queries, and what the engines refuse."""
    done = [r for r in records if "seconds" in r]
    names = list(grouped(done, "engine"))
    rows = []
    for query, of in grouped(done, "work").items():
        by_engine = grouped(of, "engine")
        rates = [spread(by_engine.get(n, []), "rows_per_s") for n in names]
        cpu = [spread(by_engine.get(n, []), "cpu_s_per_million", "{:.1f}") for n in names]
        verdicts = [
            f"{r['engine']}: {r['judge']}" for r in of if r["judge"] not in ("equal", "not asked")
        ]
        rows.append([query, *rates, *cpu, "; ".join(verdicts) or "equal"])
    heads = [f"`{n}` events/s" for n in names] + [f"`{n}` CPU s" for n in names]
    shown = table(["query", *heads, "beside the batch run"], rows)
    lines = [f"- {r['work']}, `{r['engine']}`: {r['reason']}" for r in records if "reason" in r]
    text = shown and f"**Nexmark**, {sizes(done)} events in; CPU per 1,000,000 events:\n\n{shown}"
    return text + ("\n\nRefused:\n\n" + "\n".join(lines) if lines else "")


def recovery(records: Records) -> str:
    rows = [
        [
            f"`{engine}`",
            spread(of, "first_s", "{:.1f}"),
            spread(of, "all_s", "{:.1f}"),
            f"{max(r['duplicates'] for r in of):,}",
            f"{max(r['lost'] for r in of):,}",
        ]
        for engine, of in grouped(records, "engine").items()
    ]
    shown = table(["engine", "first new row, s", "all rows, s", "duplicates", "lost"], rows)
    return shown and f"**After kill -9**, {sizes(records)} rows in:\n\n{shown}"


def latency(records: Records) -> str:
    rows = [
        [f"`{engine}`", spread(of, "p50_ms"), spread(of, "p99_ms")]
        for engine, of in grouped(records, "engine").items()
    ]
    shown = table(["engine", "p50, ms", "p99, ms"], rows)
    rates = ", ".join(sorted({f"{r['rate']:,}" for r in records}))
    return shown and f"**From `produce` to a `read_committed` reader**, {rates} rows/s:\n\n{shown}"


def spread(records: Records, name: str, form: str = "{:,.0f}") -> str:
    """Return a figure's median, and its least and most in brackets if there are several. Rounds
    that warm up have negative numbers."""
    values = [r[name] for r in records if r["round"] >= 0]
    if not values:
        return "not run"
    median = form.format(statistics.median(values))
    if len(values) == 1:
        return median
    return f"{median} ({form.format(min(values))}..{form.format(max(values))})"


def sizes(records: Records) -> str:
    return ", ".join(sorted({f"{r['rows']:,}" for r in records}))


def grouped(records: Records, name: str) -> dict[str, Records]:
    """Return the records by a value, in the order in which it first appears."""
    groups: dict[str, Records] = {}
    for record in records:
        groups.setdefault(record[name], []).append(record)
    return groups


def table(names: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table; nothing without rows."""
    line: Callable[[list[str]], str] = lambda cells: "| " + " | ".join(cells) + " |"  # noqa: E731
    lines = [line([cell.replace("|", r"\|") for cell in row]) for row in rows]
    return "\n".join([line(names), "|" + "---|" * len(names), *lines]) if lines else ""
