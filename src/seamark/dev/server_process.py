"""A database server that is no Java program: a process of its own below one directory, made for one
`with`, killed, restarted and paused at will.

`postgres.py` says how PostgreSQL is started and asked; the tests have others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark.dev.java_server import free_ports
from seamark.model.errors import PreflightError

if TYPE_CHECKING:
    import psutil
    from typing_extensions import Self

START_DEADLINE_S = 60.0


class ServerProcess(ABC):
    """A context manager: a new, empty server on a port of the loopback address. `root` is its own
    directory, deleted in the end; `settings` are its configuration."""

    def __init__(self, root: Path, settings: Mapping[str, str], port: int | None = None) -> None:
        self._root = root
        self._settings = dict(settings)
        self._log = root / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0] if port is None else port

    @abstractmethod
    def _command(self) -> list[object]:
        """Return the program with its arguments, `_settings` among them."""

    @abstractmethod
    def _ask(self) -> None:
        """Return if it serves, raise an Exception if it does not."""

    def _first_start(self) -> None:
        """Make a new server and start it."""
        self.start()

    def _setting(self, name: str) -> str:
        """Return the name of a setting for a keyword."""
        return name

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _user(self) -> dict[str, Any]:
        """Return `subprocess`'s arguments to run it as another user."""
        return {}

    def __enter__(self) -> Self:
        try:
            self._first_start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self, **settings: str) -> None:
        """Start it, `settings` changed for good, and wait until it answers."""
        self._settings.update({self._setting(name): value for name, value in settings.items()})
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(map(str, self._command())),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._root,
                env=self._environment(), start_new_session=True, **self._user(),
            )  # fmt: skip
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                self._ask()
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise PreflightError(
                        f"{type(self).__name__} does not start: {error}\n{self.log()}"
                    ) from error
                time.sleep(0.02)

    def check(self) -> None:
        """Raise PreflightError, with the end of its output, if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise PreflightError(f"{type(self).__name__} has ended\n{self.log()}")

    def kill(self) -> None:
        """Kill -9 the server and all of its processes; return when they are gone."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGSTOP)  # it forks no more while they are counted
        children = self._processes()[1:]
        self._process.kill()
        _send(children, signal.SIGKILL)
        self._process.wait()
        while any(map(_lives, children)):  # PostgreSQL's shared memory is held until the last ends
            time.sleep(0.01)

    def restart(self, **settings: str) -> None:
        """Kill -9 it and start it again; it has recovered when this returns."""
        self.kill()
        self.start(**settings)

    def pause(self) -> None:
        """SIGSTOP: the sockets stay open and nothing answers."""
        _send(self._processes(), signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        _send(self._processes(), signal.SIGCONT)

    def log(self) -> str:
        """Return the end of the server's output."""
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    def _processes(self) -> list[psutil.Process]:
        if self._process is None or self._process.poll() is not None:
            return []
        import psutil

        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a child at the end of its work
            process.send_signal(number)


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
