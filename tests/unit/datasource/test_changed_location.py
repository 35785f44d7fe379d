"""A query of ``format("seamark")`` is given another location, and dies before Spark's commit log
has the batch decided there: under any location each row is in the sink once.

How: the query's workers and Spark's checkpoint are played on real files; the sink is SQLite.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seamark.model.errors import CheckpointError
from tests.unit.datasource.played import IDS, Query
from tests.unit.datasource.test_deleted import in_sqlite


class Checkpoint:
    """Spark's checkpoint, and the runs of its query, each in a Spark of its own."""

    def __init__(self, at: Path, name: str = "checkpoint") -> None:
        self.at, self.files = at, at / name
        if not self.files.exists():
            for directory in ("offsets", "commits"):
                (self.files / directory).mkdir(parents=True)
            (self.files / "metadata").write_text('{"id": "q"}')

    def query(self, location: str = "", **more: str) -> Query:
        options = {"sink": "sqlite", "path": f"{self.at}/t.db", "table": "t", **more}
        if location:
            options["location"] = f"{self.at}/{location}"
        return Query(checkpointlocation=str(self.files), **options)

    def run(self, batch: int, location: str = "", *, dies: bool = False, **more: str) -> None:
        """Run a batch, of one row; `dies`: before Spark's commit log has it."""
        (self.files / f"offsets/{batch}").write_text(str(batch))
        query = self.query(location, **more)
        try:
            query.run(batch, batch)
        finally:
            query.end_spark()
        if not dies:
            (self.files / f"commits/{batch}").touch()


@pytest.mark.parametrize("old", ["", "old"], ids=["default", "given"])
@pytest.mark.parametrize("adopt", [{}, {"adopt": "true"}], ids=["", "adopt"])
def test_the_old_location_again(tmp_path: Path, old: str, adopt: dict[str, str]) -> None:
    spark = Checkpoint(tmp_path)
    spark.run(0, old)
    spark.run(1, "new", dies=True, adopt="true")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match=r"batch 1.*decided in the location .*/new"):
        spark.run(1, old, **adopt)
    assert sorted(tmp_path.rglob("*")) == before, "a mistaken start fences nobody"
    spark.run(1, "new", adopt="true")
    spark.run(2, "new", adopt="true")
    assert in_sqlite(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("first", ["", "old"], ids=["default", "given"])
def test_another_location_after_the_first_batch(tmp_path: Path, first: str) -> None:
    """Nothing was ever decided there, as in a new query's."""
    spark = Checkpoint(tmp_path)
    spark.run(0, first, dies=True)
    with pytest.raises(CheckpointError, match=r"batch 0.*decided in the location"):
        spark.run(0, "new")
    spark.run(0, first)
    assert in_sqlite(tmp_path) == [0]


def test_back_from_a_location_in_which_nothing_was_decided(tmp_path: Path) -> None:
    spark = Checkpoint(tmp_path)
    spark.run(0)
    (spark.files / "offsets/1").touch()
    spark.query("new", adopt="true").plan(IDS)
    spark.run(1)
    spark.run(2, "new", dies=True, adopt="true")
    with pytest.raises(CheckpointError, match=r"batch 2.*decided in the location"):
        spark.run(2)
    spark.run(2, "new", adopt="true")
    assert in_sqlite(tmp_path) == [0, 1, 2]


def test_a_location_that_was_deleted_binds_nobody(tmp_path: Path) -> None:
    spark = Checkpoint(tmp_path)
    spark.run(0)
    spark.run(1, "new", dies=True, adopt="true", table="another")
    shutil.rmtree(tmp_path / "new")
    spark.run(1)
    assert in_sqlite(tmp_path) == [0, 1]


@pytest.mark.parametrize("location", ["", "here"], ids=["default", "given"])
def test_moved(tmp_path: Path, location: str) -> None:
    spark = Checkpoint(tmp_path)
    spark.run(0, location, dies=True)
    shutil.move(tmp_path / "checkpoint", tmp_path / "there")
    if location:
        shutil.move(tmp_path / location, tmp_path / "moved")
    Checkpoint(tmp_path, "there").run(0, location and "moved")
    assert in_sqlite(tmp_path) == [0]


@pytest.mark.parametrize("location", ["", "here"], ids=["default", "given"])
def test_a_copy_into_another_table(tmp_path: Path, location: str) -> None:
    """The query goes on by itself, and its copy from where it was made."""
    spark = Checkpoint(tmp_path)
    spark.run(0, location)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    if location:
        shutil.copytree(tmp_path / location, tmp_path / "copied")
    for batch in (1, 2):
        spark.run(batch, location)
    copy = Checkpoint(tmp_path, "copy")
    copy.run(1, location and "copied", path=f"{tmp_path}/other.db")
    assert in_sqlite(tmp_path) == [0, 1, 2]


def test_a_copied_location_and_its_original(tmp_path: Path) -> None:
    spark = Checkpoint(tmp_path)
    spark.run(0, "here")
    shutil.copytree(tmp_path / "here", tmp_path / "copied")
    spark.run(1, "copied", dies=True)
    with pytest.raises(CheckpointError, match=r"decided in the location .*/copied"):
        spark.run(1, "here")
    spark.run(1, "copied")
    assert in_sqlite(tmp_path) == [0, 1]
