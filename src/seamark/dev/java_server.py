"""One server in a JVM of its own on this machine: started, killed, paused, and never outliving us.

Its output goes to a log file, and every error shows the log's end.
"""

import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from seamark.model.errors import ConfigurationError, PreflightError
from seamark.spark.child_jvm import release, start_jvm

S = TypeVar("S", bound="LocalServers")
T = TypeVar("T")

START_TIMEOUT_S = 90

# The kernel gives a client's socket a port from 32768 upwards. A client that retries a killed
# server there could be given the server's own port, connect to itself, and so keep the server
# from coming back.
_PORTS = range(20_000, 32_000)


def serve_until_interrupted(
    server: AbstractContextManager[T], check: Callable[[T], None], announce: Callable[[T], None]
) -> None:
    """Start a server, call `announce` once it answers, and wait for Ctrl-C, SIGTERM or a closed
    terminal; `check` raises the error of one that has ended by itself.

    Called from the main thread of a process that does nothing else: it takes over the signals. When
    it returns or raises, the server has ended.
    """
    # SIGINT too: a shell that starts us in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with server as started:
            announce(started)
            while True:
                time.sleep(0.5)
                check(started)
    except KeyboardInterrupt:
        pass  # the way to end it


class LocalServers(ABC):
    """Servers for development and tests, as a context manager: started on entry, gone on exit."""

    @abstractmethod
    def start(self) -> None:
        """Start them; return when they answer."""

    @abstractmethod
    def stop(self) -> None:
        """End them, and remove everything not to be kept."""

    def __enter__(self: S) -> S:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(eq=False)
class JavaServer:
    """A Java program that serves until it is killed.

    name: for messages.
    ready: asks the server itself whether it serves. Called again and again; may raise OSError.
    """

    name: str
    java: Path
    arguments: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    environment: Mapping[str, str] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """The JVM's process id, dead or alive."""
        if self._process is None:
            raise ConfigurationError(f"{self.name} was never started")
        return self._process.pid

    def start(self) -> None:
        """Start the server, killing it first if it runs; return when it serves. Raises
        PreflightError with the end of its log if it does not serve within START_TIMEOUT_S."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the server, killing it first if it runs, without waiting."""
        self.kill()
        self._process = self._run(self.arguments)

    def run_once(self, arguments: Sequence[str]) -> None:
        """Run another such program to its end. Raises PreflightError if it fails."""
        process = self._run(arguments)
        code = process.wait(START_TIMEOUT_S)
        release(process)
        if code != 0:
            raise PreflightError(f"{self.name}: set-up ended with code {code}; {self._tail()}")

    def wait_until_ready(self) -> None:
        """Return when the server serves. Raises PreflightError as `start` does."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if not self.alive():
                raise self.ended()
            try:
                if self.ready():
                    return
            except OSError:
                pass  # not yet
            if time.monotonic() > deadline:
                raise PreflightError(
                    f"{self.name} did not serve within {START_TIMEOUT_S} s; {self._tail()}"
                )
            time.sleep(0.05)

    def ended(self) -> PreflightError:
        """Return the error for a server that has ended, with the end of its log."""
        return PreflightError(f"{self.name} has ended; {self._tail()}")

    def alive(self) -> bool:
        """Whether the JVM runs."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        release(self._process)
        return False

    def send(self, number: signal.Signals) -> None:
        """Send the server a signal, if it runs."""
        if self.alive() and self._process is not None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP); return when each of its threads stands still."""
        self.send(signal.SIGSTOP)
        if self.alive():
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """End the server with SIGKILL, like a dying machine; its data stay."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            release(self._process)

    def _run(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return start_jvm(self.java, arguments, log, self.environment)

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-25:]
        return "\n".join([f"its log ({self.log}) ends:", *lines])


def require_free(ports: Sequence[int], what: str) -> None:
    """Raise ConfigurationError for the first of these loopback ports that cannot be listened on."""
    for port in ports:
        if not 0 < port < 65536:
            raise ConfigurationError(f"{what}: port is {port}; give one from 1 to 65535")
        try:
            _listen(port)
        except PermissionError:
            raise ConfigurationError(
                f"{what}: only root may listen on port {port}; give one from 1024 on"
            ) from None
        except OSError:
            raise ConfigurationError(
                f"{what}: port {port} is taken; end the program that listens on it (ss -ltnp names "
                "it), or give another --port"
            ) from None


def _listen(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def free_ports(count: int) -> list[int]:
    """Return `count` loopback ports without a listener now."""
    ports: list[int] = []
    for port in random.sample(_PORTS, 1000):
        try:
            _listen(port)
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise PreflightError(f"no {count} free ports from {_PORTS.start} to {_PORTS.stop}")
