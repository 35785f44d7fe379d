"""Whether a job sends traces and metrics to an OpenTelemetry receiver: the standard variables say.

`rest/otlp.py` sends them; it is imported here, where a receiver is named, and needs the extra
``otel``. docs/operations/opentelemetry.md lists spans, attributes and variables.
"""

import logging
import os
from collections.abc import Callable, Mapping

from seamark.model.packages import load_driver
from seamark.rest.live_job import LiveJob

log = logging.getLogger(__name__)

_OTLP = "OTEL_EXPORTER_OTLP_"
_PROTOCOL = "http/protobuf"


def begin_telemetry(job: LiveJob) -> Callable[[], None]:
    """Send the job's epochs and metrics from now on, if a receiver is named; return what ends it.

    Called once the job has a supervisor. Never raises: what cannot be sent is one warning.
    """
    signals = [signal for signal in ("TRACES", "METRICS") if _wanted(signal, os.environ)]
    if not signals:
        return lambda: None
    try:
        otlp = load_driver("seamark.rest.otlp", "traces and metrics need OpenTelemetry", "otel")
        return otlp.Otlp(job, signals).close  # type: ignore[no-any-return]
    except Exception as error:  # also a variable that the SDK refuses
        log.warning("%s… is set, and nothing is sent: %s", _OTLP, error)
    return lambda: None


def _wanted(signal: str, environment: Mapping[str, str]) -> bool:
    """Return whether a signal has a receiver that speaks a protocol of ours."""

    def of(name: str) -> str:
        return environment.get(f"{_OTLP}{signal}_{name}") or environment.get(_OTLP + name, "")

    exporters = environment.get(f"OTEL_{signal}_EXPORTER", "") or "otlp"
    off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or not of("ENDPOINT") or "otlp" not in exporters.split(","):
        return False
    if (protocol := of("PROTOCOL") or _PROTOCOL) != _PROTOCOL:
        log.warning(
            "%sPROTOCOL is %r, and no %s are sent: set it to %r, with the receiver's port for it "
            "(4318, as a rule)",
            _OTLP, protocol, signal.lower(), _PROTOCOL,
        )  # fmt: skip
        return False
    return True
