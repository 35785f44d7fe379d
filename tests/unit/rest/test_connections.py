"""How: a real server with a small application behind `Protection`; clients are raw sockets sending
nothing, half of a request, or many requests without reading the answers. While they do, others ask,
with the token and without."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from fastapi import FastAPI, Response

import seamark as sm
from seamark.rest import connections
from seamark.rest.connections import Connections, guarded_server
from seamark.rest.server import CONNECTIONS, Protection, listen

TOKEN = "Bearer the-token"
HISTORY = b"x" * 1_000_000
"""As large as the page of a thousand checkpoints."""
LARGE = b"x" * 8_000_000
"""More than the kernel keeps for a client not reading."""
PROMPT_S = 8.0


@contextlib.contextmanager
def serving(requests_per_second: int = 100_000) -> Iterator[int]:
    """Yield the port of a server."""
    app = FastAPI()
    config = sm.RestConfig(requests_per_second=requests_per_second)

    @app.get("/quick")
    def quick() -> str:
        return "here"

    @app.get("/slow")
    def slow() -> str:
        time.sleep(4)
        return "late"

    @app.get("/history")
    def history() -> Response:
        return Response(HISTORY)

    @app.get("/large")
    def large() -> Response:
        return Response(LARGE)

    @app.post("/echo")
    def echo(body: dict[str, int]) -> dict[str, int]:
        return body

    table = Connections(CONNECTIONS)
    guarded = Protection(app, config, table, lambda given: given == TOKEN)
    server = guarded_server(guarded, table, keep_alive_s=5)
    with listen(config) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.force_exit = server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def port() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADERS_S", "BODY_S", "ANSWER_S"):
        monkeypatch.setattr(connections, name, 0.5)


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def connect(port: int, data: bytes = b"", from_: str = "127.0.0.1") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), 10, source_address=(from_, 0))
    line.sendall(data)
    return line


def status(port: int, path: str = "/quick", token: str = "", from_: str = "127.0.0.1") -> int:
    """Ask once, for so long as a person would wait; return the answer's status."""
    headers = ["Connection: close", *([f"Authorization: {token}"] if token else [])]
    begun = time.monotonic()
    with connect(port, request(path, *headers), from_) as line:
        line.settimeout(PROMPT_S)
        found = int(line.recv(1000).split()[1])
    assert time.monotonic() - begun < PROMPT_S
    return found


def read_until(line: socket.socket, end: bytes) -> None:
    found = b""
    while end not in found:
        data = line.recv(1000)
        assert data, f"the connection has ended after {found!r}"
        found += data


def is_ended(line: socket.socket, within_s: float) -> bool:
    """Whether the server ends a connection within this time, whatever it has sent before."""
    line.settimeout(within_s)
    try:
        while line.recv(1_000_000):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@contextlib.contextmanager
def held(lines: list[socket.socket]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for line in lines:
            stack.enter_context(line)
        yield


HALVES = {
    "idle": b"",
    "half of the headers": b"GET /quick HTTP/1.1\r\nHost: localhost\r\nX-More: ",
    "half of a body": request("/echo", "Content-Length: 100", method="POST") + b"{",
    "an answer that is not read": request("/large"),
}


@pytest.mark.parametrize("half", [*HALVES.values()][:3], ids=[*HALVES][:3])
def test_any_number_of_silent_clients_keep_nobody_out(port: int, half: bytes) -> None:
    with held([connect(port, half) for _ in range(2 * CONNECTIONS)]):
        for token in ("", TOKEN):
            assert status(port, token=token) == 200


def test_clients_that_pipeline_and_do_not_read_hold_no_place(port: int) -> None:
    with held([connect(port, request("/history") * 50) for _ in range(CONNECTIONS)]):
        time.sleep(0.5)
        for token in ("", TOKEN, "", TOKEN):
            assert status(port, token=token) == 200


def test_the_holder_of_the_token_has_places_of_his_own(port: int) -> None:
    with held([connect(port, request("/slow")) for _ in range(CONNECTIONS + 20)]):
        time.sleep(0.5)
        assert status(port, token=TOKEN) == 200


def test_the_holder_of_the_token_has_a_rate_of_his_own() -> None:
    with serving(requests_per_second=2) as port:
        # A client of this machine has many addresses, and one rate.
        asked = [status(port, from_=f"127.0.0.{1 + n}") for n in range(30)]
        assert set(asked[:10]) == {200} and set(asked[-10:]) == {429}
        assert status(port, token="Bearer another") == 429
        assert {status(port, token=TOKEN) for _ in range(8)} == {200}
        assert 429 in [status(port, token=TOKEN) for _ in range(20)]


def test_a_connection_of_the_holder_is_not_ended_for_others(port: int) -> None:
    mine = connect(port, request("/quick", f"Authorization: {TOKEN}"))
    read_until(mine, b'"here"')
    with held([mine, *(connect(port) for _ in range(2 * CONNECTIONS))]):
        mine.sendall(request("/quick"))
        read_until(mine, b'"here"')


FLOOD = """
import collections, socket, sys
lines, made = collections.deque(), 0
while True:
    try:
        lines.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1))
        made += 1
    except OSError:
        pass
    if len(lines) > 400:
        lines.popleft().close()
    if made == 200:
        print(made, flush=True)
"""


def test_a_flood_of_connections_keeps_nobody_out(port: int) -> None:
    command = [sys.executable, "-c", FLOOD, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        try:
            assert flood.stdout.readline()
            over = time.monotonic() + 4
            while time.monotonic() < over:
                assert status(port, token=TOKEN) == 200
        finally:
            flood.kill()


# Between two requests a connection is idle for keep_alive_s.
SILENT = [(half, first) for half in HALVES for first in (b"", request("/quick"))]
SILENT.remove(("idle", request("/quick")))


@pytest.mark.parametrize(("half", "first"), SILENT)
def test_a_silent_client_is_waited_for_so_long(
    short: None, port: int, half: str, first: bytes
) -> None:
    with connect(port, first) as line:
        if first:
            read_until(line, b'"here"')
        line.sendall(HALVES[half])
        if half == "an answer that is not read":
            time.sleep(2)
        assert is_ended(line, 10)


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"GET /quick HTTP/1.1\r\nHost: localhost\r\nX: ", b"x"),
        (request("/echo", "Transfer-Encoding: chunked", method="POST"), b"1\r\nx\r\n"),
    ],
    ids=["headers", "body"],
)
def test_a_client_that_sends_by_drops_is_waited_for_no_longer(
    short: None, port: int, head: bytes, drop: bytes
) -> None:
    begun = time.monotonic()
    with connect(port, head) as line, contextlib.suppress(ConnectionError):
        while time.monotonic() - begun < 60:
            line.sendall(drop)
            time.sleep(0.1)
    assert time.monotonic() - begun < 40


def test_a_client_that_reads_slowly_but_reads_gets_all_of_it(port: int) -> None:
    with connect(port, request("/large", "Connection: close")) as line:
        found = b""
        while data := line.recv(400_000):
            found += data
            time.sleep(0.02)
    assert found.endswith(LARGE)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_a_body_is_json_whatever_its_client_calls_it(port: int, kind: str) -> None:
    """As typed: curl -d '{"n": 1}' says that it sends a form."""
    of_kind = [f"Content-Type: {kind}"] if kind else []
    with connect(port) as line:
        line.sendall(request("/echo", *of_kind, "Content-Length: 8", method="POST") + b'{"n": 1}')
        read_until(line, b'{"n":1}')
        line.sendall(request("/echo", *of_kind, "Content-Length: 8", method="POST") + b"not json")
        read_until(line, b"JSON")


def test_one_connection_serves_many_requests(short: None, port: int) -> None:
    with connect(port) as line:
        for number in range(12):
            body = b'{"n": %d}' % number
            line.sendall(
                request(
                    "/echo",
                    "Content-Type: application/json",
                    f"Content-Length: {len(body)}",
                    method="POST",
                )
                + body
            )
            read_until(line, b'{"n":%d}' % number)
            time.sleep(0.1)
        line.sendall(request("/slow"))  # longer than any client is waited for
        read_until(line, b'"late"')
