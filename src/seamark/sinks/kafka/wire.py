"""kafka-python's private calls, all in one place; tests/integration/kafka/test_wire.py is their
contract.

Its admin client sends only the requests that it knows, one at a time. Ending transactions takes
other requests, many at once on one connection: its connection manager and its coroutines do that,
and are not promised to stay.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from seamark.model.packages import load_driver

_log = logging.getLogger(__name__)

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


def forget_coordinators(admin: Any, keys: Sequence[str], *, groups: bool) -> Any:
    """Let a client ask anew for coordinators, of consumer groups or else of transactional ids: it
    never forgets one, and a coordinator may move. Return their kind."""
    from kafka.protocol.metadata import CoordinatorType

    kind = CoordinatorType.GROUP if groups else CoordinatorType.TRANSACTION
    for key in keys:
        admin._manager.cluster._coordinators.pop((kind, key), None)
    return kind


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
            found: T = await manager.wait_for(manager.call_soon(coroutine), timeout_s * 1000)
            return found

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
        kind = forget_coordinators(self._admin, keys, groups=groups)
        return dict(await self._admin._find_coordinator_ids(list(keys), key_type=kind))

    async def offsets(self, asked: Mapping[Any, Any], isolation: str) -> Any:
        """Return offsets by partition, as readers of this isolation level see them."""
        return await self._admin._async_list_partition_offsets(dict(asked), isolation)

    async def producers(self, partitions: Sequence[Any]) -> Any:
        """Return the producers that have written to each partition lately."""
        return await self._admin._async_describe_producers(list(partitions))

    async def group_offsets(self, partitions: Sequence[Any]) -> dict[str, Any]:
        """Return, by consumer group, the offset that it has committed in each partition; -1 for
        none."""
        found = await self._admin._async_list_groups()
        groups = [one["group_id"] for one in found if one["protocol_type"] in ("consumer", "")]
        asked = {group: list(partitions) for group in groups}
        answers = await self._admin._async_list_group_offsets(asked) if asked else {}
        return {
            group: {at: committed.offset for at, committed in offsets.items()}
            for group, offsets in answers.items()
        }


class Membership:
    """A member of a group, with a protocol of its own that assigns nothing; it joins in the
    background, and joins again, until its `admin` is closed. That one serves it alone, and its
    client id names the member."""

    def __init__(self, admin: Any, group: str, session_timeout_s: float) -> None:
        from kafka.coordinator.base import BaseCoordinator

        class Member(BaseCoordinator):  # type: ignore[misc]
            def protocol_type(self) -> str:
                return "seamark"

            def group_protocols(self) -> list[tuple[str, bytes]]:
                return [("seamark-prefix", b"")]

            def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
                return {member.member_id: b"" for member in members}

        timeout_ms = int(session_timeout_s * 1000)
        self._manager, self._group = admin._manager, group
        self._member = Member(
            admin._client,
            group_id=group,
            session_timeout_ms=timeout_ms,
            max_poll_interval_ms=timeout_ms,
            heartbeat_interval_ms=timeout_ms * 3 // 10,
        )
        self._manager.call_soon(self._stay)

    async def _stay(self) -> None:
        while True:
            try:
                await self._member.ensure_active_group_async()
                self._member.poll_heartbeat()
            except Exception as error:  # the brokers may be away for long: never give up
                _log.debug("group %s: %s", self._group, error)
            await self._manager._net.sleep(1)

    def stop(self) -> None:
        """Send no more heartbeats; the client may then be closed, which the library would call an
        error of its heartbeats otherwise. Raises KafkaError."""

        async def stopped() -> None:
            self._member._close_heartbeat()
            if (heartbeats := self._member._heartbeat_loop_future) is not None:
                await self._manager.wait_for(heartbeats, 1000)

        self._manager.run(stopped)

    def leave(self, other: Any) -> None:
        """Leave the group, by the admin client `other`, once the member's own is closed. Raises
        KafkaError."""
        from kafka.admin import MemberToRemove

        if member_id := self._member.group_metadata().member_id:
            leaving = MemberToRemove(member_id=member_id, reason="the job ends")
            other.remove_group_members(self._group, [leaving])
