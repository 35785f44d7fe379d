"""Checks of the real server, made before anything is written. Each failure has its own error."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.redis import scripts, server
from seamark.sinks.redis.committable import Keys
from seamark.sinks.redis.server import ANSWER_TIMEOUT_S, Link

if TYPE_CHECKING:
    from seamark.sinks.redis.sink import RedisSink

_log = logging.getLogger(__name__)
_OLDEST = (6, 0)


def check(sink: RedisSink, context: SinkContext, keys: Keys, name: str) -> None:
    """Raise PreflightError at the first failed check. If none fails, raise the guard."""
    try:
        with contextlib.closing(Link(sink.address, ANSWER_TIMEOUT_S)) as link:
            found = _information(link)
            _check_server(sink, found, name)
            if sink.durability == "aof":
                _check_durability(link, found, name)
            link.call("EVAL", scripts.FENCE, 1, keys.named("guard"), context.generation)
    except server.driver().RedisError as error:
        # A server that wants a certificate may hang up before we can read its reason.
        tls = sink.address.tls
        certificate = "; that ssl_certfile is in the URL if the server asks for one" if tls else ""
        raise PreflightError(
            f"{name}: the server cannot be used: {error}. See that {sink.address.shown} is right, "
            "that the server runs and can be reached from the driver and from every executor, and "
            f"that this user may run EVAL and INFO and write keys {sink.key_prefix}* and seamark:*"
            f"{certificate}"
        ) from error


def _information(link: Link) -> dict[str, str]:
    lines = link.call("INFO").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _check_server(sink: RedisSink, found: dict[str, str], name: str) -> None:
    version = found.get("redis_version", "0.0")
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        raise PreflightError(
            f"{name}: the server is Redis {version}; at least {'.'.join(map(str, _OLDEST))} is "
            "needed"
        )
    if found.get("redis_mode", "standalone") != "standalone":
        raise PreflightError(
            f"{name}: the server runs as {found['redis_mode']}, and rows and guard would lie "
            "on nodes that nothing holds together; give the address of a primary outside of any "
            "cluster"
        )
    if found.get("role") != "master":
        raise PreflightError(
            f"{name}: the server is a replica of {found.get('master_host')}; give the primary's "
            "address"
        )
    online = int(found.get("connected_slaves", 0))
    if online < sink.replicas:
        raise PreflightError(
            f"{name}: replicas is {sink.replicas}, and the server has {online}; connect more, or "
            "lower replicas="
        )


def _check_durability(link: Link, found: dict[str, str], name: str) -> None:
    accept = 'or accept what can be lost with durability="none"'
    if found.get("aof_enabled") != "1":
        raise PreflightError(
            Finding(
                FindingCode.RD001,
                subject=name,
                found="appendonly is off at the server: rows that it has confirmed are gone when "
                "it dies, back to its last snapshot",
                remedy="CONFIG SET appendonly yes (and in its configuration file), " + accept,
            )
        )
    policy = found.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") and int(found.get("maxmemory", 0)):
        raise PreflightError(
            f"{name}: maxmemory-policy is {policy} at the server: when full, it drops any key, "
            f"also Seamark's own. CONFIG SET maxmemory-policy noeviction, {accept}"
        )
    try:
        (_, fsync) = link.call("CONFIG", "GET", "appendfsync")
    except (server.driver().ResponseError, ValueError):  # many hosted servers forbid CONFIG
        _log.info("%s: appendfsync cannot be asked for at this server", name)
        return
    if fsync != b"always":
        lost = "a second or two" if fsync == b"everysec" else "what its system had not yet written"
        _log.warning(
            "%s: appendfsync is %s at the server: %s of confirmed rows can be lost with its "
            "machine; CONFIG SET appendfsync always to lose none", name, fsync.decode(), lost,
        )  # fmt: skip
