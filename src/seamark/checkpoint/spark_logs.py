"""`SparkLogs`: the entries of Spark's offset and commit logs, its plans of epochs and decisions.

They are Spark's own. `void_decision` and `void_offsets` delete entries left by a fenced driver, and
`put_back_plan` and `put_back_decision` mend such a deletion that came too late.
"""

import contextlib
import logging
from contextlib import AbstractContextManager
from typing import Any

from seamark.api.declarations import SPARK_DIRECTORY
from seamark.checkpoint.envelope import storage_faults
from seamark.checkpoint.spark_files import read_log
from seamark.files import Directory, numbered
from seamark.model.errors import RecordNotStoredError

log = logging.getLogger(__name__)


class SparkLogs:
    """Spark's logs in `spark`, its checkpoint location for the job with the directory `files`."""

    def __init__(self, files: Directory, spark: Directory) -> None:
        self.files = files
        """The job's directory, for files beside the protocol's records."""
        self.spark_files = spark

    @property
    def uri(self) -> str:
        """The job's directory."""
        return self.files.uri

    @property
    def spark_directory(self) -> str:
        """The path of the Spark checkpoint location below the job's directory; "" if they are the
        same."""
        at = self.spark_files.uri
        return at[len(self.uri) :].strip("/") if at.startswith(self.uri) else SPARK_DIRECTORY

    def latest_decision(self) -> int:
        """Return the highest entry of Spark's commit log, or -1."""
        return self._latest_batch("commits")

    def is_decided(self, epoch: int) -> bool:
        """Return whether Spark's commit log holds this epoch; cheaper than `latest_decision`."""
        return self._is_logged("commits", epoch)

    def void_decision(self, epoch: int) -> None:
        """Delete the epoch's entry from Spark's commit log."""
        self._delete_batch("commits", epoch)

    def latest_planned(self) -> int:
        """Return the highest entry of Spark's offset log, or -1."""
        return self._latest_batch("offsets")

    def void_offsets(self, epoch: int) -> None:
        """Delete the epoch's entry from Spark's offset log."""
        self._delete_batch("offsets", epoch)

    def is_planned(self, epoch: int) -> bool:
        """Return whether Spark's offset log holds this epoch."""
        return self._is_logged("offsets", epoch)

    def read_plan(self, epoch: int) -> str | None:
        """Return the epoch's entry of Spark's offset log, as text."""
        path = f"offsets/{epoch}"
        try:
            return self._read_log(path)
        except FileNotFoundError:
            raise RecordNotStoredError(
                f"{self.spark_files.uri}/{path}: Spark has planned epoch {epoch}, and the file is "
                "gone; a driver that this one has replaced may have deleted it late. Nothing was "
                f"committed for epoch {epoch}; start the job again, and it runs again"
            ) from None

    def put_back_plan(self, epoch: int, plan: str) -> None:
        """Create the epoch's entry of Spark's offset log, unless it exists."""
        self._put_back(f"offsets/{epoch}", plan)

    def put_back_decision(self, epoch: int, decision: str) -> None:
        """Create the epoch's entry of Spark's commit log, unless it exists."""
        self._put_back(f"commits/{epoch}", decision)

    def _put_back(self, path: str, text: str) -> None:
        if self._create_of_spark(path, text):
            uri = self.spark_files.uri
            log.warning("put %s/%s back: a replaced driver had deleted it late", uri, path)

    def plan_epoch(self, epoch: int, plan: str) -> bool:
        """Create the epoch's entry of Spark's offset log; return False if it exists."""
        return self._create_of_spark(f"offsets/{epoch}", plan)

    def _create_of_spark(self, path: str, text: str) -> bool:
        with contextlib.suppress(FileExistsError):
            with self._blamed(self._of_spark(path), "written"):
                self.spark_files.create(path, text.encode())
            return True
        return False

    def _read_log(self, path: str) -> str:
        with self._blamed(self._of_spark(path), "read"):
            return self.spark_files.read(path).decode()

    def _of_spark(self, path: str) -> str:
        return f"{self.spark_directory}/{path}".lstrip("/")

    def _is_logged(self, log: str, epoch: int) -> bool:
        with self._blamed(self._of_spark(f"{log}/{epoch}"), "looked for"):
            return self.spark_files.exists(f"{log}/{epoch}")

    def _latest_batch(self, log: str) -> int:
        with self._blamed(self._of_spark(log), "listed"):
            return max(numbered(self.spark_files.list(log)), default=-1)

    def _delete_batch(self, log: str, epoch: int) -> None:
        with self._blamed(self._of_spark(f"{log}/{epoch}"), "deleted"):
            # Hadoop's checksum, on a local file system.
            self.spark_files.delete(f"{log}/.{epoch}.crc")
            self.spark_files.delete(f"{log}/{epoch}")

    def _spark_log(self, path: str) -> list[Any]:
        """Return an entry of Spark's logs; [] if it is missing."""
        with contextlib.suppress(FileNotFoundError), self._blamed(self._of_spark(path), "read"):
            return read_log(self.spark_files, path)
        return []

    def _blamed(self, path: str, done: str) -> AbstractContextManager[None]:
        return storage_faults(self.uri, path, done)
