"""A batch whose transaction Kafka has dropped before it was decided, on a real broker; Spark's
workers are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from seamark.datasource import writers
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import SeamarkError
from tests.chaos.driver import wait_until
from tests.integration.data_source.test_kills import read_committed
from tests.unit.datasource.played import Query

SCHEMA = StructType([StructField("key", StringType()), StructField("value", StringType())])
ROWS = pa.record_batch({"key": ["1", "2"], "value": ["a", "b"]})


@pytest.mark.parametrize("spool", [False, True])
def test_its_rows_are_there_once(
    spool: bool, kafka: LocalKafka, topic: Any, tmp_path: Path
) -> None:
    name = topic(1)
    query = Query(
        sink="kafka", topic=name, transaction_timeout="1s", spool=str(spool),
        checkpointlocation=f"{tmp_path}/checkpoint",
        **{"kafka.bootstrap.servers": kafka.bootstrap_servers},
    )  # fmt: skip
    told = query.write(query.plan(SCHEMA), 0, rows=ROWS)
    place = query.committing(SCHEMA)
    wait_until("the broker drops it", lambda: not place.open_transactions(), 60)
    commit = writers.BatchCommit(place).commit
    if spool:
        commit([told], 0)
    else:
        with pytest.raises(SeamarkError, match="nothing is decided"):
            commit([told], 0)
        query.end_spark()
        query.options["transaction_timeout"] = "5min"
        query.run(0, schema=SCHEMA, rows=ROWS)
    query.end_spark()
    found, held_up = read_committed(kafka, name, 1)
    assert sorted(found) == [1, 2]
    assert not held_up
