"""The proxy before a server that answers each request with the same bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from seamark.verify.proxy import CuttingProxy
from tests.chaos.driver import wait_until


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(1000):
            connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[connection], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener, CuttingProxy() as made:
        made.target = listener.getsockname()
        yield made


def ask(line: socket.socket, timeout_s: float = 60) -> bytes:
    line.settimeout(timeout_s)
    line.sendall(b"hello")
    return line.recv(1000)


def connect(proxy: CuttingProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port))


def test_it_passes_everything_on(proxy: CuttingProxy) -> None:
    with connect(proxy) as line:
        assert [ask(line), ask(line)] == [b"hello"] * 2


def test_a_reply_is_delayed(proxy: CuttingProxy) -> None:
    with connect(proxy) as line:
        proxy.delay_s = 0.2
        begun = time.monotonic()
        assert ask(line) == b"hello"
        assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize("commit", [b"COMMIT PREPARED 'a'", b"\0\0\0\x20\0\x1a\0\5"])
def test_the_next_commit_stands_still_and_the_other_lines_go_on(
    commit: bytes, proxy: CuttingProxy
) -> None:
    with connect(proxy) as held, connect(proxy) as other:
        assert ask(held) == b"hello"
        proxy.hold_s = 600.0
        held.sendall(commit)
        wait_until("the commit to be held", lambda: proxy.held == 1, 60)
        assert ask(other, 60) == b"hello"
        assert proxy.hold_s == 0.0, "once"
        held.settimeout(0.1)
        with pytest.raises(TimeoutError):
            held.recv(1000)
        proxy.hold_s = 0.5
        begun = time.monotonic()
        other.sendall(commit)
        assert other.recv(1000) == commit
        assert time.monotonic() - begun >= 0.5
        assert proxy.held == 2


def test_replies_are_dropped_and_the_line_ends_afterwards(proxy: CuttingProxy) -> None:
    with connect(proxy) as line:
        proxy.drops = True
        with pytest.raises(TimeoutError):
            ask(line, 0.2)
        proxy.drops = False
        line.settimeout(60)
        assert line.recv(1000) == b""
    with connect(proxy) as line:
        assert ask(line) == b"hello", "a new line works"


def test_all_lines_are_cut(proxy: CuttingProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        assert ask(first) == ask(second) == b"hello"
        proxy.cut_all()
        assert proxy.cuts == 2
        assert [first.recv(1000), second.recv(1000)] == [b"", b""]


@pytest.mark.parametrize("side", ["request", "reply"])
def test_the_second_one_is_cut(side: str, proxy: CuttingProxy) -> None:
    with connect(proxy) as line:
        proxy.cut_at(side, 2)  # type: ignore[arg-type]
        assert ask(line) == b"hello"
        assert ask(line) == b""
        assert proxy.cuts == 1
