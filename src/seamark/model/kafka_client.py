"""Kafka's own client of administrators in Spark's JVM, by py4j: with the options of Spark's reader.

Sources use it, and a start, which knows a plain stream from Kafka by these options alone.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

TopicIds = Mapping[str, Mapping[str, str]]
"""By a source's uid, and by its topics' names, the brokers' ids of these."""
ANSWER_MS = 5_000
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # Kafka's Uuid.ZERO_UUID


def kafka_error(error: Exception, what: str = "", *, root: bool = False) -> OSError:
    """Return Kafka's own words as an OSError, with `root` the deepest cause; raise an error from
    elsewhere."""
    answer = getattr(error, "java_exception", None)  # py4j's own text says little
    if answer is None:
        raise error
    cause = answer.getCause()
    while root and cause and cause.getCause():
        cause = cause.getCause()
    return OSError(f"{what}{cause or answer}")


def admin_client(jvm: Any, options: Mapping[str, str], timeout_ms: int) -> Any:
    """Return an open AdminClient of Spark's Kafka client; `options`: of Spark's reader. Raises
    OSError for a host that no name server knows, and for settings that the client refuses."""
    admin = jvm.org.apache.kafka.clients.admin
    known = admin.AdminClientConfig.configNames()
    settings = jvm.java.util.HashMap()
    for option, value in options.items():
        name = option.lower().removeprefix("kafka.")
        if name != option.lower() and known.contains(name):  # the others are the consumer's
            settings.put(name, value)
    settings.put("default.api.timeout.ms", str(timeout_ms))
    settings.put("request.timeout.ms", str(timeout_ms // 2))
    try:
        return admin.AdminClient.create(settings)
    except Exception as error:
        raise kafka_error(error, root=True) from error


def described(jvm: Any, admin: Any, names: Sequence[str]) -> Any:
    """Return Java's map of the topics' descriptions by name, with what this user may do."""
    options = jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions()
    options.includeAuthorizedOperations(True)
    topics = jvm.java.util.ArrayList()
    for name in names:
        topics.add(name)
    answer = admin.describeTopics(topics, options).allTopicNames()
    return answer.get(ANSWER_MS, jvm.java.util.concurrent.TimeUnit.MILLISECONDS)


@contextlib.contextmanager
def asked(jvm: Any, options: Mapping[str, str]) -> Iterator[Any]:
    """Give an AdminClient for this context, in which errors of Kafka's become OSError."""
    admin = admin_client(jvm, options, ANSWER_MS)
    try:
        yield admin
    except Exception as error:
        raise kafka_error(error) from error
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))


def existing(jvm: Any, admin: Any) -> set[str]:
    """Return the names of the topics that the brokers show to this user."""
    unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    return set(admin.listTopics().names().get(ANSWER_MS, unit))


def topic_ids(jvm: Any, options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the brokers' ids of these topics: one that is deleted and made again gets another id
    (KIP-516). Empty for brokers before Kafka 2.8. Raises OSError if they do not tell every one."""
    with asked(jvm, options) as admin:
        topics = described(jvm, admin, names)
        ids = {name: str(topics.get(name).topicId()) for name in names}
    return {name: id_ for name, id_ in ids.items() if id_ != _NO_ID}


def partitions_of(
    jvm: Any, options: Mapping[str, str], reads: Callable[[str], bool]
) -> dict[str, set[int]]:
    """Return the partitions of each topic that `reads` names. Raises OSError."""
    with asked(jvm, options) as admin:
        names = sorted(filter(reads, existing(jvm, admin)))
        topics = described(jvm, admin, names)
        return {name: set(range(topics.get(name).partitions().size())) for name in names}
