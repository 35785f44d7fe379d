"""What the nemesis prepares; what it does is tried on real jobs (tests/chaos/test_verify.py)."""

from __future__ import annotations

from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from seamark.verify.nemesis import spark_home


def test_a_spark_of_links_has_a_place_of_its_own_for_what_executors_leave(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark")
    installed = Path(_find_spark_home())
    assert (home / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
    assert any((home / "jars").glob("spark-core_*.jar"))
    (home / "work").mkdir()
    assert (home / "work").resolve().parent == home.resolve()
    assert spark_home(home) == home, "the next driver with executors has the same one"
