"""What a source asks of a schema registry: waited for while it is away or busy, never while it says
no. How: Confluent's client asks a small HTTP server, which answers as it is told."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from seamark.model.errors import ConfigurationError, OperationFailedError, PreflightError
from seamark.model.schema_registry import SchemaText, shown
from seamark.sources import registry
from seamark.sources.kafka import KafkaSource
from seamark.sources.registry import Registry
from tests.unit.sources.conftest import Server

SCHEMA = '"string"'
FOUND = 200, {"schema": SCHEMA}
NEWS = 404, {"error_code": 40403, "message": "Schema not found"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE_S", "_LONGEST_PAUSE_S"):
        monkeypatch.setattr(registry, name, 0.01)


def asking(url: str, **settings: Any) -> Registry:
    return Registry({"url": url, "max.retries": 0, **settings}, "orders")


def test_a_busy_registry_is_waited_for(server: Server) -> None:
    busy = 503, {"error_code": 50003, "message": "no leader"}
    server.answers["/schemas/ids/7"] = [busy, (429, {}), busy, FOUND]
    assert asking(server.url).by_id(7) == SchemaText(SCHEMA)


def test_a_registry_that_is_away_is_waited_for(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = server.http.server_address[:2]
    server.http.shutdown()
    server.http.server_close()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(asking(server.url).by_id(7)))
    waiting.start()
    while "does not answer" not in caplog.text and waiting.is_alive():
        waiting.join(0.01)
    server.answers["/schemas/ids/7"] = [FOUND]
    server.http = ThreadingHTTPServer((str(host), int(port)), server.http.RequestHandlerClass)
    threading.Thread(target=server.http.serve_forever, args=(0.01,)).start()
    waiting.join(30)
    assert found == [SchemaText(SCHEMA)]


def test_an_id_may_be_news(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers["/schemas/ids/7"] = [NEWS, NEWS, FOUND]
    monkeypatch.setattr(registry, "_DOUBT_S", 60.0)  # a loaded machine answers late
    assert asking(server.url).by_id(7) == SchemaText(SCHEMA)
    server.answers["/schemas/ids/8"] = [NEWS]
    monkeypatch.setattr(registry, "_DOUBT_S", 1.0)
    one = asking(server.url)
    assert one.by_id(8) is None
    asked = server.asked.count("/schemas/ids/8")
    assert asked > 1
    assert one.by_id(8) is None
    assert server.asked.count("/schemas/ids/8") == asked
    monkeypatch.setattr(registry, "_UNKNOWN_S", 0.0)
    monkeypatch.setattr(registry, "_DOUBT_S", 60.0)
    server.answers["/schemas/ids/8"] = [NEWS, FOUND]
    assert asking(server.url).by_id(8) == SchemaText(SCHEMA)


@pytest.mark.parametrize(
    "answer",
    [(401, {"error_code": 401, "message": "who is me:s3cr3t?"}),
     (404, {"error_code": 404, "message": "HTTP 404 Not Found"})],
)  # fmt: skip
def test_a_refusal_is_no_unknown_id(server: Server, answer: tuple[int, Any]) -> None:
    server.answers["/schemas/ids/7"] = [answer]
    one = asking(server.url, **{"basic.auth.user.info": "me:s3cr3t"})
    with pytest.raises(OperationFailedError, match=r"orders: .* id 7 \(40") as caught:
        one.by_id(7)
    assert "s3cr3t" not in str(caught.value)


def test_references_come_first_and_once(server: Server) -> None:
    def version(text: str, *references: str) -> tuple[int, Any]:
        named = [{"name": r.upper(), "subject": r, "version": 2} for r in references]
        return 200, {"subject": "s", "id": 1, "version": 2, "schema": text, "references": named}

    server.answers["/subjects/x-value/versions/latest"] = [version("X", "b", "a")]
    server.answers["/subjects/b/versions/2"] = [version("B's", "a")]
    server.answers["/subjects/a/versions/2"] = [version("A's")]
    assert asking(server.url).of_subject("x-value", None) == (
        2, SchemaText("X", (("A", "A's"), ("B", "B's"))),
    )  # fmt: skip


def test_a_reference_that_was_deleted_since(server: Server) -> None:
    """A registry keeps what is deleted softly for those who ask for it: old records need it."""
    named = [{"name": "A", "subject": "a", "version": 1}]
    server.answers["/schemas/ids/7"] = [(200, {"schema": SCHEMA, "references": named})]
    found = {"subject": "a", "id": 1, "version": 1, "schema": "A's"}
    server.answers["/subjects/a/versions/1?deleted=true"] = [(200, found)]
    gone = 404, {"error_code": 40402, "message": "Version 1 not found."}
    server.answers["/subjects/a/versions/1"] = [gone]
    assert asking(server.url).by_id(7) == SchemaText(SCHEMA, (("A", "A's"),))


@pytest.mark.parametrize("settings", [{"wrong": 1}, {"proxy": "socks9://me:s3cr3t@h:1"}])
def test_settings_that_the_client_does_not_know(settings: dict[str, Any]) -> None:
    with pytest.raises(PreflightError, match="orders: schema_registry is refused by its") as caught:
        asking("http://127.0.0.1:9", **settings)
    assert "s3cr3t" not in str(caught.value) + str(shown(settings))


def source(**settings: Any) -> KafkaSource:
    given = {"topics": "orders", "schema_registry": {"url": "http://127.0.0.1:9"}, **settings}
    return KafkaSource("localhost:9092", **given)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "schema_registry is given and value_format is None"),
        ({"schema_registry": None, "on_bad_row": "keep"}, "on_bad_row is given"),
        ({"value_format": "xml"}, "value_format is 'xml'; allowed are 'avro', 'json-schema'"),
        ({"value_format": "avro", "schema_registry": None}, "needs schema_registry="),
        ({"value_format": "avro", "schema_registry": {"url": "http://a:b@c"}}, "holds a user"),
        ({"value_format": "avro", "schema_registry": {"url": "http://a:b,c@d"}}, "holds a user"),
        ({"value_format": "avro", "schema_registry": {"url": "http://a:b/c@d"}}, "holds a user"),
        ({"value_format": "avro", "on_bad_row": "drop"}, "on_bad_row is 'drop'"),
        ({"value_format": "avro", "value_schema": 1.5}, "value_schema is 1.5"),
        ({"value_format": "avro", "value_schema": 0}, "value_schema is 0; .* a version, from 1"),
        ({"value_format": "avro", "value_schema": " "}, "value_schema is ' '"),
        ({"value_format": "avro", "subject": ""}, "subject is ''"),
        ({"value_format": "avro", "subject": 5}, "subject is 5"),
        ({"value_format": "avro", "topics": ["a", "b"]}, "not one topic; give subject="),
    ],
)
def test_settings_of_a_source(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        source(**settings)
    assert "KafkaSource " in str(caught.value)


def test_a_source_shows_no_login() -> None:
    login = {"url": "http://127.0.0.1:9", "basic.auth.user.info": "me:s3cr3t"}
    assert "s3cr3t" not in repr(source(value_format="avro", schema_registry=login))
    given = source(value_format="avro", value_schema=SCHEMA, topics=["a", "b"])
    decoder = given.create_decoder()
    assert decoder is not None and str(decoder.value_type) == "string"
    assert KafkaSource("localhost:9092", "orders").create_decoder() is None
