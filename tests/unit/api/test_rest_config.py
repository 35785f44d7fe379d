"""How: a bad value in every setting, and the settings from outside over the program's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seamark as sm
from seamark.api.settings import COMMAND_LINE_VARIABLE, FILE_VARIABLE, resolve
from seamark.model.errors import ConfigurationError

PROGRAM = sm.CheckpointConfig(storage="/store")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"enabled": "yes"}, "enabled is 'yes'"),
        ({"address": ""}, "address is ''"),
        ({"address": "http://localhost"}, "address is 'http://localhost'"),
        ({"address": None}, "address is None"),
        ({"certificate": 7}, "certificate is 7"),
        ({"certificate": ""}, "certificate is ''"),
        ({"advertised_address": ""}, "advertised_address is ''"),
        ({"advertised_address": "a b"}, "advertised_address is 'a b'"),
        ({"advertised_address": "h:99999"}, "advertised_address is 'h:99999'"),
        ({"advertised_address": "ftp://h"}, "advertised_address is 'ftp://h'"),
        ({"advertised_address": "http://u:p@h"}, "advertised_address is 'http://u:p@h'"),
        ({"advertised_address": "http://h/jobs"}, "advertised_address is 'http://h/jobs'"),
        ({"port": -1}, "port is -1"),
        ({"port": 65536}, "port is 65536"),
        ({"port": "8081"}, "port is '8081'"),
        ({"port": True}, "port is True"),
        ({"requests_per_second": 0}, "requests_per_second is 0"),
    ],
)
def test_a_bad_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sm.RestConfig(**settings)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.7", False), ("driver.example", False)],
)  # fmt: skip
def test_loopback_is_known(address: str, loopback: bool) -> None:
    assert sm.RestConfig(address=address).is_loopback is loopback


@pytest.mark.parametrize(
    ("told", "url"),
    [(None, ""), ("node7", "http://node7:4711"), ("10.1.2.3:80", "http://10.1.2.3:80"),
     ("[fd00::7]", "http://[fd00::7]:4711"), ("https://p.example", "https://p.example"),
     ("https://p.example:8443/", "https://p.example:8443")],
)  # fmt: skip
def test_the_address_told(told: str | None, url: str) -> None:
    assert sm.RestConfig(advertised_address=told).advertised_url(4711) == url


def test_the_address_told_over_tls() -> None:
    config = sm.RestConfig(advertised_address="node7", certificate="own.pem")
    assert config.advertised_url(4711) == "https://node7:4711"


def test_the_file_and_the_command_line_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "seamark.toml"
    file.write_text('[rest]\nport = 7000\naddress = "::1"\n')
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    monkeypatch.setenv(COMMAND_LINE_VARIABLE, '["rest.port=7001"]')
    _, settings, rest = resolve("j", PROGRAM, sm.RestConfig(requests_per_second=5, port=6000))
    assert rest == sm.RestConfig(address="::1", port=7001, requests_per_second=5)
    origins = {key: s.origin for key, s in settings.items() if key.startswith("rest.")}
    assert origins == {
        "rest.enabled": "default",
        "rest.address": str(file),
        "rest.port": "command line",
        "rest.advertised_address": "default",
        "rest.certificate": "default",
        "rest.requests_per_second": "program",
    }


def test_a_bad_value_from_outside_says_where_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND_LINE_VARIABLE, '["rest.port=99999"]')
    with pytest.raises(ConfigurationError, match=r"rest\.port was given on the command line"):
        resolve("j", PROGRAM)
    monkeypatch.setenv(COMMAND_LINE_VARIABLE, '["rest.prot=1"]')
    with pytest.raises(ConfigurationError, match=r"did you mean 'rest\.port'"):
        resolve("j", PROGRAM)
    with pytest.raises(ConfigurationError, match=r"give sm\.RestConfig"):
        resolve("j", PROGRAM, {"port": 1})
