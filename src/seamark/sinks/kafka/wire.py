"""kafka-python's private calls, all in one place; tests/integration/kafka/test_wire.py is their
contract.

Its admin client sends only the requests that it knows, one at a time. Ending transactions takes
other requests, many at once on one connection: its connection manager and its coroutines do that,
and are not promised to stay.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from seamark.model.packages import load_driver

T = TypeVar("T")


def open_admin(settings: Mapping[str, Any], *, request_timeout_s: float, **more: Any) -> Any:
    """Return a connected ``KafkaAdminClient``, which waits `request_timeout_s` for any answer, also
    for the first. Raises KafkaError."""
    needs = "the Kafka sink needs confluent-kafka and kafka-python"
    kind = load_driver("kafka.admin", needs, "kafka").KafkaAdminClient
    timeout_ms = int(request_timeout_s * 1000)
    given = {**settings, **more, "request_timeout_ms": timeout_ms}
    admin = kind.__new__(kind)
    try:
        admin.__init__(**given, bootstrap_timeout_ms=timeout_ms)
    except BaseException:
        if hasattr(admin, "_net"):  # its thread would stay, one more at each try
            admin._closed = False
            admin.close()
        raise
    return admin


class Wire:
    """The connections of one ``KafkaAdminClient``. A coroutine runs inside `run`. Every call raises
    KafkaError or OSError when a broker does not answer in time."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin
        self._manager = admin._manager

    def nodes(self) -> list[int]:
        """Return the number of every broker in the cluster."""
        return [broker.node_id for broker in self._manager.cluster.brokers()]

    def run(self, coroutine: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Run a coroutine and return its result. `timeout_s` also bounds an attempt to connect."""
        manager = self._manager

        async def bounded() -> T:
            assert timeout_s is not None
            answer: T = await manager.wait_for(manager.call_soon(coroutine), timeout_s * 1000)
            return answer

        result: T = manager.run(coroutine if timeout_s is None else bounded)
        return result

    def send(self, request: Any, node: int, timeout_s: float) -> Awaitable[Any]:
        """Send a request at once; `wait` gives the answer."""
        sent: Awaitable[Any] = self._manager.send(
            request, node_id=node, request_timeout_ms=int(timeout_s * 1000)
        )
        return sent

    async def wait(self, answer: Awaitable[Any], timeout_s: float) -> Any:
        """Return a sent request's answer."""
        return await self._manager.wait_for(answer, timeout_s * 1000)

    async def coordinators(self, keys: Sequence[str], *, groups: bool = False) -> dict[str, int]:
        """Ask for the coordinator's node of transactional ids, or of consumer groups."""
        from kafka.protocol.metadata import CoordinatorType

        kind = CoordinatorType.GROUP if groups else CoordinatorType.TRANSACTION
        for key in keys:  # the client never forgets one, and a coordinator may move
            self._manager.cluster._coordinators.pop((kind, key), None)
        return dict(await self._admin._find_coordinator_ids(list(keys), key_type=kind))

    async def offsets(self, asked: Mapping[Any, Any], isolation: str) -> Any:
        """Return offsets by partition, as readers of this isolation level see them."""
        return await self._admin._async_list_partition_offsets(dict(asked), isolation)

    async def existing(self, partitions: Sequence[Any]) -> list[Any]:
        """Return those of the partitions that the cluster has."""
        told = await self._admin._get_cluster_metadata({at.topic for at in partitions})
        there = {(t["name"], p["partition_index"]) for t in told["topics"] for p in t["partitions"]}
        return [at for at in partitions if (at.topic, at.partition) in there]

    async def producers(self, partitions: Sequence[Any]) -> Any:
        """Return the producers that have written to each partition lately."""
        return await self._admin._async_describe_producers(list(partitions))

    async def write_marker(self, at: Any, **marker: Any) -> int:
        """Write a transaction's marker into one partition; return the leader's error code."""
        from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

        kind = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [kind.WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])]
        (leader,) = await self._admin._async_get_leader_for_partitions([at])
        answer = await self._manager.send(
            WriteTxnMarkersRequest(markers=[kind(topics=topics, **marker)]), node_id=leader
        )
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    async def group_offsets(self, partitions: Sequence[Any]) -> dict[str, Any]:
        """Return, by consumer group, the offset that it has committed in each partition; -1 for
        none."""
        listed = await self._admin._async_list_groups()
        groups = [one["group_id"] for one in listed if one["protocol_type"] in ("consumer", "")]
        asked = {group: list(partitions) for group in groups}
        answers = await self._admin._async_list_group_offsets(asked) if asked else {}
        return {
            group: {at: committed.offset for at, committed in offsets.items()}
            for group, offsets in answers.items()
        }
