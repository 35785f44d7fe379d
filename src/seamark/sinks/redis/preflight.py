"""Checks of the real server, made before anything is written: `ask` collects the facts, the rules
are pure."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.sinks.internal.servers import Findings
from seamark.sinks.redis import scripts, server
from seamark.sinks.redis.committable import Keys
from seamark.sinks.redis.server import Link

if TYPE_CHECKING:
    from seamark.sinks.redis.sink import RedisSink

_OLDEST = (6, 0)
_ACCEPT = 'or accept what can be lost with durability="none"'


def look(sink: "RedisSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """Yield every finding. A `start` without errors raises the guard: from then on no task of an
    older generation writes anything. Raises PreflightError without an answer."""
    with _connected(sink, name) as link:
        facts = ask(link)
    yield from findings(sink, name, facts)
    if start:
        guard = Keys(context.job_id, context.sink_uid).named("guard")
        with _connected(sink, name) as link:  # a refused question has closed the other
            link.call("EVAL", scripts.FENCE, 1, guard, context.generation)


@contextlib.contextmanager
def _connected(sink: "RedisSink", name: str) -> Iterator[Link]:
    try:
        with contextlib.closing(Link(sink.address)) as link:
            yield link
    except server.driver().RedisError as error:
        # A server that wants a certificate may hang up before we can read its reason.
        tls = sink.address.tls
        certificate = "; that ssl_certfile is in the URL if the server asks for one" if tls else ""
        raise PreflightError(
            Finding(
                FindingCode.SV001,
                name,
                f"the server cannot be used: {error}",
                f"see that {sink.address.shown} is right, that the server runs and can be reached "
                "from the driver and from every executor, and that this user may run EVAL and INFO "
                f"and write keys {sink.key_prefix}* and seamark:*{certificate}",
            )
        ) from error


@dataclass(frozen=True)
class ServerFacts:
    """The server's ``INFO``, and its ``appendfsync``: "" where many hosted servers hide it."""

    information: Mapping[str, str]
    appendfsync: str = ""

    @property
    def version(self) -> tuple[int, ...]:
        """Its first two numbers."""
        return tuple(map(int, self.information.get("redis_version", "0.0").split(".")[:2]))


def ask(link: Link) -> ServerFacts:
    """Return the server's settings."""
    lines = link.call("INFO").decode().splitlines()
    information = dict(line.split(":", 1) for line in lines if ":" in line)
    try:
        (_, fsync) = link.call("CONFIG", "GET", "appendfsync")
    except (server.driver().ResponseError, ValueError):
        return ServerFacts(information)
    return ServerFacts(information, fsync.decode())


def findings(sink: "RedisSink", name: str, facts: ServerFacts) -> Findings:
    """Apply the rules to the facts."""
    yield from server_unfit(sink, name, facts)
    yield from rows_at_risk(sink, name, facts)


def server_unfit(sink: "RedisSink", name: str, facts: ServerFacts) -> Findings:
    """The server is too old, part of a cluster, a replica, or has too few replicas."""
    information = facts.information

    def unfit(what: str, remedy: str) -> Finding:
        return Finding(FindingCode.SV002, name, what, remedy)

    if facts.version < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        version = information.get("redis_version", "0.0")
        yield unfit(f"the server is Redis {version}", f"at least {oldest} is needed")
    if (kind := information.get("redis_mode", "standalone")) != "standalone":
        yield unfit(
            f"the server runs as {kind}, and rows and guard would lie on nodes that nothing holds "
            "together",
            "give the address of a primary outside of any cluster",
        )
    if information.get("role") != "master":
        primary = information.get("master_host")
        yield unfit(f"the server is a replica of {primary}", "give the primary's address")
    elif (online := int(information.get("connected_slaves", 0))) < sink.replicas:
        what = f"replicas is {sink.replicas}, and the server has {online}"
        yield unfit(what, "connect more, or lower replicas=")


def rows_at_risk(sink: "RedisSink", name: str, facts: ServerFacts) -> Findings:
    """Confirmed rows are kept in memory alone, dropped by a full server, or lost with its
    machine."""
    if sink.durability != "aof":
        return
    information, fsync = facts.information, facts.appendfsync
    if information.get("aof_enabled") != "1":
        what = "appendonly is off at the server: rows that it has confirmed are gone when it dies"
        remedy = f"CONFIG SET appendonly yes (and in its configuration file), {_ACCEPT}"
        yield Finding(FindingCode.RD001, name, f"{what}, back to its last snapshot", remedy)
    policy = information.get("maxmemory_policy", "noeviction")
    any_key = policy.startswith("allkeys")
    if int(information.get("maxmemory", 0)) and (any_key or (sink.ttl and policy != "noeviction")):
        dropped = "any key, also Seamark's own" if any_key else "keys before their ttl is over"
        what = f"maxmemory-policy is {policy} at the server: when full, it drops {dropped}"
        remedy = f"CONFIG SET maxmemory-policy noeviction, {_ACCEPT}"
        severity = Severity.ERROR if any_key else None
        yield Finding(FindingCode.SV006, name, what, remedy, severity)
    if fsync not in ("always", ""):
        lost = "a second or two" if fsync == "everysec" else "what its system had not yet written"
        what = f"appendfsync is {fsync} at the server: {lost} of confirmed rows can be lost"
        remedy = "CONFIG SET appendfsync always to lose none"
        yield Finding(FindingCode.SV006, name, f"{what} with its machine", remedy)
