"""The Kafka sink: two-phase commit by transactions that any process can end.

Follow the rows: `sink.py` (configuration) -> `writer.py` (one task attempt) -> `producer_pool.py`
(warm producers, transactional ids) -> `native_producer.py` (whole Arrow columns to librdkafka) or
`row_producer.py` (rows with headers or a topic of their own) -> `committable.py` -> `committer.py`
(the driver's side) -> `end_transaction.py` (the wire, and the meaning of the broker's answers).
"""

from seamark.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
