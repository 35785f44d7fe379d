"""A damaged page of the ledger: the job starts and goes on, and an audit names the epochs that
cannot be compared. What it can compare it still judges; no row of those epochs is called foreign.

How: a real job into SQLite and Parquet, an epoch a file, run twice; a page of its ledger is damaged
in between. In the end a file of another epoch is deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.checkpoint.ledger import PAGE_EPOCHS
from seamark.job import Job
from seamark.verify.audit.one_job import AuditRequest, audit_job
from tests.spark.jobs.test_failures import bounded_job, count, files

PAGE = PAGE_EPOCHS - 1


def job(tmp_path: Path) -> Job:
    declared, clicks = bounded_job(tmp_path)
    declared.sink(clicks, sm.SQLiteSink(str(tmp_path / "out.db"), table="t"), "table")
    declared.sink(clicks, sm.FileSink(str(tmp_path / "parquet"), format="parquet"), "files")
    return declared


def test_the_audit_names_the_epochs_of_a_damaged_page(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files(tmp_path, count=PAGE_EPOCHS + 3)
    job(tmp_path).run()
    for late in ("20", "21"):
        (tmp_path / f"in/{late}.json").write_text(f'{{"id": 9{late}}}')
    page = tmp_path / f"store/job/ledger/{PAGE}.json"
    page.write_bytes(page.read_bytes()[:-40])
    for epoch in range(PAGE):  # as if their records were deleted long since
        for name in ("prepared.1.json", "committed.json"):
            (tmp_path / f"store/job/epochs/{epoch}/{name}").unlink(missing_ok=True)
    job(tmp_path).run()
    assert f"ledger/{PAGE}.json" in caplog.text
    rows = 5 * (PAGE_EPOCHS + 3) + 2
    assert count(tmp_path) == (rows, rows)
    audit = audited(spark, tmp_path)
    assert audit["findings"] == 0, audit
    for sink in audit["sinks"]:
        notes = " ".join(sink["notes"])
        assert f"epochs 0 to {PAGE - 1} cannot be compared" in notes
        assert f"ledger/{PAGE}.json" in notes
    lost = [f for f in tmp_path.glob("parquet/part-*") if int(f.name.split("-")[1]) == PAGE + 2]
    lost[0].unlink()
    of_files = audited(spark, tmp_path)["sinks"][1]
    assert [finding["epoch"] for finding in of_files["findings"]] == [PAGE + 2]


def audited(spark: SparkSession, tmp_path: Path) -> dict[str, Any]:
    declared = job(tmp_path).declaration
    return audit_job(spark, declared, f"file://{tmp_path}/store", AuditRequest())
