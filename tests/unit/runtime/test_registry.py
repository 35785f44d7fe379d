"""Jobs found by their directory, their own name, or their id, in a storage on the local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint.executions import ExecutionEnd, ExecutionStart, ExecutionStore
from seamark.checkpoint.files_deadline import open_local
from seamark.checkpoint.store import CheckpointStore
from seamark.model.errors import UserError
from seamark.model.job_state import JobState
from seamark.runtime.checkpoint_history import open_storage, open_store
from seamark.runtime.registry import directory_of, find_job, list_jobs


def add(storage: Path, directory: str, name: str, *, executed_as: str = "") -> str:
    """Make an ended job; return its id."""
    files = open_local(storage / directory)
    spark = files if directory != name else open_local(storage / directory / "spark")
    identity = CheckpointStore(files, spark).open(name)
    start = ExecutionStart(identity.job_id, executed_as or name, "here", 1, 100.0, "")
    ExecutionStore(files).end(
        ExecutionStore(files).begin(start), ExecutionEnd(JobState.FINISHED, 1)
    )
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


def test_job_json_says_where_sparks_files_are(tmp_path: Path) -> None:
    add(tmp_path, "location", "counted")
    add(tmp_path, "orders", "orders")
    for directory, spark in (("location", ""), ("orders", "/spark"), ("new", "/spark")):
        store = open_store(open_storage, f"file://{tmp_path}/{directory}")
        assert store.spark_files.uri == f"{store.uri}{spark}"
