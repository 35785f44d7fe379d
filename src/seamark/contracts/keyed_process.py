"""`KeyedProcessFunction`: a user's function over the rows of a key, with state and timers.

`sm.keyed_process` runs it (docs/keyed-process.md). Names are Flink's where Flink has them; state is
Spark's own (`StatefulProcessor`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class StateHandle(Protocol):
    """Declares the state of a key, with the methods of Spark's `StatefulProcessorHandle`.

    A state name is the function's own; names that begin with ``_seamark`` are refused. Schemas are
    DDL text (``"n LONG"``) or a `StructType`. A value state is read once per turn of its key and
    written back once.
    """

    def getValueState(self, stateName: str, schema: Any) -> Any:  # noqa: N802, N803
        """Return a value state: ``exists()``, ``get()``, ``update(tuple)``, ``clear()``."""

    def getListState(self, stateName: str, schema: Any) -> Any:  # noqa: N802, N803
        """Return Spark's `ListState`."""

    def getMapState(self, stateName: str, userKeySchema: Any, valueSchema: Any) -> Any:  # noqa: N802, N803
        """Return Spark's `MapState`."""


class KeyedContext(Protocol):
    """The key of a call, its time and its timers. Times are milliseconds since 1970."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of the key columns."""

    @property
    def current_watermark(self) -> int:
        """The watermark; time mode ``"EventTime"`` alone, 0 before the first."""

    @property
    def current_processing_time(self) -> int:
        """The start of the epoch. An epoch that runs again keeps its first start."""

    def register_timer(self, timestamp_ms: int) -> None:
        """Call `on_timer` once the time of the time mode is past `timestamp_ms`. In `on_timer`, the
        timer that fires cannot be registered again for the same time."""

    def delete_timer(self, timestamp_ms: int) -> None:
        """Remove a timer of this key; no timer at this time is no error."""

    def list_timers(self) -> Sequence[int]:
        """Return the timers of this key, in order."""


class KeyedProcessFunction(ABC):
    """Processes the rows of each key, one by one, in their order.

    The object is pickled into every task, so configuration goes into ``__init__`` and state into
    `open`. All that a call keeps outside of its state is lost. Rows yielded are tuples in the order
    of the output columns, dicts, or Spark's `Row`.
    """

    def open(self, handle: StateHandle) -> None:
        """Declare the state. Called at the begin of every task, and once in the driver's plan."""
        return

    @abstractmethod
    def process_element(self, row: Any, context: KeyedContext) -> Iterable[Any] | None:
        """Process one row, Spark's `Row` with all columns; return or yield the results."""

    def on_timer(self, timestamp_ms: int, context: KeyedContext) -> Iterable[Any] | None:
        """Process a timer of `context.key`; return or yield the results. The timer is gone then."""
        return None

    def close(self) -> None:
        """Release what `open` took. Called once at the end of a task that succeeds."""
        return
