"""Removes secrets from published text: answers of the REST interface, records, log lines.

`redact` hides any text that looks like a secret. `Redactor` also hides every occurrence of known
secrets. Better too much than too little: `redact` may also hide an innocent ``token=``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
SHORTEST = 6
"""A known secret with fewer characters is hidden only if it looks like a secret there."""
_NO_SECRET = re.compile(r"true|false|none|null|[/.~].*|file:.*", re.IGNORECASE)
"""The innocent values of a setting named like a secret: a switch, or the path of a file."""

_NAME = re.compile(r"[\w.-]+")
_LONG = re.compile(
    r"passw(?:or)?d|passwd|passphrase|passcode|\bpwd|secret|token|credentials?|signature"
    r"|api[_.-]?key|access[_.-]?key(?:[_.-]?id)?|account[_.-]?key|private[_.-]?key|session[_.-]?key"
    r"|(?:shared|encryption|master|sas)[_.-]?key|(?:\b|_)sse[_.-](?:\w+[_.-])?key|\bsig|\bsas\b"
    r"|jaas[._-]?config|authorization|user[._-]?info|\bheader\.",
    re.IGNORECASE,
)
_SHORT = re.compile(
    r"(?:pass|pw)\d?\Z(?<!bypass)(?<!compass)(?<!surpass)(?<!trespass)", re.IGNORECASE
)
"""The end of a name; in a sentence it may be a word with another meaning: `_is_innocent`."""
_USER_INFO = (
    # scheme://user:password@host, where the password may hold slashes, but not scheme://host:80/a@b
    re.compile(r"(?<=://)[^\s/'\"<>@:]*:(?!\d{1,5}[/?#\s])[^\s'\"<>]*@(?=[^\s@'\"<>]*)"),
    re.compile(r"(?<=://)[^\s/?#'\"<>]+@"),  # scheme://token@host
    re.compile(r"(?<![\w.+-])[\w.+-]+:[^\s:/@'\"]+@tcp\("),
)
_VALUE = re.compile(
    r"\\\"(?:[^\"\\]|\\[^\"])*\\\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    r"|(?:bearer|basic)\s+\S+|[^\s,;&)}\]'\"]+",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>{_NAME.pattern})(?P<between>\\?[\"']?\s*(?:=>|=|:|\bis\b)\s*)",
    re.IGNORECASE,
)
_BEFORE_PATH = " \t\r\n\"'`([<,;=:&?"
_LONGEST_PATH = 4096
_SCHEME = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S
)
_SUSPICIOUS = re.compile(r"[=@]|[:]|\bis\b|bearer|basic|-----BEGIN", re.IGNORECASE)


def redact(text: str) -> str:
    """Return `text` without anything that looks like a secret. Hides a URI's user, values of
    settings named like secrets, bearer tokens and private keys."""
    if not _SUSPICIOUS.search(text):
        return text
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    for pattern in _USER_INFO:
        text = pattern.sub(lambda match: HIDDEN + ("@tcp(" if "@tcp(" in match[0] else "@"), text)
    shown, end = [], 0
    for value in _assigned_secrets(text):
        shown += [text[end : value.start()], _hidden(value[0])]
        end = value.end()
    text = "".join([*shown, text[end:]])
    return _SCHEME.sub(rf"\1 {HIDDEN}", text)


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name holds a secret, judged by the name alone."""
    return bool(_NAME.fullmatch(name) and (_LONG.search(name) or _SHORT.search(name)))


def _assigned_secrets(text: str) -> Iterator[re.Match[str]]:
    place = 0
    while match := _ASSIGNED.search(text, place):
        place = match.end("name")  # the value may begin with a secret's name
        if is_secret_name(match["name"]) and not _is_innocent(match):
            value = _VALUE.match(text, match.end())
            if value is not None:
                yield value
                place = value.end()


def _is_innocent(match: re.Match[str]) -> bool:
    """Whether the match is a path or an ordinary word, followed by a remark.

    Examples: ``/etc/passwd: no such file``, and the short name in ``the second pass: 7 rows``.
    """
    name, between, start = match["name"], match["between"], match.start()
    if "=" in between:
        return False
    before = match.string[max(0, start - _LONGEST_PATH) : start]
    path = before[max(map(before.rfind, _BEFORE_PATH)) + 1 :]
    is_file = not before.endswith(f":{path}") or before.endswith(f"file:{path}")
    if is_file and path.startswith(("/", "~/", "./", "../")):
        return True
    is_key = ":" in between and (between[0] in "\\\"'" or re.search("[_.-]", name))
    return not is_key and not _LONG.search(name)


def _hidden(value: str) -> str:
    """Hide the value but keep its quotes: the text around it may be JSON."""
    for quotes in ('\\"', '"', "'"):
        if value.startswith(quotes):
            return quotes + HIDDEN + quotes
    return HIDDEN


class Redactor:
    """Removes certain secrets, and anything that looks like one, from text."""

    def __init__(self, secrets: Iterable[str], public: Iterable[str] = ()) -> None:
        """Prepare to hide `secrets`. `public` are names known to everybody: a secret inside a
        public name is not hidden."""
        names = list(public)
        known = {
            secret
            for secret in secrets
            if len(secret) >= SHORTEST
            and not _NO_SECRET.fullmatch(secret)
            and not any(secret in name for name in names)
        }
        forms = {form for s in known for form in (s, unquote(s), quote(s, safe=""), repr(s)[1:-1])}
        ordered = sorted((f for f in forms if len(f) >= SHORTEST), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        """Return `text` without secrets."""
        return redact(self._known.sub(HIDDEN, text) if self._known else text)

    def everywhere(self, value: Any) -> Any:
        """Redact every text in a JSON value. Any text under a key named like a secret is hidden
        entirely."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {
                key: HIDDEN
                if isinstance(part, str) and part and is_secret_name(str(key))
                else self.everywhere(part)
                for key, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.everywhere(part) for part in value]
        return value


def secrets_in(value: Any, name: str = "", depth: int = 6) -> set[str]:
    """Return the secrets in a configuration. They are the values of fields and keys named like
    secrets, and the passwords in URIs. Looks into dataclasses, mappings and sequences."""
    if isinstance(value, str):
        secrets = {value} if value and is_secret_name(name) else set()
        for until in "@", "/?#":  # a password may hold slashes, or, unquoted, an @
            secrets.update(re.findall(rf"://[^\s/@:]*:([^\s{until}]+)@", value))
        for text in (value, unquote(value)):  # as in ?odbc_connect=…%3BPWD%3D…
            secrets.update(assigned[0].strip("'\"") for assigned in _assigned_secrets(text))
        return secrets
    if depth == 0 or value is None:
        return set()
    if is_dataclass(value) and not isinstance(value, type):
        parts = [(field.name, getattr(value, field.name, None)) for field in fields(value)]
        parts += getattr(value, "__dict__", {}).items()  # a subclass may keep more
    elif isinstance(value, Mapping):
        # Of HTTP's headers every value may be one, whatever its name is.
        hidden = "secret-" if name.lower() == "headers" else ""
        parts = [(f"{hidden}{key}", part) for key, part in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [(name, part) for part in value]
    elif hasattr(value, "__dict__"):
        parts = list(vars(value).items())
    else:
        return set()
    return set().union(*(secrets_in(part, key, depth - 1) for key, part in parts))
