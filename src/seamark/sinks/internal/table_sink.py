"""`TableSink`: the settings that the sinks of SQL servers have alike; and names of tables."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from seamark.api.checks import yes_or_no
from seamark.contracts.sink import C
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError
from seamark.sinks.internal.changes import ByKey
from seamark.sinks.internal.columns import in_double_quotes as quoted

_PART = r'(?:"((?:[^"\0]|"")+)"(?=\.|$)|([^.\0]+))'


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, repr=False)
class TableSink(ByKey[C]):
    """A sink of a server's table. A subclass documents the settings."""

    url: str
    table: str
    mode: Literal["prepared", "xa", "staged", "upsert"] = "staged"
    keys: Sequence[str] = ()
    op: str | None = None
    create_table: bool = True
    spool: bool = False
    timeout: Duration = "20s"

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} {self.table!r}"

    @property
    def _timeout_s(self) -> float:
        return seconds(self.timeout, f"{self._name}: timeout", least_s=0.1)

    def _check_table(self, *own: str) -> None:
        """Raise ConfigurationError for what is no table's name, or begins as Seamark's `own` do."""
        parts = name_parts(self.table) if isinstance(self.table, str) else []
        what = f"{type(self).__name__}: table is {self.table!r}"
        if not parts:
            raise ConfigurationError(f"{what}; give 'name' or 'schema.name'")
        if parts[-1].lower().startswith(own):
            raise ConfigurationError(f"{what}, a name of Seamark's own: choose another")

    def _check_settings(self, modes: Sequence[str]) -> None:
        """Raise ConfigurationError for unfit settings, except url and table."""
        name = self._name
        yes_or_no(self.create_table, f"{name}: create_table")
        yes_or_no(self.spool, f"{name}: spool")
        self._check_keys(name, modes)


def name_parts(table: str) -> list[str]:
    """Return schema and table of ``schema.table``, or the table alone; none if this is no name.
    Each is as written, or between quotation marks, as in SQL, which may hold dots."""
    if not re.fullmatch(rf"{_PART}(?:\.{_PART})?", table):
        return []
    return [inner.replace('""', '"') or plain for inner, plain in re.findall(_PART, table)]


def plain_name(parts: Sequence[str]) -> str:
    """Return the text of which `name_parts` makes `parts`, with quotation marks where needed."""
    return ".".join(name if re.fullmatch(r"\w+", name) else quoted(name) for name in parts)


def named(columns: Sequence[N], name: str) -> N | None:
    """Return the column of this name; failing that, the only one that differs in case alone,
    because a database folds an unquoted name."""
    exact = [c for c in columns if c.name == name]
    folded = [c for c in columns if c.name.lower() == name.lower()]
    return exact[0] if exact else folded[0] if len(folded) == 1 else None
