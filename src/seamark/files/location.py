"""The one translation of a user's text into a place in a file system, and back.

A place is written as Spark and Hadoop read it: nothing in a path is percent-encoded, and neither
``#`` nor ``?`` ends it. A text is refused if they would take it for another place than Seamark.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding, FindingCode

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(.*)", re.DOTALL)
_HOST = re.compile(r"[\w.:@\[\]+,-]*")
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_FILE = "file://"
S3_SCHEMES = ("s3a", "s3", "s3n")
_WITH_ACCOUNT = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes whose URIs have ``<container>@<account>`` for a host."""
_NO_STORAGE = ("http", "https", "ftp", "sftp", "jdbc")
"""Hadoop reads some of them; users may take the others for a place."""


@dataclass(frozen=True)
class Location:
    """A file or directory.

    `scheme` is in lower case, and ``file`` for a local path. `path` begins with a slash and ends
    without one; it is empty at the top of any file system but the local one.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, value: str | os.PathLike[str], setting: str) -> "Location":
        """Parse a user's local path or URI. `setting` begins each error.

        Touches nothing but the symbolic links before a ``..``. Raises ConfigurationError.
        """
        text = os.fsdecode(value)
        check_characters(text, setting)
        parts = _URI.fullmatch(text)
        if parts is None:
            return cls("file", "", _absolute(text, text, setting))
        scheme, authority, path = parts[1].lower(), parts[2] or "", parts[3]
        if scheme == "file":
            if authority not in ("", "localhost"):
                raise ConfigurationError(
                    f"{setting} is {text!r}: {authority!r} stands where a file URI has its host; "
                    f"write 'file:///{authority}{path}' for an absolute path"
                )
            return cls("file", "", _absolute(path, text, setting))
        user, at, _ = authority.rpartition("@")
        if at and (scheme not in _WITH_ACCOUNT or ":" in user):  # not shown: it holds a secret
            raise ConfigurationError(
                f"{setting} is a {scheme}: URI with a user or a key in front of its host; keys "
                "belong into Spark's settings, e.g. spark.hadoop.fs.s3a.access.key and "
                "spark.hadoop.fs.s3a.secret.key"
            )
        if path and not path.startswith("/"):  # not shown: jdbc: has passwords there
            raise ConfigurationError(
                f"{setting} has the scheme {scheme!r} and no path from the top; write "
                f"{scheme}://<host>/<path>, or ./… for a local path with a colon in its name"
            )
        if not _HOST.fullmatch(authority):
            raise ConfigurationError(
                f"{setting} is {text!r}: {authority!r} is no host; write {scheme}://<host>/<path>"
            )
        if scheme in S3_SCHEMES and not authority:
            raise ConfigurationError(
                f"{setting} is {text!r}: it names no bucket; write {scheme}://<bucket>/<path>"
            )
        path = path.strip("/")
        if path and any(part in ("", ".", "..") for part in path.split("/")):
            raise ConfigurationError(
                f"{setting} is {text!r}: write it without '.', '..' and doubled slashes"
            )
        return cls(scheme, authority, f"/{path}" if path else "")

    @classmethod
    def given(cls, value: object, setting: str, wanted: str) -> "Location":
        """Do as `parse`, with any value of a user's; `wanted` names what to give instead."""
        if not isinstance(value, str | os.PathLike) or not str(value):
            raise ConfigurationError(f"{setting} is {value!r}; give {wanted}")
        return cls.parse(value, setting)

    @property
    def is_local(self) -> bool:
        """Whether it is on a local disk, or on a file system mounted like one."""
        return self.scheme == "file"

    @property
    def uri(self) -> str:
        """The URI in Spark's notation."""
        return f"{self.scheme}://{self.authority}{self.path}"


def place_of(uri: str) -> str:
    """Return a directory's text for comparisons, in which S3 has one scheme."""
    scheme, colon, rest = uri.partition("://")
    return f"s3a{colon}{rest}" if scheme in S3_SCHEMES else uri


class StorageUri(str):
    """A URI made by `storage_uri`: read alike by Spark, Hadoop and Seamark, without a trailing
    slash. Whoever is given one need not look at it again."""

    __slots__ = ()


def storage_uri(value: object, setting: str) -> StorageUri:
    """Return a user's `value` as a `StorageUri`; one that is one already, as it is.

    A local path becomes ``file:///…``. Raises ConfigurationError, naming `setting`.
    """
    if isinstance(value, StorageUri):
        return value
    location = Location.given(
        value,
        setting,
        "a URI such as 'file:///var/lib/seamark', 'hdfs://namenode/seamark', "
        "'s3a://bucket/seamark', or a local path",
    )
    if location.scheme in _NO_STORAGE:
        raise ConfigurationError(
            f"{setting} has the scheme {location.scheme!r}, where no checkpoint can be kept: no "
            "file can be made there that another driver has not made; give a local path, or a URI "
            "with 'hdfs:', 's3a:' or another file system of Hadoop's"
        )
    if location.scheme in ("s3", "s3n"):
        raise ConfigurationError(
            f"{setting} has the scheme {location.scheme!r}, which Hadoop no longer has a client "
            f"for; write s3a://{location.authority}{location.path}"
        )
    if location.scheme in ("wasb", "wasbs"):
        raise ConfigurationError(
            Finding(
                FindingCode.CP003,
                setting,
                f"{location.uri}: Hadoop's client for {location.scheme}: does not create files "
                "exclusively; of 40 creators of five files at once, 39 succeeded",
                "give hdfs:, s3a: or gs:, or abfss: for the same Azure account",
            )
        )
    return StorageUri(location.uri)


def check_characters(text: str, setting: str) -> None:
    """Raise ConfigurationError for characters unfit for Python, the JVM or records."""
    for character in text:
        if character < " " or character == "\x7f":
            raise ConfigurationError(
                f"{setting} is {text!r}: it holds the control character {character!r}; give a path "
                "without (NUL cannot be in one, and the others are taken for a mistake)"
            )
        if "\ud800" <= character <= "\udfff":
            raise ConfigurationError(
                f"{setting} is {text!r}: {character!r} stands for a byte that is no UTF-8, and "
                "Spark's JVM cannot name such a file; rename the directory"
            )


def local_of(uri: str) -> str | None:
    """Return the path of a local place's `Location.uri`, None for any other."""
    return uri.removeprefix(_FILE) if uri.startswith(_FILE) else None


def same_place(recorded: object, uri: str) -> bool:
    """Whether a record's path, maybe of an older version, is the place of a `Location.uri`."""
    try:
        return Location.parse(str(recorded), "").uri == uri
    except ConfigurationError:
        return False


def holds(path: object, directory: str) -> bool:
    """Tell whether a sink's `path`, or None, is `directory`, or has it below, and no part of the
    way begins with ``_`` or ``.``: those readers pass over."""
    if not isinstance(path, str):
        return False
    above, way = f"{real_place(path).rstrip('/')}/", f"{real_place(directory)}/"
    return way.startswith(above) and not re.search(r"(^|/)[_.]", way.removeprefix(above))


def real_place(path: str) -> str:
    """Return a local path without symbolic links, or a URI."""
    uri = Location.parse(path, "path").uri
    local = local_of(uri)
    return place_of(uri) if local is None else os.path.realpath(local)


def require_unescaped(value: object, location: Location, setting: str) -> None:
    """Raise ConfigurationError for a ``file:`` URI with a ``%20``.

    Elsewhere ``%20`` is a space, but Spark takes it literally.
    """
    if location.is_local and str(value)[:5].lower() == "file:" and _ESCAPE.search(location.path):
        raise ConfigurationError(
            f"{setting} is {value!r}: a 'file:' URI is taken as it stands, as Spark takes it, and "
            f"a % in it stands for itself; write the path alone: {unquote(location.path)!r}, or "
            f"{location.path!r} if it is really that"
        )


# --- URIs in stored committables: of local directories they are percent-encoded


def encoded(uri: str) -> str:
    """Return a `Location.uri` in the form for committables and `open_directory`."""
    path = local_of(uri)
    return uri if path is None else _FILE + quote(path)


def decoded(uri: str) -> str:
    """Return the `Location.uri` of a result of `encoded`."""
    path = local_of(uri)
    return uri if path is None else _FILE + unquote(path)


def _absolute(path: str, text: str, setting: str) -> str:
    """Return a local path without ``~`` and ``..``, with single slashes."""
    try:
        absolute = Path(path).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # the home or the current directory is missing
        raise ConfigurationError(f"{setting} is {text!r}: {error}; give an absolute path") from None
    if ".." in absolute.parts:
        # Spark drops the part before "..", but the kernel follows links first: they agree only
        # on a path without "..".
        last = len(absolute.parts) - absolute.parts[::-1].index("..")
        absolute = Path(os.path.realpath(Path(*absolute.parts[:last])), *absolute.parts[last:])
    return "/" + str(absolute).lstrip("/")
