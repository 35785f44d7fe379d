"""The jar of our compiled Java files: kept, mended, and had even where none can be kept.

How: with a cache directory of the test's own, in the real session's JVM.
"""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seamark.spark.java.compiled import classes_jar, loaded_class


def test_the_jar_is_kept_and_mended(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = classes_jar(spark)
    assert jar.parent == tmp_path / "seamark" / "classes"
    made = jar.stat().st_ino
    assert classes_jar(spark) == jar and jar.stat().st_ino == made, "it was compiled again"

    jar.write_bytes(jar.read_bytes()[:-100])  # as a full disk leaves it
    assert classes_jar(spark) == jar
    with zipfile.ZipFile(jar) as archive:
        assert "seamark/StateRows$Export.class" in archive.namelist()
    assert list(jar.parent.iterdir()) == [jar]

    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    elsewhere = classes_jar(spark)
    assert elsewhere.read_bytes() and tmp_path not in elsewhere.parents


def test_a_class_for_the_driver_is_compiled_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Past its cache, for the tests behind this one: py4j knows a class by its name, and would call
    # the methods of one loader's on objects of another's.
    load = loaded_class.__wrapped__
    assert load(spark._jvm, "SeamarkPlan").newInstance() is not None
    (jar,) = (tmp_path / "seamark" / "classes").iterdir()
    made = jar.stat().st_ino
    again = load(spark._jvm, "SeamarkPlan")
    assert again.getClassLoader().getURLs()[0].getPath() == str(jar)
    assert jar.stat().st_ino == made, "it was compiled again"


def test_threads_that_start_queries_at_once_load_a_class_once(spark: SparkSession) -> None:
    """py4j takes two classes of one name for the same, and calls a method of the wrong one."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.new_jvm_view()  # for which no class has been loaded
    with ThreadPoolExecutor(8) as threads:
        loaded = list(threads.map(lambda _: loaded_class(jvm, "SeamarkPlan"), range(8)))
    assert len({id(one) for one in loaded}) == 1
