"""RedisSink over TLS: a real server with a certificate, and with client certificates required.

How: an authority of the tests' own signs both. A reader beside the sink uses the plain port.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trustme

from seamark.dev.java_server import free_ports
from seamark.model.errors import PreflightError
from seamark.sinks.redis import RedisSink
from seamark.verify.conformance.steps import driver
from tests.integration.redis import sink_kit as kit
from tests.integration.redis.test_sink_rows import MODES, put
from tests.servers.needed import needed
from tests.servers.redis import PASSWORD, RedisServer


class SecureRedis:
    """The server, and its clients' files."""

    def __init__(self, directory: Path, host: str) -> None:
        authority = trustme.CA()
        self.client_options = {"ssl_ca_certs": str(directory / "ca.pem")}
        authority.cert_pem.write_to_path(self.client_options["ssl_ca_certs"])
        for name, whose in (("server", host), ("client", "etl@example.org")):
            made = authority.issue_cert(whose)
            made.cert_chain_pems[0].write_to_path(str(directory / f"{name}.pem"))
            made.private_key_pem.write_to_path(str(directory / f"{name}.key"))
        self.login = {
            "ssl_certfile": str(directory / "client.pem"),
            "ssl_keyfile": str(directory / "client.key"),
        }
        (self.port,) = free_ports(1)
        self.server = RedisServer(
            {
                "tls-port": str(self.port),
                "tls-cert-file": str(directory / "server.pem"),
                "tls-key-file": str(directory / "server.key"),
                "tls-ca-cert-file": self.client_options["ssl_ca_certs"],
            },
            tls=True,
        )

    def sink(self, mode: str = "staged", scheme: str = "rediss", **options: str) -> RedisSink:
        url = self.server.url(port=self.port).replace("redis:", f"{scheme}:")
        return RedisSink(
            f"{url}?{urlencode(options)}" if options else url,
            "number", "value", key_prefix="row:", mode=mode,  # type: ignore[arg-type]
        )  # fmt: skip


def serving(directory: Path, host: str) -> Iterator[SecureRedis]:
    with needed("Redis with TLS"):
        secure = SecureRedis(directory, host)
    with secure.server:
        yield secure


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureRedis]:
    yield from serving(tmp_path, "127.0.0.1")


def test_rows_are_committed_over_tls(secure: SecureRedis) -> None:
    for first, mode in ((0, MODES[0]), (100, MODES[1])):
        sink = secure.sink(mode, **secure.client_options, **secure.login)
        with_checks = sink.create_committer(driver())
        with_checks.preflight()
        with_checks.close()
        put(sink, kit.batch(range(first, first + 100)))
    assert sorted(kit.visible(secure.server)) == list(range(200))


def test_what_is_wrong_is_said_at_the_start_without_the_password(secure: SecureRedis) -> None:
    known, login = secure.client_options, secure.login
    for sink, why in (
        (secure.sink(**login), "certificate verify failed"),
        (secure.sink(**known), "(certificate required|EOF occurred|reset).*ssl_certfile"),
        (secure.sink(scheme="redis"), "cannot be used"),
    ):
        with pytest.raises(PreflightError, match=why) as caught:
            sink.create_committer(driver()).preflight()
        assert PASSWORD not in str(caught.value)


def test_a_certificate_of_another_host_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    for secure in serving(tmp_path, "cache.example.org"):
        options = {**secure.client_options, **secure.login}
        with pytest.raises(PreflightError, match=r"doesn't match|mismatch|not valid for"):
            secure.sink(**options).create_committer(driver()).preflight()
        put(secure.sink(**options, ssl_check_hostname="false"), kit.batch(range(3)))
        assert sorted(kit.visible(secure.server)) == [0, 1, 2]
