"""The end of a program with an uncaught error that Seamark raised on purpose: one paragraph.

It stands below the program's own lines that led there, without Seamark's.
"""

import logging
import sys
import traceback
from pathlib import Path
from types import TracebackType

_log = logging.getLogger(__name__)
_OURS = str(Path(__file__).parent.parent)
_NO_CONNECTOR = (
    "this Spark session lacks its Kafka connector. job.source(sm.KafkaSource(…)) adds it by "
    "itself; for spark.readStream start the program with: spark-submit --packages "
    "org.apache.spark:spark-sql-kafka-0-10_2.13:{version} app.py, or make the session with "
    '.config("spark.jars.packages", …) of the same'
)


def is_said(error: BaseException) -> bool:
    """Whether it is an error of Seamark's own: its text says all, and a traceback would hide it, so
    that goes to the log's details."""
    from seamark.model.errors import SeamarkError

    if not isinstance(error, SeamarkError):
        return False
    _log.debug("what has ended the program:", exc_info=error)
    return True


def show_mistakes() -> None:
    """Install the hook; called by ``import seamark``. Other uncaught errors are shown as before."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not is_said(error):
            before(kind, error, trace)
            if "Failed to find data source: kafka" in str(error):
                version = getattr(sys.modules.get("pyspark"), "__version__", "VERSION")
                print("seamark:", _NO_CONNECTOR.format(version=version), file=sys.stderr)  # noqa: T201
            return
        lines = [
            line
            for line in traceback.extract_tb(trace)
            if not line.filename.startswith((_OURS, "<frozen", "<string>"))  # of a dataclass
        ]
        print("".join(traceback.format_list(lines)), end="", file=sys.stderr)  # noqa: T201
        print(f"{kind.__name__}: {error}", file=sys.stderr)  # noqa: T201 - its last words

    sys.excepthook = show
