"""`DatagenSource`: a stream with every row known beforehand, for tests, demos and benchmarks.

This is the configuration. The columns' generators are in `fields.py`. `spark/datagen.py` makes
the rows in Spark's tasks; its function `rows` returns the expected rows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import ClassVar

from seamark.api.checks import whole_number
from seamark.contracts.source import StreamReader
from seamark.model.errors import ConfigurationError
from seamark.sources.fields import Choice, EventTime, Field, Sequence
from seamark.sources.settings import moment_of

_DEFAULT_START = "2026-01-01T00:00:00Z"
_BOUNDS = {
    "rows_per_second": (1, 10**9), "partitions": (1, 10**4), "seed": (-(2**63), 2**63 - 1),
    "number_of_rows": (1, 10**12), "rows_per_epoch": (1, 10**12),
}  # fmt: skip


def click_stream() -> dict[str, Field]:
    """Return the columns of a source without `fields`: timestamp, user, page and row.

    Of 1,000 users and 20 pages some are far more frequent than others; the timestamps are up to two
    seconds out of order.
    """
    return {
        "timestamp": EventTime(out_of_orderness="2s"),
        "user": Choice([f"user-{i:04d}" for i in range(1000)], skew=0.8),
        "page": Choice([f"/page/{i:02d}" for i in range(20)], skew=1.0),
        "row": Sequence(),
    }


@dataclass(frozen=True, kw_only=True)
class DatagenSource:
    """Make rows: deterministic and replayable, row i depends on these settings and i alone.

    rows_per_second: the pace of event time and, without `number_of_rows`, of the rows by the clock,
        from the job's first start on. Rows become due also while the job is down; after a restart
        they come at once, and none is left out.
    number_of_rows: the stream ends after this many rows. They are there from the start, whatever
        `rows_per_second` says.
    rows_per_epoch: the most rows of one epoch.
    start_time: event time of row 0, as `datetime` or ISO text with its time zone; ``"now"`` is the
        moment of the job's first start, kept in its checkpoint.
    seed: another seed makes other rows.
    fields: column names and their generators (`seamark.sources.fields`), e.g. ``{"at": EventTime(),
        "price": RandomInt(1, 100)}``. Without it: `click_stream`.
    partitions: the number of tasks for an epoch's rows.

    Raises ConfigurationError.
    """

    rows_per_second: int
    number_of_rows: int | None = None
    rows_per_epoch: int | None = None
    start_time: str | datetime = _DEFAULT_START
    seed: int = 0
    fields: Mapping[str, Field] | None = field(default=None, repr=False)
    partitions: int = 4
    replayable: ClassVar[bool] = True
    """Row i is made again from i."""

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            if (value := getattr(self, name)) is not None:
                whole_number(value, f"DatagenSource: {name}", least=least, most=most)
        self._start_us()
        fields = click_stream() if self.fields is None else self.fields
        if not isinstance(fields, Mapping) or not fields:
            raise ConfigurationError(
                f"DatagenSource: fields is {fields!r}; give at least one column, e.g. "
                '{"at": EventTime()}, or leave it out'
            )
        for name, generator in fields.items():
            if not isinstance(name, str) or not name:
                raise ConfigurationError(
                    f"DatagenSource: fields has the key {name!r}; give the name of a column"
                )
            if not isinstance(generator, Field):
                raise ConfigurationError(
                    f"DatagenSource: field {name!r} is {generator!r}; give a generator of "
                    "seamark.sources.fields, e.g. RandomInt(0, 100)"
                )
        if len({name.lower() for name in fields}) < len(fields):
            raise ConfigurationError(
                f"DatagenSource: fields has the names {', '.join(fields)}; Spark ignores case, so "
                "name each column once"
            )
        object.__setattr__(self, "fields", dict(fields))

    @property
    def bounded(self) -> bool:
        """Whether it ends, after `number_of_rows`."""
        return self.number_of_rows is not None

    def describe(self) -> str:
        """Return the number of rows and the columns."""
        amount = (
            f"{self.rows_per_second:,} rows a second"
            if self.number_of_rows is None
            else f"{self.number_of_rows:,} rows"
        )
        return f"generated rows ({', '.join(self.fields or ())}), {amount}"

    def reader(self) -> StreamReader:
        """Return the reader of Seamark's own Spark data source; ``config`` holds it all."""
        config = {
            "rows_per_second": self.rows_per_second,
            "number_of_rows": self.number_of_rows,
            "rows_per_epoch": self.rows_per_epoch,
            "start_us": self._start_us(),
            "seed": self.seed,
            "partitions": self.partitions,
            "fields": {n: f.specification() for n, f in (self.fields or {}).items()},
        }
        return StreamReader("seamark-datagen", {"config": json.dumps(config)})

    def _start_us(self) -> int | None:
        """Return microseconds since 1970, None for the job's first start."""
        start = self.start_time
        if start == "now":
            return None
        moment: object = moment_of(start) if isinstance(start, str) else start
        if not isinstance(moment, datetime) or moment.utcoffset() is None:
            raise ConfigurationError(
                f"DatagenSource: start_time is {start!r}; give a moment with its time zone, such "
                "as '2026-01-31T08:00:00Z', a datetime with tzinfo, or 'now'"
            )
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
