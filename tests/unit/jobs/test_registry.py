"""Jobs found by their directory, their own name, or their id, in a storage on the local disk."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seamark.checkpoint.executions import Execution, ExecutionEnd, ExecutionStart, ExecutionStore
from seamark.checkpoint.store import CheckpointStore
from seamark.files.deadline import open_local
from seamark.jobs.checkpoint_history import open_storage, open_store
from seamark.jobs.listing import directory_of, newest_execution
from seamark.jobs.registry import driver_state, find_job, list_jobs
from seamark.model.errors import UserError
from seamark.model.job_state import JobState
from seamark.protocol.verdicts import DriverState
from seamark.run import job_facts


def add(
    storage: Path, directory: str, name: str, *, executed_as: str = "", ended: bool = True
) -> str:
    """Make a job; return its id."""
    files = open_local(storage / directory)
    spark = files if directory != name else open_local(storage / directory / "spark")
    identity = CheckpointStore(files, spark).open(name)
    start = ExecutionStart(identity.job_id, executed_as or name, "here", 1, 100.0, "")
    number = ExecutionStore(files).begin(start)
    if ended:
        ExecutionStore(files).end(number, ExecutionEnd(JobState.FINISHED, 1))
    return identity.job_id


def test_a_query_is_found_by_its_name_and_by_its_directory(tmp_path: Path) -> None:
    storage = f"file://{tmp_path}"
    id_ = add(tmp_path, "location", "counted")
    add(tmp_path, "orders", "orders")
    assert [job.name for job in list_jobs(storage)] == ["counted", "orders"]
    for asked in ("counted", "location", id_, id_[:8]):
        found = find_job(storage, asked)
        assert (found.name, found.directory, found.start.job_id) == ("counted", "location", id_)
    assert directory_of(storage, "counted") == "location"
    assert find_job(storage, "orders").directory == "orders"


def test_a_name_of_two_directories_is_refused(tmp_path: Path) -> None:
    storage = f"file://{tmp_path}"
    for directory in ("first", "second"):
        add(tmp_path, directory, "counted")
    with pytest.raises(UserError, match=r"2 jobs.*'counted'.*first, second"):
        find_job(storage, "counted")
    assert find_job(storage, "second").name == "counted"


def test_the_record_of_another_job_does_not_lend_its_name(tmp_path: Path) -> None:
    """A record copied from another directory: commands for that job must not be sent here."""
    add(tmp_path, "location", "counted", executed_as="payments")
    storage = f"file://{tmp_path}"
    assert find_job(storage, "location").name == "counted"
    with pytest.raises(UserError, match="no job 'payments'"):
        find_job(storage, "payments")


def test_a_superseded_lineage_is_found_by_its_id_and_its_directory(tmp_path: Path) -> None:
    old = add(tmp_path, "orders", "orders")
    new = add(tmp_path, "orders/lineages/2", "orders")
    files = open_local(tmp_path / "orders")
    assert CheckpointStore(files, files).end_lineage(1, {"lineage": 2})
    storage = f"file://{tmp_path}"
    assert [(one.directory, one.state) for one in list_jobs(storage)] == [
        ("orders", JobState.SUPERSEDED), ("orders/lineages/2", JobState.FINISHED),
    ]  # fmt: skip
    for asked in ("orders", "orders/lineages/2", new, new[:8]):
        assert find_job(storage, asked).start.job_id == new
    found = find_job(storage, old[:8])
    assert (found.name, found.directory, found.state) == ("orders", "orders", JobState.SUPERSEDED)
    assert directory_of(storage, "orders") == directory_of(storage, new) == "orders/lineages/2"


def test_job_json_says_where_sparks_files_are(tmp_path: Path) -> None:
    add(tmp_path, "location", "counted")
    add(tmp_path, "orders", "orders")
    for directory, spark in (("location", ""), ("orders", "/spark"), ("new", "/spark")):
        store = open_store(open_storage, f"file://{tmp_path}/{directory}")
        assert store.spark_files.uri == f"{store.uri}{spark}"


def test_of_a_driver_with_a_damaged_lease_nothing_is_known(tmp_path: Path) -> None:
    add(tmp_path, "orders", "orders")
    store = open_store(open_storage, f"file://{tmp_path}/orders")
    assert driver_state(f"file://{tmp_path}", "orders", store) is DriverState.IS_GONE
    assert store.claim_generation(1)
    (tmp_path / "orders/lease/1.json").write_bytes(b"{")
    assert driver_state(f"file://{tmp_path}", "orders", store) is DriverState.UNKNOWN


def test_a_start_looks_at_the_other_jobs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store each look costs round trips. One that fails hides no other job."""
    for name in ("damaged", "first", "own", "second"):
        add(tmp_path, name, name, ended=False)
    add(tmp_path, "ended", "ended")
    both = threading.Barrier(2)

    def looked_at(storage: str, job: str) -> Execution | None:
        if job == "damaged":
            raise OSError("away")
        if job in ("first", "second"):
            both.wait(60)
        return newest_execution(storage, job)

    monkeypatch.setattr(job_facts, "newest_execution", looked_at)
    found = job_facts.other_jobs(f"file://{tmp_path}", "own")
    assert [job.name for job in found] == ["first", "second"]
