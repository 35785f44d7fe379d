"""The common code of sinks with a server: drivers, URLs, secrets, findings, and retries while it is
away."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from seamark.model.errors import CommitFailedError, ConfigurationError, PreflightError
from seamark.model.findings import Finding, FindingCode, errors
from seamark.model.ignored import ignored

T = TypeVar("T")


def shown(sink: Any, **instead: object) -> str:
    """Return a sink's `repr`, with `instead` in place of the values with secrets."""
    values = {field.name: getattr(sink, field.name) for field in fields(sink) if field.init}
    listed = ", ".join(f"{name}={value!r}" for name, value in (values | instead).items())
    return f"{type(sink).__name__}({listed})"


def split_url(
    url: object, sink: str, schemes: Sequence[str], allowed: str, form: str
) -> SplitResult:
    """Return the parts of a server's URL. Raises ConfigurationError, and never shows the URL in it:
    it may hold a password. `allowed` lists the schemes in words, `form` describes a valid URL."""
    if not isinstance(url, str) or not url:
        raise ConfigurationError(f"{sink}: url is of type {type(url).__name__} or empty; {form}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigurationError(
            f"{sink}: url cannot be taken apart; {form}, with characters such as '@', '/' and ':' "
            "in the password written as %40, %2F and %3A"
        ) from None
    if parts.scheme not in schemes:
        raise ConfigurationError(
            f"{sink}: url has the scheme {parts.scheme[:20]!r}, allowed are {allowed}; {form}"
        )
    return parts


def url_options(
    query: str, sink: str, allowed: Mapping[str, type]
) -> tuple[tuple[str, str | bool], ...]:
    """Return the options after ``?`` in a URL; raises ConfigurationError for other options."""
    options: list[tuple[str, str | bool]] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in allowed:
            raise ConfigurationError(
                f"{sink}: url has the option {name[:40]!r}; allowed are {', '.join(allowed)}"
            )
        flag = value.lower() in ("1", "true", "yes")
        options.append((name, flag if allowed[name] is bool else value))
    return tuple(options)


def tell(findings: Iterable[Finding], log: logging.Logger) -> None:
    """Raise PreflightError for the first error among the findings, else log the warnings."""
    found = list(findings)
    for error in errors(found):
        raise PreflightError(error)
    for finding in found:
        log.warning("%s", finding)


def listed(findings: Iterable[Finding]) -> list[Finding]:
    """Return all findings of a look at a system; a PreflightError that ends the look is the last.
    Every PreflightError of the caller's has a finding."""
    found = []
    try:
        for finding in findings:
            found.append(finding)
    except PreflightError as error:
        assert error.finding is not None
        found.append(error.finding)
    return found


@contextlib.contextmanager
def usable(
    name: str,
    errors: type[Exception] | tuple[type[Exception], ...],
    remedy: str,
    code: FindingCode = FindingCode.SV001,
) -> Iterator[None]:
    """Make PreflightError of the errors of a look at a place: SV003 for a missing right, SV005 for
    a path that is no directory, `code` for any other."""
    try:
        yield
    except errors as error:
        if isinstance(error, PermissionError):
            code = FindingCode.SV003
        elif isinstance(error, NotADirectoryError):
            code = FindingCode.SV005
        raise PreflightError(Finding(code, name, f"it cannot be used: {error}", remedy)) from error


def not_committed(name: str, epoch: int, error: object) -> CommitFailedError:
    """Return the error for decided rows that the target refuses for good."""
    return CommitFailedError(
        f"{name}: the rows of epoch {epoch} are decided and cannot be made visible: {error}. "
        "Nothing of this commit is visible; mend the table or the disk and start the job again, "
        "and they are committed"
    )


class Reasons:
    """A committer's reasons to ask again: logs each once, until the reason changes."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self.last = ""

    def say(self, what: str) -> None:
        """Log the reason, unless it equals the last one."""
        if what != self.last:
            self.last = what
            self._log.warning("%s: %s; trying again", self._name, what)

    def forget(self) -> None:
        """Clear the last reason, after a success."""
        self.last = ""


@contextlib.contextmanager
def closed_by_errors(connected: Any) -> Iterator[None]:
    """Close a connection, or its holder, at any error of the block."""
    try:
        yield
    except BaseException:
        connected.close()
        raise


class ConnectedCommitter:
    """The common part of committers that keep one connection between calls. It is dropped at the
    first error: half an answer may be left in it."""

    def __init__(self, sink_uid: str, target: str, log: logging.Logger) -> None:
        self._name = f"sink `{sink_uid}`: {target}"
        self._connection: Any = None
        self._reasons = Reasons(log, self._name)

    def close(self) -> None:
        """See `Committer`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with ignored("the end of a connection"):  # its end is all that is wanted, in any state
                connection.close()
