"""Guards a transactional id prefix: its owner is the live member of the group ``seamark.<prefix>``.

The driver joins that group, with a protocol of its own and without reading a topic, and stays in it
by heartbeats. Its client id names the job, so another job asking for the prefix can name the
holder. A killed driver drops out of the group after `SESSION_TIMEOUT_S`; a new driver of the same
job need not wait. The guard is against mistakes, such as a job restored beside the running original
with the same prefix. Ids hold a hash of job and sink, so two jobs on one prefix could not end each
other's transactions; but nobody could tell the owner of a transaction.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.sinks.kafka.transactional_id import capped
from seamark.sinks.kafka.wire import Membership, forget_coordinators, open_admin

_log = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 10
_VISIBLE_TIMEOUT_S = 15.0


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
    return _other_holder(_clients(admin, group), job_id)


def _clients(admin: Any, group: str) -> list[str]:
    """Return the client id of each member of a group. Raises KafkaError."""
    from kafka.errors import GroupIdNotFoundError, RetriableError

    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    while True:
        forget_coordinators(admin, [group], groups=True)
        try:
            groups = admin.describe_groups([group])
        except GroupIdNotFoundError:
            return []
        except RetriableError:  # a cluster's first group takes it seconds
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return [member["client_id"] for member in groups[group]["members"]]


def _other_holder(clients: Iterable[str], job_id: str) -> Holder | None:
    for client in clients:
        parts = client.split("/")
        if len(parts) == 4 and parts[0] == "seamark" and unquote(parts[2]) != job_id:
            return Holder(unquote(parts[1]), unquote(parts[2]))
    return None


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
        self._membership: Membership | None = None

    def take(self, sink: str) -> None:
        """Join the group, and return once every other job would see this one.

        Raises PreflightError, with the other job's name, if another job holds the prefix; and if
        the broker does not let us join the group. `sink` names the sink in errors.
        """
        from kafka.errors import KafkaError

        try:
            # A separate connection asks: while a join waits for the other members, a broker answers
            # nothing else on its connection.
            with contextlib.closing(self._open()) as asking:
                self._refuse_others(_clients(asking, self._group), sink)
                self._admin = self._open()
                self._membership = Membership(self._admin, self._group, SESSION_TIMEOUT_S)
                deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
                while self._client_id not in (clients := _clients(asking, self._group)):
                    if time.monotonic() > deadline:
                        raise PreflightError(
                            self._unusable(
                                sink,
                                f"could not be joined within {_VISIBLE_TIMEOUT_S:g} s",
                                "see whether the brokers are well, and grant READ and DESCRIBE on "
                                "that group where they have access control",
                            )
                        )
                    time.sleep(0.02)
                # Two jobs started at the same moment see each other here at the latest.
                self._refuse_others(clients, sink)
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

    def _refuse_others(self, clients: Iterable[str], sink: str) -> None:
        if (holder := _other_holder(clients, self._job_id)) is not None:
            raise PreflightError(holder.finding(sink, self._prefix))

    def release(self) -> None:
        """Leave the group, so another job may take the prefix at once. Raises nothing."""
        admin, membership = self._admin, self._membership
        self._admin = self._membership = None
        try:
            # Before it leaves: a member in a join would join again once it is told that it left.
            with contextlib.closing(admin) if admin is not None else contextlib.nullcontext():
                if membership is not None:
                    membership.stop()
        except Exception as error:  # harmless: a broker is silent, and the client is closed
            _log.info("error ignored in closing a member of the group %s: %s", self._group, error)
        try:
            if membership is not None:
                with contextlib.closing(self._open(timeout_s=2)) as other:
                    membership.leave(other)
        except Exception as error:  # harmless: brokers drop a silent member
            _log.info("error ignored in leaving the group %s: %s", self._group, error)

    def _open(self, timeout_s: float = 5) -> Any:
        return open_admin(self._settings, request_timeout_s=timeout_s)
