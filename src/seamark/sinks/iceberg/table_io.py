"""A table's files for pyiceberg: on local disks, HDFS and S3, by Spark's Hadoop settings.

pyiceberg's own way to files leaves their flush on local disks to the operating system, and needs
Java for HDFS; with this one metadata is durable before the catalog names it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from seamark.files import HadoopSettings, RowDirectory, open_directory
from seamark.model.errors import ConfigurationError
from seamark.sinks.iceberg.catalog import HADOOP

_S3 = {
    "s3.endpoint": "endpoint",
    "s3.region": "endpoint.region",
    "s3.access-key-id": "access.key",
    "s3.secret-access-key": "secret.key",
    "s3.session-token": "session.token",
}
"""pyiceberg's settings, and those that a catalog hands out with a table, by S3A's names."""


class TableFiles:
    """Has the methods of pyiceberg's `FileIO`, and is no subclass: pyiceberg is imported only where
    it is used."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties

    def directory(self, location: str) -> RowDirectory:
        """Return the files below a location. Raises ConfigurationError for a store that Seamark has
        no client for."""
        scheme, _, rest = location.partition("://")
        if location.startswith("/") or scheme == location or scheme == "file":
            return open_directory(re.sub("^file:/*", "/", location))
        settings = HadoopSettings(json.loads(self.properties.get(HADOOP, "{}")))
        if scheme in ("s3", "s3a", "s3n"):
            bucket = rest.partition("/")[0]
            given = {
                f"fs.s3a.bucket.{bucket}.{ours}": self.properties[theirs]
                for theirs, ours in _S3.items()
                if self.properties.get(theirs)
            }
            if "s3.endpoint" in self.properties:
                given[f"fs.s3a.bucket.{bucket}.path.style.access"] = "true"
            location, settings = f"s3a://{rest}", settings.under(given)
        elif scheme != "hdfs":
            raise ConfigurationError(
                f"the table lies at {location}, and Seamark has no client for {scheme}:; give it a "
                "location with file:, hdfs: or s3:"
            )
        return open_directory(location.rstrip("/"), settings)

    def new_input(self, location: str) -> "_TableFile":
        """Return a file to read."""
        parent, _, name = location.rpartition("/")
        return _TableFile(location, self.directory(parent), name)

    new_output = new_input

    def delete(self, location: "str | _TableFile") -> None:
        """Delete a file; a missing one is fine."""
        at = location if isinstance(location, str) else location.location
        parent, _, name = at.rpartition("/")
        self.directory(parent).remove(name)


class _TableFile:
    def __init__(self, location: str, files: RowDirectory, name: str) -> None:
        self.location = location
        self._files = files
        self._name = name

    def __len__(self) -> int:
        size = self._files.size(self._name)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._files.size(self._name) is not None

    def open(self, seekable: bool = True) -> Any:
        return pa.BufferReader(self._files.read(self._name))

    def to_input_file(self) -> "_TableFile":
        return self

    def create(self, overwrite: bool = False) -> Any:
        return self._files.begin(self._name)
