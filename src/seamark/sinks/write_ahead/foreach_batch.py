"""`WriteAheadSink.foreach_batch`: the user's function gets each decided epoch as a DataFrame.

The function stays in the driver: executors get the sink without it.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamark.api.checks import called_with, yes_or_no
from seamark.contracts.sink import OUTPUT_MODES
from seamark.contracts.write_ahead import EpochToken, require_done
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError
from seamark.sinks.write_ahead.epoch_spool import SpooledBatches
from seamark.sinks.write_ahead.sink import WriteAheadSink
from seamark.sinks.write_ahead.spark_format import spooled_frame

_NUMBERED = re.compile(r"(\d+)(?::([\w=-]+))?~(.*)", re.DOTALL)
"""A column's number, its type in Spark if Arrow has none such, and its name."""
_NO_COLUMN = "~"


@dataclass(frozen=True)
class ForeachBatchSink(WriteAheadSink):
    """See `WriteAheadSink.foreach_batch`."""

    function: Callable[[Any, Any], None] | None
    idempotent: bool = False
    send_timeout: Duration = "10min"
    with_epoch: bool = False
    permanent_errors: "Sequence[type[Exception]]" = (Exception,)
    output_modes = OUTPUT_MODES  # as Spark's own

    def __post_init__(self) -> None:
        wanted = f"a DataFrame and the epoch's {'number' if self.with_epoch else 'token'}"
        if not callable(self.function):
            raise ConfigurationError(
                f"foreach_batch: the function is {self.function!r}; give one that takes {wanted}"
            )
        called_with(self.function, 2, "foreach_batch", wanted)
        yes_or_no(self.idempotent, f"{self.describe()}: idempotent")
        seconds(self.send_timeout, f"{self.describe()}: timeout")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the function out: it may hold a session, which cannot be pickled."""
        return {**self.__dict__, "function": None}

    def describe(self) -> str:
        """Return the function's name."""
        return f"function {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """Call the function with the epoch's rows, read by executors from the spool files."""
        assert isinstance(batches, SpooledBatches)
        assert self.function is not None
        frame = _with_own_columns(spooled_frame(batches))
        function: Callable[[Any, Any], Any] = self.function
        require_done(function(frame, token.epoch if self.with_epoch else token), self.describe())


def with_storable_names(frame: Any) -> Any:
    """Return the DataFrame, with its columns numbered if they cannot be stored as they are: a name
    that comes twice or is one of Seamark's own, a type with a collation, a user's type. A function
    gets its own columns back, from the spool alone: the next driver's program may have others."""
    names, types = frame.columns, [_lost_type(field) for field in frame.schema]
    if not names:
        return frame.selectExpr(f"0 AS `{_NO_COLUMN}`")
    folded = {name.lower() for name in names}
    is_own = any(types) or any(name.startswith("_seamark") for name in folded)
    if len(folded) == len(names) and not is_own and _own_columns(names) is None:
        return frame
    made = enumerate(zip(types, names, strict=True))
    return frame.toDF(*(f"{number}{of}~{name}" for number, (of, name) in made))


def _lost_type(field: Any) -> str:
    """Return a field with a collation or a user's type, of which Arrow knows neither, as a part of
    its column's name."""
    text = field.json()
    lost = '"__COLLATIONS"' in text or '"type":"udt"' in text
    return f":{urlsafe_b64encode(text.encode()).decode()}" if lost else ""


def _with_own_columns(frame: Any) -> Any:
    own = _own_columns(frame.columns)
    if not own:
        return frame if own is None else frame.select()
    plain = frame.toDF(*(name for _, name in own))
    if not any(of for of, _ in own):
        return plain
    schema = plain.schema
    for (of, _), field in zip(own, schema, strict=True):
        if of:
            field.dataType = field.fromJson(json.loads(urlsafe_b64decode(of))).dataType
    # Nothing casts to a user's type; Spark's rows in memory are those of the plain one.
    session, rows = plain.sparkSession._jsparkSession, plain._jdf.queryExecution().toRdd()
    typed = session.internalCreateDataFrame(rows, session.parseDataType(schema.json()), False)
    return type(plain)(typed, plain.sparkSession)


def _own_columns(stored: Sequence[str]) -> list[tuple[str, str]] | None:
    """Return types and names behind numbered names; None if these are no such names."""
    if list(stored) == [_NO_COLUMN]:
        return []
    matches = [_NUMBERED.fullmatch(name) for name in stored]
    numbered = all(one and int(one[1]) == number for number, one in enumerate(matches))
    return [(one[2] or "", one[3]) for one in matches if one] if numbered else None
