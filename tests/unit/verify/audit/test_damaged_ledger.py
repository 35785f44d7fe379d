"""A damaged page of the ledger: the audit goes on without it and names the epochs.

How: a real ledger on a real directory, as a driver writes it; a job in place of the program, whose
sink cannot be read back. What needs Spark is replaced: its settings, and the rows' columns.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from seamark.api.config import CheckpointConfig
from seamark.checkpoint.ledger import LedgerWriter
from seamark.files import HadoopSettings
from seamark.jobs import job_transactions
from seamark.verify.audit import one_job
from seamark.verify.audit.one_job import AuditRequest, audit_job, declared_job
from tests.unit.checkpoint.memory_sink import MemorySink
from tests.unit.checkpoint.test_ledger import a_store, commit


class Sink(MemorySink):
    def load(self, data: bytes) -> Any:
        return SimpleNamespace(handle=data.decode())


@pytest.mark.parametrize(("page", "first"), [(9, 0), (19, 10)])
def test_the_audit_names_the_epochs_that_it_cannot_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, first: int
) -> None:
    monkeypatch.setattr(job_transactions, "hadoop_settings", lambda spark: HadoopSettings())
    monkeypatch.setattr(one_job, "_schema", lambda declared: pa.schema([("id", pa.int64())]))
    (tmp_path / "clicks").mkdir()
    store = a_store(tmp_path / "clicks")
    writer = LedgerWriter(store)
    for epoch in range(34):
        commit(store, writer, epoch)
    declared: Any = SimpleNamespace(
        name="clicks",
        directory="clicks",
        spark_directory="spark",
        checkpoint=CheckpointConfig(interval=1),
        sinks={"out": SimpleNamespace(uid="out", sink=Sink(), schema=(), dead_letters_of="")},
    )
    spark: Any = None

    def notes() -> str:
        found = audit_job(declared_job(spark, declared, f"file://{tmp_path}"), AuditRequest())
        assert found["findings"] == 0
        return " ".join(found["sinks"][0]["notes"])

    assert "cannot be compared" not in notes()
    (tmp_path / f"clicks/ledger/{page}.json").write_bytes(b"{")
    assert f"epochs {first} to {page} cannot be compared" in notes()
    assert f"ledger/{page}.json: the record is not JSON" in notes()
