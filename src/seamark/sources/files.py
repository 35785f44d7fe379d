"""`FileSource`: the user's configuration of Spark's file stream."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from seamark.contracts.source import StreamReader
from seamark.files.location import check_characters
from seamark.model.errors import ConfigurationError
from seamark.sources.settings import Ending, check_ending, checked_options

FORMATS = ("json", "parquet", "csv", "text", "orc", "xml")
_OWNED = {"path": "the first argument says it"}
_ANY_AGE = "36500d"
"""Else Spark leaves out, without a word, a file that is a week older than the newest it has read,
such as a copy with its original's time."""


class StructTypeLike(Protocol):
    """Spark's `StructType`, or an object like it."""

    @property
    def fields(self) -> Iterable[Any]:
        """The columns, each with `name` and `dataType`."""


@dataclass(frozen=True)
class FileSource(Ending):
    """Read the files of a directory, present and future.

    path: a directory, or a glob of directories, on any Hadoop file system of Spark's; a path
        without a scheme is on Spark's default one: this machine, unless configured otherwise, and
        if it is relative, below the directory where Spark was started: `os.chdir` does not change
        it. Spark takes ``%20`` and ``#`` literally, and ``*?[]{}`` as a pattern.
    format: ``"json"`` (one object per line), ``"parquet"``, ``"csv"``, ``"text"`` (one column,
        ``value``), ``"orc"`` or ``"xml"``.
    schema: as DDL, ``"user STRING, at TIMESTAMP"``, or a `StructType`. Needed, except for text: a
        schema guessed from the first files could change at a restart.
    ending: ``"never"``, or ``"latest"``: the job ends after reading the files present at its start.
    options: Spark's other reader options, e.g. ``maxFilesPerTrigger``, ``header``. ``maxFileAge``
        is a hundred years unless set here: by Spark's own week a file whose time is so much older
        than the newest one's is left out.

    A file must be whole when it appears (write it elsewhere and rename it), and must not be changed
    or deleted while a job may still replay it. Each name is read once: what is written later under
    a name that was read is left out. Names beginning with ``_`` or ``.`` are left out.

    Raises ConfigurationError.
    """

    path: str | os.PathLike[str]
    format: str
    schema: str | StructTypeLike | None = None
    ending: str = "never"
    options: Mapping[str, object] = field(default_factory=dict, repr=False)  # may hold passwords
    replayable: ClassVar[bool] = True
    """The checkpoint names each epoch's files; they are read again after a failure."""

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not str(self.path).strip():
            raise ConfigurationError(
                f"FileSource: path is {self.path!r}; give a directory, e.g. 's3a://bucket/clicks'"
            )
        object.__setattr__(self, "path", os.fspath(self.path))
        check_characters(str(self.path), "FileSource: path")
        if self.format not in FORMATS:
            raise ConfigurationError(
                f"{self._name}: format is {self.format!r}; allowed are "
                f"{', '.join(map(repr, FORMATS))}. Give job.source a DataFrame of your own "
                "(spark.readStream.…) for another"
            )
        self._check_schema()
        check_ending(self.ending, self._name)
        object.__setattr__(self, "options", checked_options(self.options, self._name, _OWNED))

    def describe(self) -> str:
        """Return the format and the directory."""
        return f"{self.format} files in {self.path}"

    def reader(self) -> StreamReader:
        """Return Spark's file reader with these settings."""
        options = {name: str(value) for name, value in self.options.items()}
        if "maxfileage" not in map(str.lower, options):
            options["maxFileAge"] = _ANY_AGE
        return StreamReader(self.format, {"path": str(self.path), **options}, self.schema)

    @property
    def _name(self) -> str:
        return f"FileSource {self.path}"

    def _check_schema(self) -> None:
        schema = self.schema
        if schema is None and self.format == "text":
            return
        columns = [schema.strip()] if isinstance(schema, str) else getattr(schema, "fields", ())
        if columns and all(c if isinstance(c, str) else hasattr(c, "dataType") for c in columns):
            return
        raise ConfigurationError(
            f"{self._name}: schema is {schema!r}; give the columns of the {self.format} files, as "
            "text such as 'user STRING, at TIMESTAMP', or as a StructType"
        )
