"""`Garbage`: deletes what a job's directory no longer needs. Nothing waits for it, and a call that
fails is made again with the next epoch."""

from collections import deque

from seamark.checkpoint.channel_state import CHANNEL_STATE, ChannelState
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.spool import SPOOLS
from seamark.files import numbered

LEAST_RECORDS = 10
"""The smallest number of committed epochs whose records are kept: a driver waking from a pause
looks for them."""


class Garbage:
    """The garbage of one driver's job. Raises RecordNotStoredError where the storage is away."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._kept: deque[int] | None = None
        self._in_flight: deque[int] | None = None
        self._first_needed: dict[int, int] = {}
        """The first epoch whose channel state a stored epoch refers to, by that epoch."""

    def stored(self, epoch: int, state: ChannelState) -> None:
        """Note which channel state a stored epoch refers to: to read it again is dear on an object
        store. Called by the stream's thread."""
        self._first_needed[epoch] = _first_needed(epoch, state)

    def prune(self, committed_epoch: int, retained: int) -> None:
        """Delete old epochs' records. Keeps the records of the last `retained` committed epochs, of
        LEAST_RECORDS at least, and of all later epochs."""
        if self._kept is None:  # listed once: a listing an epoch is dear on an object store
            self._kept = deque(self._store.epochs())
        else:  # also those at which an earlier call was not made or failed
            newest = max(self._kept, default=committed_epoch - 1)
            self._kept.extend(range(newest + 1, committed_epoch + 1))
        self._forget("epochs", self._kept, committed_epoch - max(retained, LEAST_RECORDS))

    def forget_channel_state(self, committed_epoch: int, retained: int) -> None:
        """Delete channel state that no checkpoint needs: neither one of the last `retained`
        committed epochs nor a later one. Epochs are drained in order, so the oldest one retained
        needs the oldest files."""
        store, first_needed = self._store, self._first_needed
        if self._in_flight is None:
            self._in_flight = deque(numbered(store.files.list(CHANNEL_STATE)))
        written = first_needed.get(committed_epoch, committed_epoch) <= committed_epoch
        if written and committed_epoch not in self._in_flight:
            self._in_flight.append(committed_epoch)
        # A restored job has rows of epochs before its first one.
        oldest = max(committed_epoch - max(retained, 2) + 1, store.first_epoch())
        for old in [epoch for epoch in list(first_needed) if epoch < oldest]:
            del first_needed[old]
        if not self._in_flight:
            return
        if oldest not in first_needed:
            if store.epoch(oldest).committed is None:  # a newer driver has deleted its records
                return
            first_needed[oldest] = _first_needed(oldest, store.channel_state(oldest))
        self._forget(CHANNEL_STATE, self._in_flight, first_needed[oldest] - 1)

    def forget_settled_rows(self, settled_epoch: int) -> None:
        """Delete the rows kept by any sink for epochs up to `settled_epoch`: rows left by a driver
        that died, also of sinks no longer declared by the program."""
        for sink in self._store.files.list(SPOOLS):
            for epoch in numbered(self._store.files.list(f"{SPOOLS}/{sink}")):
                if epoch <= settled_epoch:
                    self._store.delete(f"{SPOOLS}/{sink}/{epoch}")

    def _forget(self, directory: str, epochs: deque[int], last: int) -> None:
        """Delete the directories of the first `epochs`, up to `last`. One that cannot be deleted
        goes to the end: it holds up no other, and its turn comes again."""
        while epochs and epochs[0] <= last:
            epochs.rotate(-1)
            self._store.delete(f"{directory}/{epochs[-1]}")
            epochs.pop()


def _first_needed(epoch: int, state: ChannelState) -> int:
    """Return the first epoch whose channel state this epoch, or a later one, may refer to."""
    oldest = state.oldest_epoch
    return epoch + 1 if oldest is None else oldest
