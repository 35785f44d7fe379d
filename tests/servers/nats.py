"""A real NATS server with JetStream below one directory: the machine's own, Debian's, or one built
by Go.

``nats-server`` is looked for on the machine; then root gets Debian's package into the cache, which
is unpacked and not installed; then Go builds the newest. Where none is to be had, `NatsServer`
raises `NotToBeHadError` (`needed.py`).

It writes each message through, so `kill` (kill -9) loses nothing answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from seamark.dev.server_process import ServerProcess
from seamark.spark.jars import cache_directory
from tests.servers.memory import server_directory
from tests.servers.needed import NotToBeHadError


class NatsServer(ServerProcess):
    """A server; `url` is its clients'."""

    def __init__(self) -> None:
        self._program = _program()
        super().__init__(server_directory("sm-nats-"), {})
        self.url = f"nats://127.0.0.1:{self.port}"

    def make_stream(self, name: str, subject: str, window_s: float) -> None:
        """Make an empty stream."""

        async def make(context: Any) -> None:
            await context.add_stream(name=name, subjects=[subject], duplicate_window=window_s)

        asyncio.run(self._with_stream(make))

    def drop_stream(self, name: str) -> None:
        """Delete a stream, if it is there."""

        async def drop(context: Any) -> None:
            from nats.js.errors import NotFoundError

            with contextlib.suppress(NotFoundError):
                await context.delete_stream(name)

        asyncio.run(self._with_stream(drop))

    def messages(self, stream: str, subject: str) -> list[str]:
        """Return the text of each message in a stream, in its order."""

        async def read(context: Any) -> list[str]:
            count = (await context.stream_info(stream)).state.messages
            reader = await context.subscribe(subject, stream=stream, ordered_consumer=True)
            return [(await reader.next_msg(60)).data.decode() for _ in range(count)]

        return list(asyncio.run(self._with_stream(read)))

    async def _with_stream(self, call: Any) -> Any:
        import nats

        client = await nats.connect(self.url, allow_reconnect=False, max_reconnect_attempts=1)
        try:
            return await call(client.jetstream(timeout=30))
        finally:
            await client.close()

    def _command(self) -> list[object]:
        configuration = self._root / "server.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self._root}/data" }}\n'
        )
        return [self._program, "-c", configuration]

    def _ask(self) -> None:
        async def ask(context: Any) -> None:
            await context.account_info()

        asyncio.run(self._with_stream(ask))


def _program() -> Path:
    if found := shutil.which("nats-server"):
        return Path(found)
    base = cache_directory("nats")
    base.mkdir(parents=True, exist_ok=True)
    by_debian = [
        ["apt-get", "-q", "update"],
        ["apt-get", "-q", "-oAPT::Sandbox::User=root", "download", "nats-server"],
        ["sh", "-c", "dpkg-deb -x nats-server_*.deb unpacked && ln -s unpacked/usr/sbin bin"],
    ]
    by_go = [["go", "install", "github.com/nats-io/nats-server/v2@latest"]]
    ways = [by_debian] if os.geteuid() == 0 and shutil.which("apt-get") else []
    ways += [by_go] if shutil.which("go") else []
    program, refused = base / "bin/nats-server", []
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for way in ways:
            if program.exists():
                break
            refused += _run(way, base)
    if program.exists():
        return program
    raise NotToBeHadError(
        "no nats-server on this machine, and neither Debian's apt-get (as root) nor go gives one"
        f"{': ' * bool(refused)}{'; '.join(refused)}"
    )


def _run(commands: list[list[str]], directory: Path) -> list[str]:
    """Run commands one after another; return what the first that failed says."""
    for command in commands:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=900, check=False,
            env={**os.environ, "GOBIN": str(directory / "bin"), "GOFLAGS": "-modcacherw"},
        )  # fmt: skip
        if done.returncode:
            return [f"{' '.join(command)}: {done.stderr.strip()[-300:]}"]
    return []
