"""The table in its catalog: each call of pyiceberg's with a deadline and errors of one kind."""

import contextlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from seamark.files import HadoopSettings
from seamark.files.deadline import CallHangsError, call_within
from seamark.model.errors import SeamarkError
from seamark.model.packages import load_driver
from seamark.model.redaction import redact

CALL_S = 20.0
"""For one call. pyiceberg's own clients have no deadline: a silent server would keep them."""
HADOOP = "seamark.hadoop"
"""The property with Spark's Hadoop settings, for `table_io.py`."""
_FILES = "seamark.sinks.iceberg.table_io.TableFiles"
METADATA = "metadata"
READ_S = 600.0
"""For a call that reads all manifests."""
T = TypeVar("T")
driver = partial(load_driver, "pyiceberg.catalog", "IcebergSink needs pyiceberg", "iceberg")


class RefusedError(OSError):
    """The catalog says that the table is not as this commit expects."""


class CatalogTable:
    """One table of a catalog. Touches nothing before its first call. A call raises OSError if the
    catalog, or the store of the table's metadata, is away, hangs or refuses; it may have done it
    all the same.

    makes: whether an SQL catalog may make its own tables. They are missing, too, where a disk is
        not mounted.

    No connection stays open between calls: a file of SQLite's would be written on beside the disk
    that is mounted there meanwhile.
    """

    def __init__(
        self,
        name: str,
        catalog: str,
        properties: Mapping[str, str],
        hadoop: HadoopSettings,
        *,
        makes: bool = False,
    ) -> None:
        self._name = name
        self._catalog = catalog
        self._properties = {"init_catalog_tables": str(makes), **properties}
        self._hadoop = hadoop
        self._made: Any = None

    def load(self) -> Any:
        """Return the table as it is now, pyiceberg's `Table`."""
        return self._call(lambda catalog: catalog.load_table(self._name))

    def load_if_there(self) -> Any | None:
        """Return the table; None if the catalog says that it has none."""
        from pyiceberg.exceptions import NoSuchTableError

        def load(catalog: Any) -> Any:
            try:
                return catalog.load_table(self._name)
            except NoSuchTableError:
                return None

        return self._call(load)

    def create(self, schema: Any, spec: Any) -> None:
        """Make the table and its namespace, unless another driver is faster."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        def create(catalog: Any) -> None:
            catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            with contextlib.suppress(TableAlreadyExistsError):
                catalog.create_table(self._name, schema, partition_spec=spec)

        self._call(create)

    def call(self, act: Callable[[], T], seconds: float = CALL_S) -> T:
        """Return the result of what `act` does with the loaded table. It may still do so after its
        time, so it holds all that it needs."""
        return self._call(lambda _: act(), seconds)

    def _call(self, act: Callable[[Any], T], seconds: float = CALL_S) -> T:
        from pyiceberg.exceptions import CommitFailedException

        try:
            return call_within(seconds, partial(self._closing, act))
        except CallHangsError:
            self._made = None  # its thread may still use it
            raise OSError(f"the catalog has not answered within {seconds:g} s") from None
        except (SeamarkError, OSError):
            raise
        except CommitFailedException as error:
            raise RefusedError(said(error)) from error
        except Exception as error:
            raise OSError(said(error)) from error

    @property
    def is_new(self) -> bool:
        """Whether the catalog is a file of SQLite's that is not there."""
        uri = self._properties.get("uri", "")
        path = uri.partition(":///")[2].partition("?")[0]
        return uri.startswith("sqlite:///") and bool(path) and not Path(path).exists()

    def _closing(self, act: Callable[[Any], T]) -> T:
        if self.is_new and self._properties["init_catalog_tables"] == "False":
            raise FileNotFoundError("the catalog's database is not there")  # nor made by SQLite
        if self._made is None:
            own = {"py-io-impl": _FILES, HADOOP: json.dumps(dict(self._hadoop))}
            self._made = driver().load_catalog(self._catalog, **{**self._properties, **own})
        made = self._made
        try:
            return act(made)
        finally:
            made.close()


def said(error: BaseException) -> str:
    """Return an error in one line, without a secret."""
    return f"{type(error).__name__}: {redact(' '.join(str(error).split()))[:500]}"
