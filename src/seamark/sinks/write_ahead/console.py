"""`ConsoleSink`: the rows of each decided epoch on the driver's standard output."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from seamark.api.checks import whole_number, yes_or_no
from seamark.contracts.sink import OUTPUT_MODES
from seamark.contracts.write_ahead import EpochToken
from seamark.sinks.write_ahead.epoch_spool import SpooledBatches
from seamark.sinks.write_ahead.sink import WriteAheadSink
from seamark.sinks.write_ahead.spark_format import spooled_frame

_RULE = "-" * 43


@dataclass(frozen=True)
class ConsoleSink(WriteAheadSink):
    """Print each epoch's rows on the driver's standard output, as Spark's console sink does: for
    trials.

    num_rows: the most rows shown of an epoch.
    truncate: whether to cut texts after 20 characters.

    At-least-once: rows are printed when their epoch is decided, so never those of a failed try; a
    crash between the print and its record prints the epoch once more. Raises ConfigurationError.
    """

    num_rows: int = 20
    truncate: bool = True
    output_modes = OUTPUT_MODES  # as Spark's own

    def __post_init__(self) -> None:
        whole_number(self.num_rows, "ConsoleSink: num_rows", least=0)
        yes_or_no(self.truncate, "ConsoleSink: truncate")

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        return "console"

    def check_target(self) -> None:
        """Check nothing: it is this process's own output."""

    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """Print the rows, in the layout of Spark's own sink."""
        assert isinstance(batches, SpooledBatches)
        print(_RULE, f"Batch: {token.epoch}", _RULE, sep="\n")  # noqa: T201 - its purpose
        spooled_frame(batches).show(self.num_rows, self.truncate)
        sys.stdout.flush()  # into a file or a pipe Python keeps 8 KiB, and the record comes next
