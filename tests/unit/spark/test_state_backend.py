"""How: offset logs as Spark writes them; Spark's use of them is in tests/spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seamark.files.local import LocalDirectory
from seamark.model.errors import ConfigurationError
from seamark.spark.state_backend import FORMAT, PROVIDER, check_backend, format_settings

HASHMAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def checkpoint(directory: Path, provider: str, state: bool) -> LocalDirectory:
    (directory / "offsets").mkdir()
    for epoch in (9, 10):
        conf = {"batchWatermarkMs": 0, "conf": {PROVIDER: provider if epoch == 10 else "older"}}
        (directory / f"offsets/{epoch}").write_text(f"v1\n{json.dumps(conf)}\n" + '{"t":{"0":1}}')
    if state:
        (directory / "state/0").mkdir(parents=True)
    return LocalDirectory(directory)


def test_another_backend_than_the_states_is_refused(tmp_path: Path) -> None:
    files = checkpoint(tmp_path, ROCKSDB, state=True)
    check_backend("clicks", files, ROCKSDB, stateful=True)
    with pytest.raises(ConfigurationError) as refused:
        check_backend("clicks", files, HASHMAP, stateful=False)
    assert "Job 'clicks': state_backend is 'hashmap'" in str(refused.value)
    assert f"the state in file://{tmp_path} is of 'rocksdb'" in str(refused.value)
    assert "give state_backend='rocksdb'" in str(refused.value)


def test_a_stateless_query_becomes_stateful_only_with_the_backend_of_its_log(
    tmp_path: Path,
) -> None:
    files = checkpoint(tmp_path, HASHMAP, state=False)
    check_backend("clicks", files, ROCKSDB, stateful=False)
    with pytest.raises(ConfigurationError, match="is of 'hashmap'"):
        check_backend("clicks", files, ROCKSDB, stateful=True)


def test_a_new_checkpoint_may_have_any(tmp_path: Path) -> None:
    check_backend("clicks", LocalDirectory(tmp_path), ROCKSDB, stateful=True)


def test_a_checkpoint_keeps_the_format_of_its_state(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)

    def settings(given: int | None = None, *, keyed: bool = False) -> dict[str, str]:
        return format_settings("clicks", given, files, keyed=keyed)

    assert settings() == settings(1, keyed=True) == settings(2, keyed=True) == {}
    assert settings(keyed=True) == {FORMAT: "2"}
    for version, own in ((1, {}), (2, {FORMAT: "2"})):
        files.create(f"commits/{version + 8}", f"v{version}\n{{}}".encode())
        assert settings() == settings(keyed=True) == own
        assert settings(version) == {}
        with pytest.raises(ConfigurationError, match=f"the state in .* is of format {version}"):
            settings(3 - version)
