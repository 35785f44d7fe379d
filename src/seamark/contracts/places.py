"""Places: texts that are equal if two sinks, or a sink and a source, meet in one outside system.

A place is a URI without user and password, e.g. ``kafka://b1:9092,b2:9092/orders``. It is only
compared: two names of one server make two places.
"""

TRANSACTIONS = "kafka-transactions:"
"""The scheme of a Kafka prefix of transactional ids."""

LONGEST_PREFIX = 80
"""Characters of a prefix used unchanged in transactional ids. Kafka limits an id to 32,767 bytes,
and stores it in every transaction's records."""


def kafka_topic(servers: str, topic: str) -> str:
    """Return the place of a topic; `servers` as for a client, in any order."""
    return f"kafka://{_sorted(servers)}/{topic}"


def kafka_prefix(servers: str, prefix: str) -> str:
    """Return the place of a transactional id prefix."""
    return f"{TRANSACTIONS}//{_sorted(servers)}/{prefix}"


def prefix_of(place: str) -> str:
    """Return the prefix in a `kafka_prefix`; "" for any other place."""
    return place.split("/", 3)[3] if place.startswith(TRANSACTIONS) else ""


def _sorted(servers: str) -> str:
    return ",".join(sorted(server.strip().lower() for server in servers.split(",")))
