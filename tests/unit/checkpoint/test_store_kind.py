"""A directory of sm.Job is none for sm.write_stream, nor the other way: Spark looks elsewhere.

How: the store on real local directories.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint.inspection import require_sound
from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model.errors import CheckpointError


def a_store(directory: Path, spark: str) -> CheckpointStore:
    return CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / spark))


@pytest.mark.parametrize(
    ("spark", "other", "said"),
    [
        ("spark", "", "of job 'clicks' of sm.Job, where sm.write_stream cannot go on; use sm.Job"),
        ("", "spark", "of job 'clicks' of sm.write_stream, where sm.Job cannot go on; use sm.w"),
    ],
)
def test_the_other_kind_is_told(tmp_path: Path, spark: str, other: str, said: str) -> None:
    store = a_store(tmp_path, spark)
    store.open("clicks")
    store.spark_files.create("commits/0", b"v1\n{}")
    with pytest.raises(CheckpointError, match=said) as raised:
        require_sound(a_store(tmp_path, other))
    assert type(raised.value) is CheckpointError  # nothing is damaged
