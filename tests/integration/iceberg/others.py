"""Another program at the table of an IcebergSink, with columns `key` and `value`."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
)
from requests.exceptions import RequestException
from sqlalchemy.exc import OperationalError

NO_REPEATS = {"commit.retry.num-retries": "0"}
"""Else pyiceberg would repeat an overwrite that met the job's commit, on the job's rows too."""


class Others:
    """Again and again it makes the files one, expires all but the newest snapshot, appends a row
    and deletes it. A conflict with the job is its own loss."""

    def __init__(self, catalog: Mapping[str, str], table: str) -> None:
        self._catalog = catalog
        self._name = table
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._replaced = set[str]()
        self.compactions = 0

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def leave(self) -> None:
        """End, without a row or a replaced file left."""
        self.__exit__()
        self._table().delete("key == 'other'")
        kept = {task.file.file_path for task in self._table().scan().plan_files()}
        for path in self._replaced - kept:
            Path(path.removeprefix("file://")).unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            for deed in (self._compact, self._expire, self._append):
                try:
                    deed(self._table())
                except NoSuchTableError:
                    break
                except (CommitFailedException, ValueError) as error:
                    print("the job was faster:", error)
                except OperationalError as error:
                    assert "locked" in str(error)
                except (RequestException, RESTError, CommitStateUnknownException) as error:
                    print("the catalog is away:", type(error).__name__)

    def _table(self) -> Any:
        table = load_catalog("default", **self._catalog).load_table(self._name)
        if NO_REPEATS.items() - table.properties.items():
            with table.transaction() as transaction:
                transaction.set_properties(NO_REPEATS)
        return table

    def _compact(self, table: Any) -> None:
        old = {task.file.file_path for task in table.scan().plan_files()}
        if len(old) >= 4:
            self._replaced |= old
            table.overwrite(table.scan().to_arrow())
            self.compactions += 1

    def _expire(self, table: Any) -> None:
        current = table.current_snapshot()
        gone = [one.snapshot_id for one in table.snapshots() if one != current]
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()

    def _append(self, table: Any) -> None:
        table.append(pa.table({"key": ["other"], "value": ["1"]}))
        table.delete("key == 'other'")
