"""How: tokens are made, read and deleted in a home of the test's own, under the widest umask; the
modes of new files are read back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.jobs.token import DriverToken, token_path, tokens_at_hand
from seamark.model.errors import UserError
from tests.tokens import read_token

JID = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    for variable in ("SEAMARK_TOKEN", "SEAMARK_TOKEN_FILE"):
        monkeypatch.delenv(variable, raising=False)
    before = os.umask(0)  # the widest: modes must not depend on it
    yield tmp_path / "home"
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_reaches_the_token(home: Path) -> None:
    token = DriverToken(JID)
    assert token.path == home / "tokens" / JID
    assert [mode(path) for path in (home, home / "tokens", token.path)] == [0o700, 0o700, 0o600]
    assert list((home / "tokens").iterdir()) == [token.path]


def test_who_reads_the_file_is_allowed_and_nobody_else() -> None:
    token = DriverToken(JID)
    read = read_token(JID)
    assert read is not None
    assert token.allows(f"Bearer {read}")
    assert token.allows(f"bearer  {read}")
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {read}",
        read,
        f"Bearer {read}x",
        "Bearer é",
    ):
        assert not token.allows(wrong), wrong
    assert not token.allows(f"Bearer {read[:-1]}{'a' if read[-1] != 'a' else 'b'}")
    assert read not in repr(token) + str(vars(token).keys())


def test_each_driver_has_its_own_and_deletes_no_other() -> None:
    first, second = DriverToken(JID), DriverToken(JID)
    read = read_token(JID)
    assert second.allows(f"Bearer {read}")
    assert not first.allows(f"Bearer {read}")
    first.delete()
    assert read_token(JID) == read
    second.delete()
    assert read_token(JID) is None
    second.delete()


def test_a_directory_that_others_reach_is_refused(home: Path) -> None:
    (home / "tokens").mkdir(parents=True, mode=0o755)
    with pytest.raises(UserError, match=r"mode 755.*give it mode 700"):
        DriverToken(JID)
    assert not token_path(JID).exists()


def test_a_directory_that_is_a_link_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    home.mkdir(mode=0o700)
    (home / "tokens").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="others can reach it"):
        DriverToken(JID)


@pytest.mark.parametrize("jid", ["", "../../etc/passwd", JID.upper(), JID + "0", JID[:-1] + "\n"])
def test_what_is_no_job_id_names_no_file(jid: str) -> None:
    with pytest.raises(UserError, match="is no job id"):
        token_path(jid)


def test_a_file_that_holds_no_token_gives_none(home: Path) -> None:
    path = DriverToken(JID).path
    path.write_text("not a token\n")
    assert read_token(JID) is None
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(UserError, match=r"tokens/.*cannot be read"):
        read_token(JID)


@pytest.mark.parametrize("way", ["SEAMARK_TOKEN", "SEAMARK_TOKEN_FILE"])
def test_a_given_token_is_the_drivers_and_lies_in_no_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    secret = "0123456789abcdef" * 2
    file = tmp_path / "secret"
    file.write_text(secret + "\n")
    monkeypatch.setenv(way, secret if way == "SEAMARK_TOKEN" else str(file))
    driver = DriverToken(JID)
    assert driver.allows(f"Bearer {secret}") and not driver.allows(f"Bearer {secret}x")
    assert not home.exists()
    assert read_token(JID) == secret
    driver.delete()
    assert read_token(JID) == secret


def test_a_given_token_replaces_that_of_a_killed_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = DriverToken(JID)
    monkeypatch.setenv("SEAMARK_TOKEN", "g" * 40)
    assert list(tokens_at_hand(JID)) == [killed.path.read_text().strip(), "g" * 40]
    driver = DriverToken(JID)
    assert read_token(JID) == "g" * 40
    assert driver.allows(f"Bearer {'g' * 40}")
    assert not killed.path.exists()


def test_a_bad_given_token_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bad in ("short-token", "x" * 31, "white space " * 4, "é" * 40):
        monkeypatch.setenv("SEAMARK_TOKEN", bad)
        with pytest.raises(UserError, match="SEAMARK_TOKEN holds no token") as caught:
            DriverToken(JID)
        assert bad not in str(caught.value)
    monkeypatch.delenv("SEAMARK_TOKEN")
    monkeypatch.setenv("SEAMARK_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(UserError, match="none cannot be read"):
        read_token(JID)
