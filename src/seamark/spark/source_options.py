"""What Spark makes of a source's options: those that it refuses, and those that it passes over.

Spark has no list of a source's options, and reads most of their values when its query starts. Its
own classes are asked: made as at a start they refuse a value, and the texts in their code are the
names that they look for.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seamark.api.checks import nearest
from seamark.spark.file_sources import file_options
from seamark.spark.java_calls import java_class, java_list, root_cause
from seamark.spark.planned_query import sources_of
from seamark.spark.plans import items, name_of
from seamark.spark.spark_versions import named_here, spark_class

log = logging.getLogger(__name__)

_SQL = "org.apache.spark.sql"
_STREAMS = f"{_SQL}.execution.streaming"
_FILES = f"{_STREAMS}.runtime.FileStreamOptions"
_CLEANER = f"{_STREAMS}.runtime.FileStreamSource$FileStreamSourceCleaner"
_OF_FILES = {
    "csv": f"{_SQL}.catalyst.csv.CSVOptions",
    "json": f"{_SQL}.catalyst.json.JSONOptions",
    "xml": f"{_SQL}.catalyst.xml.XmlOptions",
    "text": f"{_SQL}.execution.datasources.text.TextOptions",
    "parquet": f"{_SQL}.execution.datasources.parquet.ParquetOptions",
    "orc": f"{_SQL}.execution.datasources.orc.OrcOptions",
}
_OF_STREAMS = {
    "kafka": f"{_SQL}.kafka010.KafkaSourceProvider$",
    "rate": f"{_STREAMS}.sources.RateStreamProvider$",
    "rate-micro-batch": f"{_STREAMS}.sources.RatePerMicroBatchProvider$",
    "socket": f"{_STREAMS}.sources.TextSocketSourceProvider",
}
"""The classes that read the options, by format; those of other projects are not known."""
_CLIENT = "kafka."
_CLIENTS = "org.apache.kafka.clients"
_ERROR = re.compile(r"^[\w.$]+(?:Exception|Error): ")
_WIDTHS = {7: 3, 8: 3, 16: 3, 19: 3, 20: 3, 15: 4, 5: 9, 6: 9}
"""The bytes of the constants in a class file that have not five, by their kinds."""


def refusal(make: Callable[[Mapping[str, str]], object], options: Mapping[str, str]) -> str:
    """Return why Spark refuses to `make` something with these options, and the options without
    which it would not refuse; "" if it makes it. It may leave an option's name out of its words."""
    if not (said := _said(make, options)):
        return ""
    of = [
        f"{name} {value!r}"
        for name, value in options.items()
        if not name.lower().startswith(_CLIENT)  # a login, say
        and not _said(make, {other: v for other, v in options.items() if other != name})
    ]
    return f"Spark refuses {' or '.join(of) or 'its options'}: {said}"


def _said(make: Callable[[Mapping[str, str]], object], options: Mapping[str, str]) -> str:
    try:
        make(options)
    except (Py4JJavaError, PySparkException, ValueError) as error:
        return _ERROR.sub("", root_cause(error)).rstrip(".") or type(error).__name__
    return ""


def refused_options(frame: DataFrame) -> str:
    """Return why Spark would refuse the options of a stream's source when its query starts, "" if
    it would not. Asks no other system."""
    for leaf in sources_of(frame):
        format_, options = _options_of(leaf)
        make = _make_kafka if format_ == "kafka" else _make_files
        known = format_ == "kafka" or format_ in _OF_FILES
        if known and (found := refusal(partial(make, leaf, frame.sparkSession), options)):
            return found
    return ""


def unknown_options(frame: DataFrame) -> Iterator[tuple[str, str]]:
    """Yield each option of a stream's sources that Spark would pass over without a word, with a
    question that names the nearest known one."""
    jvm = frame.sparkSession._jvm
    for leaf in sources_of(frame):
        format_, options = _options_of(leaf)
        known = _known(jvm, format_)
        for name in options if known else ():
            of_client = format_ == "kafka" and name.lower().startswith(_CLIENT)
            names = _known_to_client(jvm) if of_client else known
            is_hadoops = format_ in _OF_FILES and "." in name
            if name.lower() not in {*names, "path"} and not is_hadoops:
                yield name, nearest(name, names)


def _options_of(leaf: Any) -> tuple[str, Mapping[str, str]]:
    """Return a source's format and its options; "" for a format that is not known here."""
    if name_of(leaf) == "StreamingRelationV2":
        options = leaf.extraOptions().asCaseSensitiveMap()
        return str(leaf.sourceName()), {str(name): str(text) for name, text in options.items()}
    if file_options(leaf) is None:
        return "", {}
    pairs = items(leaf.dataSource().options())
    options = {str(pair._1()): str(pair._2()) for pair in pairs}
    return str(leaf.dataSource().className()).lower(), options


def _make_kafka(leaf: Any, spark: SparkSession, options: Mapping[str, str]) -> None:
    """Make the stream of a Kafka source, which connects later."""
    jvm = spark._jvm
    given = java_class(jvm, f"{_SQL}.util.CaseInsensitiveStringMap")(_java_map(jvm, options))
    if pattern := given.get("subscribePattern"):
        compiled = java_class(jvm, "java.util.regex.Pattern").compile
        if wrong := _said(lambda _: compiled(pattern), {}):
            raise ValueError(f"{wrong} of the pattern {pattern!r}")
    stream = leaf.table().newScanBuilder(given).build().toMicroBatchStream("")
    try:
        limit = given.get("maxOffsetsPerTrigger")
        if limit is not None and int(limit) < 1:
            raise ValueError("no epoch would read a row; give a number of rows, at least 1")
    finally:
        stream.stop()


def _make_files(leaf: Any, spark: SparkSession, options: Mapping[str, str]) -> None:
    """Make of a file source what its start makes of the options."""
    jvm = spark._jvm
    utils = java_class(jvm, "org.apache.spark.api.python.PythonUtils")
    made = spark_class(jvm, _FILES)(utils.toScalaMap(_java_map(jvm, options)))
    given = {name.lower(): value for name, value in options.items()}
    if "cleansource" in given:
        path = java_class(jvm, "org.apache.hadoop.fs.Path")(given.get("path", ""))
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        files = path.getFileSystem(conf)
        cleaner = _companion(jvm, _CLEANER).apply(files, files.makeQualified(path), made, conf)
        if cleaner.isDefined():
            cleaner.get().stop()
    schema, format_ = leaf.dataSource().userSpecifiedSchema(), str(leaf.dataSource().className())
    own = {name.lower() for name in _all_options(jvm, _OF_FILES[format_.lower()])}
    if schema.isEmpty() or own.isdisjoint(given):
        return
    # As each epoch does, of no files.
    options = {name: value for name, value in options.items() if name.lower() != "path"}
    reader = spark.read.format(format_).options(**options)._jreader.schema(schema.get())
    read = reader.load(utils.toSeq(java_list(jvm, ())))
    read.queryExecution().sparkPlan().execute()
    if (mode := given.get("mode")) and "columnnameofcorruptrecord" in own:  # it parses texts
        taken = _companion(jvm, f"{_SQL}.catalyst.util.ParseMode").fromString(mode).name()
        if str(taken).upper() != mode.upper():
            raise ValueError(f"it would be {taken}; give PERMISSIVE, DROPMALFORMED or FAILFAST")


def _java_map(jvm: Any, options: Mapping[str, str]) -> Any:
    made = java_class(jvm, "java.util.HashMap")()
    for name, value in options.items():
        made.put(name, value)
    return made


@functools.cache
def _known(jvm: Any, format_: str) -> frozenset[str]:
    """Return the names of a format's options in lower case; none if they cannot be known."""
    try:
        if format_ in _OF_STREAMS:
            names = [_texts_in(jvm, _OF_STREAMS[format_])]
        elif format_ in _OF_FILES:
            names = [
                _all_options(jvm, _OF_FILES[format_]),
                _all_options(jvm, f"{_SQL}.execution.datasources.FileIndexOptions"),
                _texts_in(jvm, f"{_SQL}.catalyst.FileSourceOptions$"),
                _texts_in(jvm, f"{_SQL}.catalyst.DataSourceOptions$"),
                _texts_in(jvm, _FILES),
            ]
        else:
            return frozenset()
    except (Py4JError, PySparkException) as error:  # another Spark's classes
        log.info("the options of %s are not known: %s", format_, error)
        return frozenset()
    known = {name.lower() for some in names for name in some}
    return frozenset(name for name in known if re.fullmatch(r"[a-z][\w.]{2,}", name))


@functools.cache
def _known_to_client(jvm: Any) -> frozenset[str]:
    join = java_class(jvm, "java.lang.String").join
    of = (f"{_CLIENTS}.consumer.ConsumerConfig", f"{_CLIENTS}.admin.AdminClientConfig")
    texts = [str(join(",", java_class(jvm, name).configNames())) for name in of]
    return frozenset(_CLIENT + name for text in texts for name in text.split(","))


@functools.cache
def _all_options(jvm: Any, name: str) -> list[str]:
    return str(_companion(jvm, name).getAllOptions().mkString(",")).split(",")


def _companion(jvm: Any, name: str) -> Any:
    """Return the object of this name in Scala."""
    return getattr(spark_class(jvm, f"{name}$"), "MODULE$")


def _texts_in(jvm: Any, name: str) -> list[str]:
    """Return the texts in the code of a class (JVM specification, 4.4). Raises Py4JError if there
    is no such class."""
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    loader.loadClass(named_here(jvm, name))
    file = named_here(jvm, name).replace(".", "/") + ".class"
    data = bytes(loader.getResourceAsStream(file).readAllBytes())
    utf8: dict[int, bytes] = {}
    texts, at, number = [], 10, 1
    while number < int.from_bytes(data[8:10], "big"):
        kind, value = data[at], int.from_bytes(data[at + 1 : at + 3], "big")
        if kind == 1:
            utf8[number] = data[at + 3 : at + 3 + value]
        elif kind == 8:
            texts.append(value)
        at += 3 + value if kind == 1 else _WIDTHS.get(kind, 5)
        number += 2 if kind in (5, 6) else 1
    return [utf8[text].decode("utf-8", "replace") for text in texts]
