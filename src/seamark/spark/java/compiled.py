"""Compiles the Java files beside this module with Janino, Spark's compiler of generated code.

A class for the driver's JVM has a jar of its own. The classes for tasks form two jars, sent to
Spark by `savepoints/state/rows.py` and `run/jvm_writer.py`. Compiling takes a second and more
of CPU time in a new JVM, at each start of a job. So jars are kept below
`${XDG_CACHE_HOME:-~/.cache}/seamark/classes`, under a name derived from the sources and the
versions of Spark and Java.
"""

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from seamark.model.home import temporary_directory
from seamark.model.once import made_once
from seamark.spark.jars import cache_directory, spark_version
from seamark.spark.spark_versions import has_key_extractors, named_here

_OF_TASKS = ("Aside.java", "RowFile.java", "SparkState.java", "StateRows.java", "StateFiles.java")
_OF_WRITERS = ("RowHash.java", "KafkaProducers.java", "KafkaTasks.java")
"""Each file may use those before it."""
_BASES = {"SeamarkIntake": "SeamarkSearch.java", "SeamarkTriggerClock": "SeamarkSearch.java"}
"""The file with the base of a class for the driver, which is in the same jar."""


@made_once  # py4j takes two of one name for the same, and calls a method of the wrong one
def loaded_class(jvm: Any, name: str) -> Any:
    """Return the class ``<name>.java``, loaded in the driver's JVM. Raises Py4JError if Spark's
    classes differ from those it was written for."""
    sources = [*filter(None, [_BASES.get(name)]), f"{name}.java"]
    return class_loader(jvm, _jar(jvm, name, sources)).loadClass(name)


def class_loader(jvm: Any, jar: Path) -> Any:
    """Return a loader of the jar's classes, for the driver's JVM."""
    urls = SparkContext._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.net.URLClassLoader(urls, parent)


def classes_jar(spark: SparkSession) -> Path:
    """Return the jar of the classes for tasks with state rows."""
    return _jar(spark._jvm, "state", _OF_TASKS)


def writers_jar(spark: SparkSession) -> Path:
    """Return the jar of the classes for tasks that write. Raises Py4JError if Kafka's client is not
    Spark's connector's."""
    return _jar(spark._jvm, "writers", _OF_WRITERS)


def _jar(jvm: Any, title: str, names: Sequence[str]) -> Path:
    """Return a jar of the files' classes: the kept one if it is whole, else a new one. If no jar
    can be kept, the new one lies in a temporary directory until this process ends."""
    sources = {name: _source(jvm, name) for name in names}
    made_of = [spark_version(), str(jvm.java.lang.System.getProperty("java.version"))]
    digest = hashlib.sha256("\0".join([*made_of, *sources.values()]).encode()).hexdigest()
    kept = cache_directory("classes") / f"{title}-{digest[:16]}.jar"
    if _is_whole(kept):
        return kept
    data = _compile(jvm, sources)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=kept.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(kept)  # another process may do the same
        return kept
    except OSError:
        jar = temporary_directory() / kept.name
        jar.write_bytes(data)
        return jar


def _is_whole(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _compile(jvm: Any, sources: Mapping[str, str]) -> bytes:
    loader = None
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as jar:
        for source in sources.values():
            compiler = _cooked(jvm, source, loader)
            for name, code in compiler.getBytecodes().items():
                jar.writestr(name.replace(".", "/") + ".class", bytes(code))
            loader = compiler.getClassLoader()
    return data.getvalue()


def _source(jvm: Any, name: str) -> str:
    if name == "SparkState.java" and not has_key_extractors(jvm):
        name = "SparkStateOlder.java"
    return named_here(jvm, files(__package__).joinpath(name).read_text())


def _cooked(jvm: Any, source: str, loader: Any = None) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(
        loader or jvm.java.lang.Thread.currentThread().getContextClassLoader()
    )
    compiler.cook(source)
    return compiler
