"""How: the records' file operations through Spark's own checkpoint file manager, on a real
directory (the scheme is Hadoop's `file:`; the calls are the same on every other)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidemark.checkpoint.local_files import LocalFiles
from tidemark.model.errors import PreflightError
from tidemark.runtime.hadoop_files import HadoopFiles, open_files


def test_create_read_list_delete(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}/job")
    data = bytes(range(256)) * 10
    files.create("epochs/3/prepared.1.json", data)
    assert files.read("epochs/3/prepared.1.json") == data
    assert files.exists("epochs/3/prepared.1.json")
    assert files.list("epochs/3") == ["prepared.1.json"]
    files.delete("epochs/3")
    assert not files.exists("epochs/3/prepared.1.json")
    assert files.list("epochs/3") == []


def test_create_is_refused_when_the_name_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, f"file://{tmp_path}")
    files.create("lease/1.json", b"first")
    with pytest.raises(FileExistsError, match=r"lease/1\.json"):
        files.create("lease/1.json", b"second")
    assert files.read("lease/1.json") == b"first"


def test_a_missing_file_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        HadoopFiles(spark, f"file://{tmp_path}").read("job.json")


def test_local_paths_get_local_files_and_odd_schemes_a_clear_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert isinstance(open_files(spark, f"file://{tmp_path}/a%20b"), LocalFiles)
    assert (tmp_path / "a b").is_dir()
    with pytest.raises(PreflightError, match="nosuch://host/dir"):
        open_files(spark, "nosuch://host/dir")
