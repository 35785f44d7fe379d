"""`WriteAheadSink.foreach_batch`: the user's function gets each decided epoch as a DataFrame.

The function stays in the driver: executors get the sink without it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamark.api.checks import called_with, yes_or_no
from seamark.contracts.sink import OUTPUT_MODES
from seamark.contracts.write_ahead import EpochToken
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError
from seamark.sinks.write_ahead.epoch_spool import SpooledBatches
from seamark.sinks.write_ahead.sink import WriteAheadSink
from seamark.sinks.write_ahead.spark_format import spooled_frame


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
        self.function(spooled_frame(batches), token.epoch if self.with_epoch else token)
