"""Files to SQLite through a function, failing always at row 5: epoch 1 of files of five rows."""

import json
import logging
import sys

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
checkpoint = sm.CheckpointConfig(
    storage=options["storage"],
    interval="100ms",
    restart_strategy=sm.RestartStrategy.fixed_delay(attempts=3, delay="1h"),
    externalized_retention="DELETE_ON_CANCELLATION",
)


def failing(id_: int) -> int:
    if id_ == 5:
        raise ValueError("the user's own mistake")
    return id_


job = sm.Job("failing", checkpoint)
source = sm.FileSource(options["input"], "json", "id BIGINT", options={"maxFilesPerTrigger": "1"})
rows = job.source(source, uid="in").select(F.udf(failing, LongType())("id").alias("id"))
job.sink(rows, sm.SQLiteSink(options["database"], "t"), uid="out")

if __name__ == "__main__":
    job.run()
