"""How: a job with two sinks in a driver of its own, whose first epoch fails, sends to a receiver of
OTLP/HTTP; then the receiver hangs, and the job must go on and end as if it answered."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.chaos.driver import Driver
from tests.servers.otlp import otlp_receiver, values

PROGRAM = """
import logging
from pathlib import Path
import seamark as sm

logging.basicConfig(level=logging.INFO)
logging.getLogger("py4j").setLevel(logging.WARNING)

def look(batches):
    for batch in batches:
        if Path("fail").exists():
            raise ValueError("at first")
        yield batch

job = sm.Job(
    "clicks",
    sm.CheckpointConfig(
        storage="store", interval="300ms",
        restart_strategy=sm.RestartStrategy.fixed_delay(attempts=99, delay="100ms"),
    ),
)
rows = job.source(sm.DatagenSource(rows_per_second=200), uid="rows")
checked = rows.select("row").mapInArrow(look, "row long")
job.sink(checked, sm.FileSink("out", format="parquet"), uid="files")
job.sink(checked, sm.SQLiteSink("rows.db", table="rows"), uid="sqlite")
if __name__ == "__main__":
    job.run()
"""


def test_a_real_jobs_epochs_are_traces_and_a_receiver_that_hangs_disturbs_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "fail").touch()
    with otlp_receiver() as receiver:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        driver = Driver(tmp_path / "app.py", {}, tmp_path / "driver.log", environment=environment)
        try:
            receiver.wait(lambda: any("at first" in s.status.message for s in receiver.spans), 600)
            (tmp_path / "fail").unlink()
            driver.wait_for_epochs(3)
            receiver.wait(lambda: sum(s.status.code == 0 for s in receiver.named("checkpoint")) > 2)
            receiver.wait(lambda: receiver.points.get("seamark_sink_records_out"))
            receiver.hangs = True
            spans, committed = list(receiver.spans), driver.epochs()
            driver.wait_for_epochs(len(committed) + 2)
            assert driver.stop() < 30
        finally:
            driver.kill_tree()
    assert receiver.services == {"clicks"}
    roots = [span for span in spans if span.name == "checkpoint"]
    wrong = [root for root in roots if root.status.code == 2]
    assert any("at first" in root.status.message for root in wrong)
    assert {values(root.attributes)["seamark.outcome"] for root in wrong} == {"FAILED"}
    for root in (root for root in roots if root not in wrong):
        found = values(root.attributes)
        rows, _ = committed[found["seamark.epoch"]]
        assert (found["seamark.outcome"], found["seamark.rows"]) == ("COMPLETED", rows)
        children = [span for span in spans if span.parent_span_id == root.span_id]
        assert [span.name for span in children][-3:] == [
            "process and pre-commit", "decide", "commit",
        ]  # fmt: skip
        assert min(span.start_time_unix_nano for span in children) == root.start_time_unix_nano
        assert children[-1].end_time_unix_nano == root.end_time_unix_nano
        below = [s for s in spans if s.parent_span_id == children[-1].span_id]
        assert [values(span.attributes)["seamark.sink"] for span in below] == ["files", "sqlite"]
        tasks = [s for s in spans if s.parent_span_id == children[-3].span_id]
        assert sum(values(span.attributes)["seamark.rows"] for span in tasks) == rows
    sent = {
        labels["sink"]: point.as_int
        for labels, point in receiver.points["seamark_sink_records_out"]
    }
    assert sent.keys() == {"files", "sqlite"}
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        (count, distinct) = connection.execute(
            "SELECT count(*), count(DISTINCT row) FROM rows"
        ).fetchone()
    assert count == distinct > 0
