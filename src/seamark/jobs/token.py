"""The bearer token of a running job: every reader of its file may change the job.

    <SEAMARK_HOME, or ~/.seamark>/tokens/<job id>        0600, in directories of 0700

A driver makes a new token when it starts a job (`DriverToken`) and deletes it at its end. The
command line and the dashboard read it from its file (`tokens_at_hand`). Where they run on another
machine, driver and callers are given one token instead (`given_token`), e.g. from a secret of
Kubernetes. Nothing else contains it.

With the token the driver signs the record of its own address. Every sender of the token checks the
signature first (`driver.Driver.require_signed`): a forged record must not get the token.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from seamark.model.errors import UserError
from seamark.model.home import HOME_VARIABLE, seamark_home

TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "SEAMARK_TOKEN", "SEAMARK_TOKEN_FILE"
"""Environment: a job's token, or the path of a file with it: for its driver, and for callers."""
_JOB_ID = re.compile(r"[0-9a-f]{32}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_GIVEN = re.compile(r"[A-Za-z0-9._~+/=-]{32,512}")


def token_path(jid: str) -> Path:
    """Return the path of a job's token while the job runs. Raises UserError if `jid` is no job id
    (32 hex digits): it may come from a request."""
    if not _JOB_ID.fullmatch(jid):
        raise UserError(f"{jid!r} is no job id; give its 32 hex digits, as `seamark list` shows")
    return seamark_home() / "tokens" / jid


def given_token() -> str | None:
    """Return the token given by the environment; None if there is none. Raises UserError for one
    that cannot be read or guessed too easily."""
    if token := os.environ.get(TOKEN_VARIABLE, "").strip():
        return _checked(token, TOKEN_VARIABLE)
    if path := os.environ.get(TOKEN_FILE_VARIABLE):
        return token_in(Path(path), f"{TOKEN_FILE_VARIABLE} {path}")
    return None


def token_in(path: Path, source: str) -> str:
    """Return the token in a file given by the user as `source`. Raises as `given_token`."""
    try:
        return _checked(path.read_text(encoding="ascii").strip(), source)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{source} cannot be read ({type(error).__name__}); give the path of a file with a "
            "token"
        ) from None


def _checked(token: str, source: str) -> str:
    if not _GIVEN.fullmatch(token):
        raise UserError(
            f"{source} holds no token: it has {len(token)} characters; give 32 to 512 letters, "
            "digits and -._~+/=, e.g. of: openssl rand -hex 32"
        )
    return token


def tokens_at_hand(jid: str) -> Iterator[str]:
    """Yield the tokens that may be a job's: the one made by a driver of this user on this machine,
    then the one given by the environment. None is there if the job has ended, or runs elsewhere, or
    under another user with another home.

    A killed driver leaves its token behind, and no driver accepts it any more: the signature of a
    driver's record tells which token is its own (`driver.Driver.token`). Raises UserError if the
    file may not be read, and no other token is given.
    """
    path = token_path(jid)
    token = ""
    try:
        with path.open(encoding="ascii") as file:
            token = file.read(100).strip()
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError) and given_token() is None:
            raise UserError(
                f"the job's token {path} cannot be read ({type(error).__name__}); only the user "
                f"who runs the job's driver may: be that user, or set {HOME_VARIABLE} to his "
                "directory"
            ) from None
    if _TOKEN.fullmatch(token):
        yield token
    if given := given_token():
        yield given


def sign(token: str, content: bytes) -> str:
    """Return the signature of `content`. Only a holder of the token can make it."""
    return hmac.new(token.encode(), content, hashlib.sha256).hexdigest()


def is_signed(token: str, content: bytes, signature: str) -> bool:
    """Tell whether `signature` is the token's signature of `content`."""
    return hmac.compare_digest(sign(token, content).encode(), signature.encode())


def is_bearer(authorization: str | None, token: str) -> bool:
    """Tell whether the value of a request's ``Authorization`` header is this token, as a bearer's.
    Takes the same time for every wrong token of the right length."""
    scheme, _, given = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode(), token.encode()
    )


class DriverToken:
    """The token of one driver, and its file; no file if the environment gives the token. Made once
    per driver, when the job's id is known; replaces the token of an earlier driver. Raises
    UserError if its directory is open to others, and OSError if it cannot be written."""

    def __init__(self, jid: str) -> None:
        self.path = token_path(jid)
        if given := given_token():
            self._token = given
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)  # of a killed driver
            return
        self._token = secrets.token_urlsafe(32)
        _make_private(self.path.parent)
        aside = self.path.with_name(f".{jid}.{secrets.token_hex(8)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(self._token + "\n")
            aside.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise

    def allows(self, authorization: str | None) -> bool:
        """Tell whether a request's ``Authorization`` header has this token."""
        return is_bearer(authorization, self._token)

    def sign(self, content: bytes) -> str:
        """Return this token's signature of `content`."""
        return sign(self._token, content)

    def delete(self) -> None:
        """Delete the file, unless a later driver has put its own token there. Never raises."""
        with contextlib.suppress(OSError, UserError):
            if self.path.read_text(encoding="ascii").strip() == self._token:
                self.path.unlink()


def _make_private(directory: Path) -> None:
    """Make a directory and its parent for this user only. Raises UserError if others reach it."""
    for part in (directory.parent, directory):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UserError(
            f"{directory} is to hold tokens, but others can reach it: mode "
            f"{stat.S_IMODE(status.st_mode):o}, owner {status.st_uid}; give it mode 700 and the "
            f"owner {os.geteuid()}, or set {HOME_VARIABLE} to another directory"
        )
