"""`SqlSink`: the settings that the sinks of SQL servers have alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.api.checks import one_of, yes_or_no
from seamark.contracts.sink import C
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError
from seamark.sinks.internal.changes import ByKey


@dataclass(frozen=True, repr=False)
class SqlSink(ByKey[C]):
    """A sink of a server's table. A subclass documents the settings."""

    url: str
    table: str
    mode: Literal["prepared", "xa", "staged", "upsert"] = "staged"
    keys: Sequence[str] = ()
    op: str | None = None
    create_table: bool = False
    spool: bool = False
    timeout: Duration = "20s"

    @property
    def _name(self) -> str:
        return f"{type(self).__name__} {self.table!r}"

    @property
    def _timeout_s(self) -> float:
        return seconds(self.timeout, f"{self._name}: timeout", least_s=0.1)

    def _check_settings(self, modes: Sequence[str]) -> None:
        """Raise ConfigurationError for unfit settings, except url and table."""
        name = self._name
        one_of(self.mode, modes, f"{name}: mode")
        yes_or_no(self.create_table, f"{name}: create_table")
        yes_or_no(self.spool, f"{name}: spool")
        self._check_keys(name, "give mode='upsert' and keys=")
        if (self.mode == "upsert") != bool(self.keys):
            raise ConfigurationError(
                f"{name}: mode is {self.mode!r} and keys is {self.keys!r}; mode='upsert' needs the "
                "key columns of the table in keys=, and no other mode takes any"
            )
