"""How these tests judge: each scenario runs with `df.writeStream` and with `sm.write_stream(df)` in
its place, in one session, and both must show a user the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import seamark as sm

Write = Callable[..., Any]
"""Returns a writer with a checkpoint location: ``write(df)``, or ``write(df, "name")``."""

WRITERS: dict[str, Callable[[DataFrame], Any]] = {
    "spark": lambda frame: frame.writeStream,
    "seamark": sm.write_stream,
}


class Twin:
    """One side of a comparison, with a directory of its own."""

    def __init__(self, side: str, directory: Path, spark: SparkSession) -> None:
        self.side, self.directory, self.spark = side, directory, spark
        (directory / "in").mkdir(parents=True)

    def write(self, frame: DataFrame, name: str = "query") -> Any:
        location = str(self.directory / "store" / name)
        return WRITERS[self.side](frame).option("checkpointLocation", location)

    def add(self, *ids: int, to: str = "in") -> None:
        (self.directory / to).mkdir(exist_ok=True)
        lines = "\n".join(json.dumps({"id": i}) for i in ids)
        (self.directory / to / f"{min(ids)}.json").write_text(lines)

    def read(self, spark: SparkSession | None = None, of: str = "in") -> DataFrame:
        """Return the stream of the files, one file an epoch."""
        reader = (spark or self.spark).readStream.schema("id BIGINT")
        return reader.option("maxFilesPerTrigger", 1).json(str(self.directory / of))


def both(scenario: Callable[[Twin], Any], tmp_path: Path, spark: SparkSession) -> Any:
    """Run a scenario on both sides; return what both have shown."""
    theirs = scenario(Twin("spark", tmp_path / "spark", spark))
    ours = scenario(Twin("seamark", tmp_path / "seamark", spark))
    assert ours == theirs
    return ours
