"""The common code of sinks with a server: drivers, URLs, secrets and findings."""

import contextlib
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from seamark.model.errors import ConfigurationError, PreflightError
from seamark.model.findings import Finding, FindingCode, Severity

A = TypeVar("A", bound="Address")
Findings = Generator[Finding, None, None]
"""What a look at a system finds. A look with `start` is that of a job's start: it makes what the
job needs, and `tell` ends it at the first error. Else it changes nothing, and `listed` takes it
all."""


def shown(sink: Any, **instead: object) -> str:
    """Return a sink's `repr`, with `instead` in place of the values with secrets."""
    values = {one.name: getattr(sink, one.name) for one in fields(sink) if one.init}
    listed = ", ".join(f"{name}={value!r}" for name, value in (values | instead).items())
    return f"{type(sink).__name__}({listed})"


def one_line(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return an error's text as one line, without these secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


@dataclass(frozen=True)
class Address:
    """A server's address and login. Picklable; shows no password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    options: tuple[tuple[str, str | bool], ...] = ()
    timeout_s: float = 20.0

    @classmethod
    def of(cls: type[A], url: SplitResult, port: int, **others: Any) -> A:
        """Return the address in a URL's parts; `port` is the server's own."""
        login = unquote(url.username or ""), unquote(url.password or "")
        return cls(url.hostname or "localhost", url.port or port, *login, **others)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


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


_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


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
        flag = _FLAGS.get(value.lower())
        if not value or (allowed[name] is bool and flag is None):
            raise ConfigurationError(
                f"{sink}: url has the option {name}={value[:40]!r}; give it "
                + ("true or false" if allowed[name] is bool else "a value, or leave it out")
            )
        options.append((name, value if flag is None or allowed[name] is not bool else flag))
    return tuple(options)


def quicker(name: str, found: str, mode: str) -> Finding:
    """Return the note that a server and its user have what a quicker mode needs."""
    found = f"{found}: mode={mode!r} is allowed there, and writes each row once instead of twice"
    remedy = f"give mode={mode!r} if no reader minds that a task's rows appear before another's"
    return Finding(FindingCode.SV008, name, found, remedy)


def tell(findings: Findings, log: logging.Logger) -> None:
    """Raise PreflightError for the first error among the findings, and end the look there; log the
    others."""
    with contextlib.closing(findings):
        for finding in findings:
            if finding.weight is Severity.ERROR:
                raise PreflightError(finding)
            log.log(
                logging.WARNING if finding.weight is Severity.WARNING else logging.INFO, finding
            )


def listed(findings: Iterable[Finding]) -> list[Finding]:
    """Return all findings of a look at a system; a PreflightError that ends the look is the last.
    Every PreflightError of the caller's has a finding."""
    told = []
    try:
        for finding in findings:
            told.append(finding)
    except PreflightError as error:
        assert error.finding is not None
        told.append(error.finding)
    return told


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
