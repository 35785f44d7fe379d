"""`CheckpointConfig`: the settings of a job's checkpoints, named as Flink names them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from tidemark.model.durations import Duration, seconds
from tidemark.model.errors import ConfigurationError


class CheckpointMode(Enum):
    """What the job's checkpoints promise (Flink: `CheckpointingMode`)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How a job takes its checkpoints.

    interval: time between the starts of two epochs, e.g. ``"5s"``; 0 starts each epoch as soon as
        the one before ends. A bounded job does not wait for it.
    mode: ``"exactly-once"``, or ``"at-least-once"``: sinks become visible before the decision, so a
        replay after a failure duplicates.
    storage: where checkpoints lie: any URI that Spark's checkpoint location takes (``file:``,
        ``hdfs:``, ``s3a:``), or a local path. Each job has the directory ``<storage>/<job name>``.

    Raises ConfigurationError, naming the setting and the value found.
    """

    storage: str
    interval: Duration = "10s"
    mode: str | CheckpointMode = CheckpointMode.EXACTLY_ONCE
    interval_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval_s", seconds(self.interval, "CheckpointConfig: interval"))
        try:
            object.__setattr__(self, "mode", CheckpointMode(self.mode))
        except ValueError:
            allowed = ", ".join(repr(m.value) for m in CheckpointMode)
            raise ConfigurationError(
                f"CheckpointConfig: mode is {self.mode!r}; allowed are {allowed}"
            ) from None
        object.__setattr__(self, "storage", storage_uri(self.storage, "CheckpointConfig: storage"))


def storage_uri(value: object, setting: str) -> str:
    """Return `value` as a URI without a trailing slash; a local path becomes ``file:///…``."""
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigurationError(
            f"{setting} is {value!r}; give a URI such as 'file:///var/lib/tidemark', "
            "'hdfs://namenode/tidemark', 's3a://bucket/tidemark', or a local path"
        )
    text = str(value)
    parts = urlsplit(text)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        return text.rstrip("/")
    if parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            f"{setting} is {text!r}: {parts.netloc!r} stands where a file URI has its host; "
            f"write 'file:///{parts.netloc}{parts.path}' for an absolute path"
        )
    path = Path(parts.path if parts.scheme == "file" else text).expanduser().absolute()
    return "file://" + str(path)
