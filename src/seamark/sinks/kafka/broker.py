"""The driver's connection to the brokers: sends requests at once, each bounded in time.

Uses kafka-python's admin client, because its wire classes know EndTxn; librdkafka has no such call.
A connection error closes the client; the next call opens a new one.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from seamark.files.deadline import Deadline
from seamark.model.errors import MissingDependencyError
from seamark.model.ignored import ignored
from seamark.sinks.kafka import options
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.end_transaction import Answer, Description, answer
from seamark.sinks.kafka.wire import Wire, open_admin

T = TypeVar("T")
_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 4.0
_AT_ONCE = 500
_UNKNOWN_ID = 105


class UnreachableError(Exception):
    """No answer; nothing is known."""


Described = Description | UnreachableError | None
"""A transactional id's state; None: the broker does not know the id."""


@dataclass(frozen=True)
class Ended:
    """The result of one EndTxn: the state just before it, and its error code."""

    before: Described
    code: int | UnreachableError


@dataclass(frozen=True)
class Limits:
    """How far readers get in one partition: `stable` is the last stable offset, where
    read_committed readers stop, `end` the high watermark. `starts`: by producer id the first offset
    of its open transaction, -1 for none; None if the credentials may not ask for producers."""

    stable: int
    end: int
    starts: Mapping[int, int] | None


@dataclass(frozen=True)
class OpenWrite:
    """An open transaction in one partition, as the partition's leader knows it."""

    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


class BrokerConnection:
    """Used by one thread at a time. `texts`: the sink's options; no error shows their secrets."""

    def __init__(self, servers: str, texts: Mapping[str, str]) -> None:
        self._settings = options.admin_options(servers, texts)
        self._texts = texts
        self._admin: Any = None
        self._coordinators: dict[str, int] = {}
        self._end_version = 4

    @property
    def ends_raise_epoch(self) -> bool:
        """Whether the end of a transaction raises its producer's epoch. Known after any answer."""
        return self._end_version >= 5

    def end(self, committables: Sequence[KafkaCommittable], *, commit: bool) -> list[Ended]:
        """Send EndTxn for all committables at once; return the answers, in order.

        A request for the transactions' states goes first on the same connection, so the broker
        answers it before EndTxn. It answers a repeated EndTxn like the first one; only the state
        before it tells them apart.
        """
        from kafka.protocol.producer.transaction import EndTxnRequest

        ids = [c.transactional_id for c in committables]
        try:
            nodes = self._find_coordinators(ids)
        except UnreachableError as error:
            return [Ended(error, error)] * len(committables)
        asked = _describe_requests(ids, nodes)
        ended = [
            (
                EndTxnRequest(
                    transactional_id=c.transactional_id,
                    producer_id=c.producer_id,
                    producer_epoch=c.producer_epoch,
                    committed=commit,
                    max_version=self._end_version,
                ),
                nodes.get(c.transactional_id),
            )
            for c in committables
        ]
        answers = self._send([*asked, *ended])
        before = _descriptions(ids, answers[: len(asked)])
        results = []
        for transactional_id, described in zip(ids, answers[len(asked) :], strict=True):
            code = (
                described if isinstance(described, UnreachableError) else int(described.error_code)
            )
            if isinstance(code, UnreachableError) or answer(code) is Answer.COORDINATOR_MOVED:
                self._coordinators.pop(transactional_id, None)
            results.append(Ended(before[transactional_id], code))
        return results

    def describe(self, ids: Sequence[str]) -> dict[str, Described]:
        """Ask for the state of transactional ids; None for an id unknown to the broker."""
        if not ids:
            return {}
        try:
            nodes = self._find_coordinators(ids)
        except UnreachableError as error:
            return dict.fromkeys(ids, error)
        descriptions = _descriptions(ids, self._send(_describe_requests(ids, nodes)))
        for transactional_id, state in descriptions.items():
            if isinstance(state, UnreachableError):
                self._coordinators.pop(transactional_id, None)
        return descriptions

    def open_transactions(self) -> list[str]:
        """Return the ids of the cluster's transactions in the state Ongoing (not being ended).

        Raises UnreachableError unless every broker has answered.
        """
        return list(self._list_transactions(["Ongoing"], ()).values())

    def ids_of(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional id of each of these producers that has one. Raises
        UnreachableError unless every broker has answered."""
        return self._list_transactions((), producer_ids) if producer_ids else {}

    def _list_transactions(
        self, states: Collection[str], producer_ids: Collection[int]
    ) -> dict[int, str]:
        nodes = self.wire().nodes()  # first: names a package that is not installed
        from kafka.protocol.admin.transactions import ListTransactionsRequest

        filters = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}
        requests = [(ListTransactionsRequest(**filters), node) for node in nodes]
        ids: dict[int, str] = {}
        for node, listing in zip(nodes, self._send(requests), strict=True):
            if isinstance(listing, UnreachableError):
                raise listing
            if listing.error_code:
                raise UnreachableError(
                    f"broker {node} answers {listing.error_code} to ListTransactions"
                )
            ids |= {one.producer_id: one.transactional_id for one in listing.transaction_states}
        return ids

    def open_writes(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[tuple[str, int], int], OpenWrite]:
        """Return the open transactions in these partitions, by partition and producer id, passing
        over those of deleted topics; none if the credentials may not ask for producers. Raises
        UnreachableError."""
        from kafka import TopicPartition

        wire = self.wire()
        asked = [TopicPartition(*partition) for partition in partitions]

        async def ask() -> Any:
            return await _producers(wire, await wire.existing(asked))

        told = self._bounded(ask) if asked else None
        return {
            ((at.topic, at.partition), one.producer_id): OpenWrite(
                one.producer_epoch, one.coordinator_epoch, one.current_transaction_start_offset
            )
            for at, state in (told or {}).items()
            for one in state.active_producers
            if one.current_transaction_start_offset >= 0
        }

    def write_marker(
        self, place: tuple[tuple[str, int], int], write: OpenWrite, *, commit: bool
    ) -> int:
        """End a transaction in one partition only, by its leader; return the leader's error code.
        As of Kafka's own ``abortTransaction`` (KIP-664), an epoch older than that of the producer's
        last rows there is refused. Raises UnreachableError."""
        from kafka import TopicPartition

        wire = self.wire()
        partition, producer_id = place
        return self._bounded(
            lambda: wire.write_marker(
                TopicPartition(*partition),
                producer_id=producer_id,
                producer_epoch=write.producer_epoch,
                coordinator_epoch=max(write.coordinator_epoch, 0),
                transaction_result=commit,
            )
        )

    def read_limits(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], Limits]:
        """Return how far readers get in these partitions. Raises UnreachableError."""
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec

        if not partitions:
            return {}
        wire = self.wire()
        asked = [TopicPartition(*partition) for partition in partitions]
        latest = dict.fromkeys(asked, OffsetSpec.LATEST)

        async def ask() -> tuple[Any, Any, Any]:
            stable = await wire.offsets(latest, "read_committed")
            ends = await wire.offsets(latest, "read_uncommitted")
            return stable, ends, await _producers(wire, asked)

        stable, ends, producers = self._bounded(ask)
        return {
            (at.topic, at.partition): Limits(
                stable[at].offset,
                ends[at].offset,
                None if producers is None else {
                    producer.producer_id: producer.current_transaction_start_offset
                    for producer in producers[at].active_producers
                },
            )
            for at in asked
        }  # fmt: skip

    def group_offsets(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], dict[str, int]] | None:
        """Return, by partition, the offset that each consumer group has committed there; None if
        the brokers do not tell: these credentials may not describe every group."""
        from kafka import TopicPartition

        wire = self.wire()
        asked = [TopicPartition(*at) for at in partitions]
        try:
            told = self._bounded(lambda: wire.group_offsets(asked)) if asked else {}
        except UnreachableError as error:
            _log.info("the offsets of consumer groups could not be read: %s", error)
            return None
        by_partition: dict[tuple[str, int], dict[str, int]] = {at: {} for at in partitions}
        for group, offsets in told.items():
            for at, offset in offsets.items():
                if offset >= 0:
                    by_partition[at.topic, at.partition][group] = offset
        return by_partition

    def log_starts(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the first offset kept in these partitions. Raises UnreachableError."""
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec

        wire = self.wire()
        earliest = {TopicPartition(*at): OffsetSpec.EARLIEST for at in partitions}
        starts = self._bounded(lambda: wire.offsets(earliest, "read_uncommitted"))
        return {(at.topic, at.partition): start.offset for at, start in starts.items()}

    def ask(self, request: Any, node: int) -> Any:
        """Return one broker's answer to a request; raises UnreachableError."""
        (answer,) = self._send([(request, node)])
        if isinstance(answer, UnreachableError):
            raise answer
        return answer

    def admin(self) -> Any:
        """Return the open admin client; raises UnreachableError if no broker can be reached. The
        caller handles the client's other errors."""
        if self._admin is None:
            self._admin = self._open()
        return self._admin

    def wire(self) -> Wire:
        """Return the connections of the open admin client; raises UnreachableError."""
        return Wire(self.admin())

    def _open(self) -> Any:
        admin = None
        try:
            if provider := self._settings.get("sasl_oauth_token_provider"):
                provider.token()  # else a refused login would look like a silent broker
            admin = open_admin(
                {**self._settings, "client_id": "seamark-committer"},
                request_timeout_s=REQUEST_TIMEOUT_S,
                reconnect_backoff_max_ms=500,
                max_in_flight_requests_per_connection=_AT_ONCE + 100,
            )
            features = admin.describe_features()
        except MissingDependencyError:
            raise
        except Exception as error:  # the token's endpoint has errors of its own
            if admin is not None:
                admin.close()
            raise self._unreachable(error) from error
        # Version 5 fences the writer by raising the epoch; transaction.version 2 allows it.
        finalized = features.get("transaction.version", {}).get("finalized", (0, 0))
        self._end_version = 5 if finalized[1] >= 2 else 4
        return admin

    def close(self) -> None:
        """Close the connection; a later call would open a new one."""
        admin, self._admin = self._admin, None
        self._coordinators.clear()
        if admin is not None:
            with ignored("the end of a client of Kafka"):
                admin.close()

    def _find_coordinators(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the coordinator's node for every id with a known coordinator."""
        missing = [i for i in dict.fromkeys(ids) if i not in self._coordinators]
        wire = self.wire()
        if missing:
            self._coordinators.update(self._bounded(lambda: wire.coordinators(missing)))
        return {i: self._coordinators[i] for i in ids if i in self._coordinators}

    def _send(self, requests: Sequence[tuple[Any, int | None]]) -> list[Any]:
        """Send all requests; return each one's response, or UnreachableError, in order.

        All answers have one deadline: a silent broker costs no other broker's answer.
        """

        def begin(request: Any, node: int | None) -> Any:
            if node is None:
                return UnreachableError("no coordinator is known")
            try:
                return wire.send(request, node, REQUEST_TIMEOUT_S)
            except Exception as error:
                return self._unreachable(error)

        async def answer(sent: Any, deadline: Deadline) -> Any:
            if isinstance(sent, UnreachableError):
                return sent
            try:
                return await wire.wait(sent, max(deadline.left_s(), 0.0))
            except Exception as error:
                return self._unreachable(error)

        async def send() -> list[Any]:
            deadline = Deadline(REQUEST_TIMEOUT_S)
            answers: list[Any] = []
            for start in range(0, len(requests), _AT_ONCE):
                sent = [begin(*request) for request in requests[start : start + _AT_ONCE]]
                answers += [await answer(some, deadline) for some in sent]
            return answers

        try:
            wire = self.wire()
            results: list[Any] = self._bounded(send)
        except UnreachableError as error:
            return [error] * len(requests)
        if any(isinstance(result, UnreachableError) for result in results):
            self.close()
        return results

    def _bounded(self, coroutine: Callable[[], Awaitable[T]]) -> T:
        wire = self.wire()
        try:
            return wire.run(coroutine, REQUEST_TIMEOUT_S + 0.5)
        # Whatever the client raises, a half answer's errors too, nothing is known.
        except Exception as error:
            self.close()
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> UnreachableError:
        if isinstance(error, UnreachableError):
            return error
        name, said = type(error).__name__, str(error)
        if not said.startswith(name):  # kafka-python's own begin with it
            said = f"{name}: {said}"
        return UnreachableError(options.redacted(said, self._texts))


async def _producers(wire: Wire, partitions: Sequence[Any]) -> Any:
    """Return the producers of each partition; None if the credentials may not ask for them."""
    from kafka.errors import TopicAuthorizationFailedError

    try:
        return await wire.producers(partitions)
    except TopicAuthorizationFailedError:  # a writer need not have READ
        return None


def _describe_requests(ids: Sequence[str], nodes: Mapping[str, int]) -> list[tuple[Any, int]]:
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    by_node: dict[int, list[str]] = {}
    for transactional_id in ids:
        if transactional_id in nodes:
            by_node.setdefault(nodes[transactional_id], []).append(transactional_id)
    return [
        (DescribeTransactionsRequest(transactional_ids=some), node)
        for node, some in by_node.items()
    ]


def _descriptions(ids: Sequence[str], answers: Sequence[Any]) -> dict[str, Described]:
    result: dict[str, Described] = {}
    failure = UnreachableError("no coordinator is known")
    for each in answers:
        if isinstance(each, UnreachableError):
            failure = each
            continue
        for state in each.transaction_states:
            transactional_id = state.transactional_id
            if state.error_code == 0:
                result[transactional_id] = Description(
                    str(state.transaction_state),
                    state.producer_id,
                    state.producer_epoch,
                    state.transaction_start_time_ms,
                    state.transaction_timeout_ms,
                    tuple((t.topic, p) for t in state.topics for p in sorted(t.partitions)),
                )
            elif state.error_code == _UNKNOWN_ID:
                result[transactional_id] = None
            else:
                result[transactional_id] = UnreachableError(
                    f"DescribeTransactions answers {state.error_code}"
                )
    return {i: result.get(i, failure) for i in ids}
