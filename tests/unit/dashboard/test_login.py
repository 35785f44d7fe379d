"""How: requests as ASGI scopes, from several addresses; options as a user gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.dashboard.login import Login, by_header
from seamark.dashboard.server import Served
from seamark.model.errors import UserError


def scope(client: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    found = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {"client": None if client is None else (client, 4711), "headers": found}


def test_a_header_is_believed_from_the_proxy_alone() -> None:
    header, proxies = by_header("X-Forwarded-User", ["10.0.0.0/30", "fd00::7"])
    login = Login("token", False, header, proxies)
    name = ("x-forwarded-user", " ada ")
    for client in ("10.0.0.3", "fd00::7", "::ffff:10.0.0.3"):
        assert login.user(scope(client, name)) == "ada"
    for client in ("10.0.0.4", "fd00::8", "127.0.0.1", "", None):
        assert login.user(scope(client, name)) == ""
        assert not login.knows(scope(client, name))
    assert not login.knows(scope("10.0.0.3", name, name))
    assert not login.may_change(scope("10.0.0.3", name))
    assert login.may_change(scope("10.0.0.3", name, ("x-requested-with", "seamark")))
    assert Login("token").user(scope("10.0.0.3", name)) == "", "no header was agreed on"


@pytest.mark.parametrize(
    ("header", "proxies", "said"),
    [
        ("X-User", [], "--login-header needs --proxy"),
        ("", ["10.0.0.7"], "--proxy needs --login-header"),
        ("X User", ["10.0.0.7"], "--login-header is 'X User'"),
        ("Cookie", ["10.0.0.7"], "every browser sends"),
        ("X-User", ["proxy.example"], "--proxy is 'proxy.example'"),
        ("X-User", ["10.0.0.7/8"], "--proxy is '10.0.0.7/8'"),
    ],
)
def test_a_proxy_that_is_not_well_given(header: str, proxies: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        by_header(header, proxies)


def test_options_that_cannot_be_served(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("secret\n")
    for served, said in (
        (Served(address="not an address"), "--address is 'not an address'"),
        (Served(certificate=tmp_path / "none.pem"), r"the dashboard cannot use --certificate"),
        (Served(token_file=short), "holds no token: it has 6 characters"),
        (Served(token_file=tmp_path / "none"), "cannot be read"),
    ):
        with pytest.raises(UserError, match=said):
            served.checked()


def test_who_may_look_without_a_login() -> None:
    assert Served().checked()[1].is_open
    assert Served(address="::1").checked()[1].is_open
    assert not Served(address="0.0.0.0").checked()[1].is_open
    behind = Served(header="X-User", proxies=["127.0.0.1"]).checked()[1]
    assert not behind.is_open, "a proxy on this machine logs in too"
