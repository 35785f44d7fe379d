"""librdkafka's C functions through ctypes, from the shared library in the confluent-kafka wheel.

`load()` returns the library after a self-test of the one struct whose layout this code relies on.
It returns None if the test fails; `row_producer.py` then does all the work through the Python
client.
"""

import ctypes
import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from seamark.model.packages import load_driver

_log = logging.getLogger(__name__)

MESSAGE = np.dtype(
    [
        ("err", "<i4"), ("_gap0", "<i4"), ("topic", "<u8"), ("partition", "<i4"), ("_gap1", "<i4"),
        ("value", "<u8"), ("value_len", "<u8"), ("key", "<u8"), ("key_len", "<u8"),
        ("offset", "<i8"), ("_private", "<u8"),
    ]
)  # fmt: skip
"""``rd_kafka_message_t``: public, and part of librdkafka's stable ABI since 0.9."""

PRODUCER = 0
COPY, MESSAGE_PARTITION = 0x2, 0x8  # flags of produce_batch
UNASSIGNED = -1  # "let the partitioner choose"
EVENT_DELIVERY, EVENT_ERROR, EVENT_STATISTICS, EVENT_TOKEN = 0x1, 0x8, 0x40, 0x100
QUEUE_FULL, PURGED_IN_QUEUE = -184, -152
PURGE_QUEUE, PURGE_IN_FLIGHT = 0x1, 0x2
_SUPPORTED = (0x02_00_00_00, 0x03_00_00_00)  # from, below

_P, _I, _S, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
_FUNCTIONS: dict[str, tuple[Any, Sequence[Any]]] = {
    "version": (_I, []),
    "err2str": (_S, [_I]),
    "conf_new": (_P, []),
    "conf_set": (_I, [_P, _S, _S, _S, _N]),
    "conf_set_events": (None, [_P, _I]),
    "conf_destroy": (None, [_P]),
    "conf_dump": (ctypes.POINTER(_S), [_P, ctypes.POINTER(_N)]),
    "conf_dump_free": (None, [ctypes.POINTER(_S), _N]),
    "new": (_P, [_I, _P, _S, _N]),
    "destroy": (None, [_P]),
    "oauthbearer_set_token": (_I, [_P, _S, ctypes.c_int64, _S, _P, _N, _S, _N]),
    "oauthbearer_set_token_failure": (_I, [_P, _S]),
    "purge": (_I, [_P, _I]),
    "topic_new": (_P, [_P, _S, _P]),
    "topic_destroy": (None, [_P]),
    "metadata": (_I, [_P, _I, _P, ctypes.POINTER(_P), _I]),
    "metadata_destroy": (None, [_P]),
    "produce_batch": (_I, [_P, ctypes.c_int32, _I, _P, _I]),
    "flush": (_I, [_P, _I]),
    "outq_len": (_I, [_P]),
    "queue_get_main": (_P, [_P]),
    "queue_poll": (_P, [_P, _I]),
    "queue_destroy": (None, [_P]),
    "event_type": (_I, [_P]),
    "event_error": (_I, [_P]),
    "event_stats": (_S, [_P]),
    "event_message_count": (_N, [_P]),
    "event_message_next": (_P, [_P]),
    "event_destroy": (None, [_P]),
    "fatal_error": (_I, [_P, _S, _N]),
    "init_transactions": (_P, [_P, _I]),
    "begin_transaction": (_P, [_P]),
    "abort_transaction": (_P, [_P, _I]),
    "error_code": (_I, [_P]),
    "error_string": (_S, [_P]),
    "error_destroy": (None, [_P]),
}


driver = functools.partial(
    load_driver, "confluent_kafka", "KafkaSink needs confluent-kafka", "kafka"
)
"""Return its module. Raises MissingDependencyError."""


@functools.lru_cache(maxsize=1)
def load() -> Any | None:
    """Return an object with librdkafka's functions as attributes (without their ``rd_kafka_``).
    Return None and log a warning with the reason if they cannot be used."""
    try:
        library = _open()
        _self_test(library)
    except (OSError, AttributeError, RuntimeError) as error:
        _log.warning(
            "librdkafka cannot be called directly (%s); rows go through confluent_kafka one by "
            "one, which costs about twice the CPU",
            error,
        )
        return None
    return library


def settings() -> list[str]:
    """Return the names of librdkafka's settings; none if it cannot be called directly."""
    library = load()
    if library is None:
        return []
    conf, count = library.conf_new(), ctypes.c_size_t()
    dumped = library.conf_dump(conf, ctypes.byref(count))  # name, value, name, value, …
    names = [dumped[i].decode() for i in range(0, count.value, 2)]
    library.conf_dump_free(dumped, count)
    library.conf_destroy(conf)
    return names


def _open() -> Any:
    folder = Path(driver().__file__).parent.parent / "confluent_kafka.libs"
    libraries = sorted(folder.glob("librdkafka-*.so*"))
    if not libraries:
        raise OSError(f"no librdkafka in {folder}")
    # The process has loaded the wheel's own copy already; dlopen of its path returns it.
    library, functions = ctypes.CDLL(str(libraries[0])), SimpleNamespace()
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
        setattr(functions, name, function)
    version = functions.version()
    if not _SUPPORTED[0] <= version < _SUPPORTED[1]:
        raise RuntimeError(f"its version is {version:#010x}, tried are 2.x")
    return functions


def _self_test(library: Any) -> None:
    """Enqueue three messages in a client without servers, purge them, and compare the messages
    returned. Proves the struct's layout in both directions in a few milliseconds."""
    rows = [(b"key-0", b"value-zero"), (None, b""), (b"", None)]
    conf = library.conf_new()
    error = ctypes.create_string_buffer(512)
    library.conf_set(conf, b"log_level", b"0", error, 512)
    library.conf_set_events(conf, EVENT_DELIVERY)
    client = library.new(PRODUCER, conf, error, 512)
    if not client:
        library.conf_destroy(conf)
        raise RuntimeError(error.value.decode())
    topic, queue = library.topic_new(client, b"self-test", None), library.queue_get_main(client)
    try:
        messages, buffers = np.zeros(len(rows), MESSAGE), []
        for message, row in zip(messages, rows, strict=True):
            for name, data in zip(("key", "value"), row, strict=True):
                if data is not None:
                    buffers.append(ctypes.create_string_buffer(data))
                    message[name] = ctypes.addressof(buffers[-1])
                    message[f"{name}_len"] = len(data)
        accepted = library.produce_batch(topic, UNASSIGNED, COPY, messages.ctypes.data, len(rows))
        if accepted != len(rows):
            raise RuntimeError(f"self-test: {accepted} of {len(rows)} messages were accepted")
        library.purge(client, PURGE_QUEUE)
        returned: list[tuple[bytes | None, bytes | None]] = []
        while len(returned) < len(rows):
            event = library.queue_poll(queue, 1000)
            if not event:
                raise RuntimeError(f"self-test: {len(returned)} of {len(rows)} messages came back")
            while pointer := library.event_message_next(event):
                message = message_at(pointer)
                if message["err"] != PURGED_IN_QUEUE:
                    raise RuntimeError(f"self-test: error code {message['err']}")
                returned.append((_bytes(message, "key"), _bytes(message, "value")))
            library.event_destroy(event)
        if returned != rows:
            raise RuntimeError(f"self-test: sent {rows}, got {returned}")
    finally:
        library.topic_destroy(topic)
        library.queue_destroy(queue)
        library.destroy(client)


class _Partition(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int32),
        ("err", _I),
        ("leader", ctypes.c_int32),
        ("replica_count", _I),
        ("replicas", _P),
        ("in_sync_count", _I),
        ("in_sync", _P),
    ]


class _Topic(ctypes.Structure):
    _fields_ = [
        ("name", _S),
        ("partition_count", _I),
        ("partitions", ctypes.POINTER(_Partition)),
        ("err", _I),
    ]


class _Metadata(ctypes.Structure):
    _fields_ = [
        ("broker_count", _I),
        ("brokers", _P),
        ("topic_count", _I),
        ("topics", ctypes.POINTER(_Topic)),
    ]


def leaders(metadata: int | None) -> dict[int, int]:
    """Return the leader (-1: none) of each partition of the one topic in an ``rd_kafka_metadata``;
    {} if the topic is not known."""
    answer = _Metadata.from_address(metadata) if metadata else None
    if answer is None or answer.topic_count != 1 or answer.topics[0].err:
        return {}
    topic = answer.topics[0]
    return {p.id: p.leader for p in topic.partitions[: topic.partition_count]}


def message_at(pointer: int) -> Any:
    """Return the ``rd_kafka_message_t`` at an address, as a record valid as long as its event."""
    memory: Any = (ctypes.c_char * MESSAGE.itemsize).from_address(pointer)
    return np.frombuffer(memory, MESSAGE)[0]


def _bytes(message: Any, name: str) -> bytes | None:
    if not message[name]:
        return None
    return ctypes.string_at(int(message[name]), int(message[f"{name}_len"]))
