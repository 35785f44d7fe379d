"""Where a Python worker finds PySpark."""

from __future__ import annotations

from pathlib import Path

import pyspark

from seamark.spark.worker_daemon import installed_first

INSTALLED = Path(pyspark.__file__).parent
ZIPS = [str(INSTALLED / "python/lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def test_an_installed_pyspark_comes_before_its_own_zip_file() -> None:
    path = [*ZIPS, "/app", str(INSTALLED.parent)]
    assert installed_first(path) == ["/app", str(INSTALLED.parent), *ZIPS]


def test_the_zip_file_of_another_spark_stays_first() -> None:
    path = ["/opt/spark/python/lib/pyspark.zip", "/app", str(INSTALLED.parent)]
    assert installed_first(path) == path


def test_without_an_installed_pyspark_nothing_moves(tmp_path: Path) -> None:
    path = [*ZIPS, str(tmp_path)]
    assert installed_first(path) == path
