"""Guards a transactional id prefix: its owner is the live member of the group ``seamark.<prefix>``.

The driver joins that group, with a protocol of its own and without reading a topic, and stays in it
by heartbeats. Its client id names the job, so another job asking for the prefix can name the
holder. A killed driver drops out of the group after `SESSION_TIMEOUT_S`; a new driver of the same
job need not wait. The guard is against mistakes. Ids hold a hash of job and sink, so two jobs on
one prefix could not end each other's transactions; but nobody could tell the owner of a
transaction.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.sinks.kafka.transactional_id import capped
from seamark.sinks.kafka.wire import Wire, open_admin

_log = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 10
_HEARTBEAT_S = 3.0
_JOIN_TIMEOUT_S = 30.0
_VISIBLE_TIMEOUT_S = 15.0
_PROTOCOL = "seamark-prefix"


@dataclass(frozen=True)
class Holder:
    """The job that holds a prefix."""

    job_name: str
    job_id: str

    def finding(self, sink: str, prefix: str) -> Finding:
        """Return the finding of another job of which `sink` wants the prefix."""
        return Finding(
            FindingCode.KF002,
            sink,
            f"transactional_id_prefix {prefix!r} is held by the job {self.job_name!r} (id "
            f"{self.job_id}), which is running",
            "give this job a prefix of its own, or stop that one (if it was killed, it lets go "
            f"after {SESSION_TIMEOUT_S} s)",
            Severity.ERROR,
        )


def group_of(prefix: str) -> str:
    """Return the group that holds a prefix."""
    return f"seamark.{capped(prefix)}"


def find_holder(admin: Any, group: str, job_id: str) -> Holder | None:
    """Return another job than `job_id` that holds the prefix of `group`. Asks for the group only if
    a broker lists it: asking for a missing one would make a new cluster create its log of groups.
    Raises KafkaError."""
    if group not in {listed["group_id"] for listed in admin.list_groups()}:
        return None
    members = admin.describe_groups([group])[group]["members"]
    return _other_holder((member["client_id"] for member in members), job_id)


def _other_holder(clients: Iterable[str], job_id: str) -> Holder | None:
    for client in clients:
        parts = client.split("/")
        if len(parts) == 4 and parts[0] == "seamark" and unquote(parts[2]) != job_id:
            return Holder(unquote(parts[1]), unquote(parts[2]))
    return None


_UNKNOWN_MEMBER, _REBALANCE, _NOT_AUTHORISED, _MEMBER_ID_REQUIRED = 25, 27, 30, 79


class PrefixOwner:
    """Holds one prefix for one job, from `take` to `release`."""

    def __init__(
        self, settings: Mapping[str, Any], prefix: str, job_name: str, job_id: str
    ) -> None:
        self._prefix = prefix
        self._job_id = job_id
        self._group = group_of(prefix)
        self._client_id = "/".join(
            # The token tells this driver from a dead one of the same job.
            (
                "seamark",
                quote(job_name, safe=" ")[:200],
                quote(job_id, safe=""),
                secrets.token_hex(4),
            )
        )
        self._settings = {**settings, "client_id": self._client_id}
        self._admin: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._member_id = ""

    def take(self, sink: str) -> None:
        """Join the group, and return once every other job would see this one.

        Raises PreflightError, with the other job's name, if another job holds the prefix; and if
        the broker does not let us join the group. `sink` names the sink in errors.
        """
        from kafka.errors import KafkaError

        try:
            self._admin = self._open()
            self._refuse_others(sink)
            self._thread = threading.Thread(
                target=self._stay, name="seamark-kafka-prefix", daemon=True
            )
            self._thread.start()
            deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
            while not any(client == self._client_id for client in self._clients()):
                if time.monotonic() > deadline:
                    raise PreflightError(
                        self._unusable(
                            sink,
                            f"could not be joined within {_VISIBLE_TIMEOUT_S:g} s",
                            "see whether the brokers are well, and grant READ and DESCRIBE on that "
                            "group where they have access control",
                        )
                    )
                time.sleep(0.02)
            # Two jobs started at the same moment see each other here at the latest.
            self._refuse_others(sink)
        except KafkaError as error:
            self.release()
            why = f"cannot be used: {type(error).__name__}: {error}"
            raise PreflightError(
                self._unusable(sink, why, "grant READ and DESCRIBE on it")
            ) from error
        except PreflightError:
            self.release()
            raise

    def _unusable(self, sink: str, why: str, remedy: str) -> Finding:
        found = (
            f"the group {self._group!r}, which keeps other jobs off transactional_id_prefix "
            f"{self._prefix!r}, {why}"
        )
        return Finding(FindingCode.SV003, sink, found, remedy)

    def release(self) -> None:
        """Leave the group, so another job may take the prefix at once. Raises nothing."""
        self._stop.set()
        if self._member_id:
            with contextlib.suppress(Exception):
                self._leave()
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(Exception):
                admin.close()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _open(self, timeout_s: float = 5) -> Any:
        return open_admin(self._settings, request_timeout_s=timeout_s)

    def _refuse_others(self, sink: str) -> None:
        if (holder := _other_holder(self._clients(), self._job_id)) is not None:
            raise PreflightError(holder.finding(sink, self._prefix))

    def _clients(self) -> list[str]:
        # A separate connection: while a join waits for the other members, a broker answers nothing
        # else on its connection.
        from kafka.errors import GroupIdNotFoundError, RetriableError

        deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
        with contextlib.closing(self._open()) as admin:
            while True:
                try:
                    groups = admin.describe_groups([self._group])
                except GroupIdNotFoundError:
                    return []
                except RetriableError:  # a cluster's first group takes it seconds
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
                else:
                    return [member["client_id"] for member in groups[self._group]["members"]]

    def _stay(self) -> None:
        while not self._stop.is_set():
            try:
                generation = self._join()
                while not self._stop.wait(_HEARTBEAT_S):
                    code = self._heartbeat(generation)
                    if code == _UNKNOWN_MEMBER:
                        self._member_id = ""
                    if code:
                        break
            except Exception as error:  # the brokers may be away for long: never give up
                if self._stop.is_set():
                    return
                _log.debug("group %s: %s", self._group, error)
                self._stop.wait(1)

    def _join(self) -> int:
        from kafka.protocol.consumer.group import JoinGroupRequest, SyncGroupRequest

        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")
        while not self._stop.is_set():
            joined = self._send(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=SESSION_TIMEOUT_S * 1000,
                    rebalance_timeout_ms=SESSION_TIMEOUT_S * 1000,
                    member_id=self._member_id,
                    group_instance_id=None,
                    protocol_type="seamark",
                    protocols=[protocol],
                ),
                _JOIN_TIMEOUT_S,
            )
            self._member_id = joined.member_id or self._member_id
            if joined.error_code != _MEMBER_ID_REQUIRED:
                break
        if joined.error_code:
            self._member_id = ""
            raise RuntimeError(f"JoinGroup answers {joined.error_code}")
        synced = self._send(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="seamark",
                protocol_name=_PROTOCOL,
                assignments=[],
            ),
            _JOIN_TIMEOUT_S,
        )
        if synced.error_code:
            raise RuntimeError(f"SyncGroup answers {synced.error_code}")
        return int(joined.generation_id)

    def _heartbeat(self, generation: int) -> int:
        from kafka.protocol.consumer.group import HeartbeatRequest

        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=None,
        )
        return int(self._send(request, 5).error_code)

    def _leave(self) -> None:
        from kafka.protocol.consumer.group import LeaveGroupRequest

        member = LeaveGroupRequest.MemberIdentity(
            member_id=self._member_id, group_instance_id=None, reason="the job ends"
        )
        request = LeaveGroupRequest(
            group_id=self._group, member_id=self._member_id, members=[member]
        )
        # A separate connection again: the thread's may be waiting in a join.
        with contextlib.closing(self._open(timeout_s=2)) as admin:
            self._send(request, 2, admin)

    def _send(self, request: Any, timeout_s: float, over: Any = None) -> Any:
        wire = Wire(over or self._admin)

        async def send() -> Any:
            # Looked up each time: it costs little at this rate, and a coordinator may move.
            node = (await wire.coordinators([self._group], groups=True))[self._group]
            return await wire.wait(wire.send(request, node, timeout_s), timeout_s)

        return wire.run(send)
