"""Finds the files that Spark's file sources read, so that no sink of the job writes among them, and
no source goes on in the place of another."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from seamark.files.location import real_place
from seamark.model.ignored import ignored
from seamark.spark.java_calls import items_of, java_class
from seamark.spark.planned_query import sources_of
from seamark.spark.plans import items, name_of

_HADOOP = "org.apache.hadoop.fs"
_SKIPPING = ("ignoreCorruptFiles", "ignoreMissingFiles")
_GLOB = re.compile(r"[{}\[\]*?\\]")
"""What makes a path a pattern to Spark (SparkHadoopUtil.isGlobPath)."""


@dataclass(frozen=True)
class FilesRead:
    """What a file source reads: the files in the directories, or the files, that `path` names; it
    may be a pattern of Hadoop's. Files deeper down are read only in directories of partitions, or
    if it is `recursive`. `names` is a pattern of the files' names. `skips` are the options by which
    files that cannot be read are passed over, or are gone for a restore."""

    path: str
    recursive: bool
    names: str
    skips: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The place, for `SourcePart.places`."""
        return f"files: {self.path}" + (f"/{self.names}" if self.names != "*" else "")

    def reads(self, file: str) -> bool:
        """Tell whether the source reads a `FilesSink.example_file`."""
        parts = real_place(file).split("/") if file else []
        for pattern in items_of(java_class(_jvm(), f"{_HADOOP}.GlobExpander").expand(self.path)):
            wanted = str(pattern).split("/")
            below = parts[len(wanted) : -1]
            deep = self.recursive or any("=" in part for part in below)
            hidden = any(part.startswith((".", "_")) for part in below)
            if (
                len(wanted) <= len(parts)
                and all(map(_fits, wanted, parts))
                and (not below or (deep and not hidden))
                and _fits(self.names, parts[-1])
            ):
                return True
        return False


def files_read(frame: DataFrame) -> list[FilesRead]:
    """Return what the file sources in a DataFrame read. A path that Spark cannot use is left out:
    its start says so."""
    reads = []
    for leaf in sources_of(frame):
        with ignored("the path of a file source"):
            if (options := file_options(leaf)) is not None:
                recursive = options.get("recursivefilelookup", "").lower() == "true"
                names = options.get("pathglobfilter", "*")
                conf = frame.sparkSession.conf
                given = {
                    name: options.get(name.lower()) or conf.get(f"spark.sql.files.{name}")
                    for name in _SKIPPING
                }
                skips = tuple(name for name, on in given.items() if str(on).lower() == "true")
                if options.get("cleansource", "off").lower() != "off":
                    skips += ("cleanSource",)
                path = real_place(_path(options, frame.sparkSession))
                reads.append(FilesRead(path, recursive, names, skips))
    return reads


def reads_elsewhere(leaf: Any, spark: SparkSession, file: str) -> str:
    """Return what a file source reads, if a `file` of its log lies outside of it: in Spark's eyes
    all files in there are new. "" if it does not, or if Spark goes by the files' names alone."""
    options = file_options(leaf)
    if options is None or options.get("filenameonly", "").lower() == "true":
        return ""
    path = _path(options, spark)
    glob = _GLOB.search(path)
    plain = path[: glob.start()].rpartition("/")[0] if glob else path
    uri = java_class(_jvm(), "java.net.URI")(file)
    there = str(java_class(_jvm(), f"{_HADOOP}.Path")(uri).toString())
    return "" if f"{there}/".startswith(f"{plain.rstrip('/')}/") else path


def file_options(leaf: Any) -> dict[str, str] | None:
    """Return the options of a source of Spark's file formats, by names in lower case; None for
    others. Only those have such a name."""
    if name_of(leaf) != "StreamingRelation" or not leaf.sourceName().startswith("FileSource["):
        return None
    pairs = items(leaf.dataSource().options())
    return {str(pair._1()).lower(): str(pair._2()) for pair in pairs}


def _path(options: Mapping[str, str], spark: SparkSession) -> str:
    """Return the path in the options, with its file system."""
    path = java_class(_jvm(), f"{_HADOOP}.Path")(options["path"])
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return str(path.getFileSystem(conf).makeQualified(path).toString())


def _fits(wanted: str, part: str) -> bool:
    """Tell whether a part of a pattern may be a part of a path, whose ``day=*`` is any value."""
    if part.endswith("=*") and wanted.startswith(part[:-1]):
        return True
    return wanted == part or bool(
        java_class(_jvm(), f"{_HADOOP}.GlobPattern")(wanted).matches(part)
    )


def _jvm() -> Any:
    return SparkContext._jvm
