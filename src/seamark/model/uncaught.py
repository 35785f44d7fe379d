"""The end of a program with an uncaught error that Seamark raised on purpose, or that Spark's tasks
have ended a job with: one paragraph.

It stands below the program's own lines that led there, without Seamark's.
"""

import logging
import re
import sys
import traceback
from pathlib import Path
from types import TracebackType

_log = logging.getLogger(__name__)
_OURS = str(Path(__file__).parent.parent)
_PYTHONS = str(Path(logging.__file__).parent.parent)
_OTHERS = re.compile(r"[/\\]([\w.]+-packages|pyspark\.zip|python)[/\\](pyspark|py4j|seamark)[/\\]")
TRACEBACK = "Traceback (most recent call last):\n"
_WORDS = "_seamark_last_words"
_NO_CONNECTOR = (
    "this Spark session lacks its Kafka connector. job.source(sm.KafkaSource(…)) adds it by "
    "itself; for spark.readStream start the program with: spark-submit --packages "
    "org.apache.spark:spark-sql-kafka-0-10_2.13:{version} app.py, or make the session with "
    '.config("spark.jars.packages", …) of the same'
)


def say_at_end(error: BaseException, words: str) -> None:
    """Let `words` stand for the traceback of `error`, of another library's type, if it ends the
    program."""
    vars(error)[_WORDS] = words


def last_words(error: BaseException) -> str | None:
    """Return what to say of an error that ends the program; None if its traceback is to be shown.
    Where the text says all, a traceback would hide it, so that goes to the log's details."""
    from seamark.model.errors import SeamarkError

    words = str(error) if isinstance(error, SeamarkError) else vars(error).get(_WORDS)
    if words is not None:
        _log.debug("what has ended the program:", exc_info=error)
    return words


def own_lines_in(text: str) -> str:
    """Return a formatted traceback without the frames of Seamark, PySpark and Python itself."""
    frames = re.split(r'^(?=  File "|\S)', text, flags=re.MULTILINE)
    return "".join(frame for frame in frames if _is_own(frame.removeprefix('  File "')))


def shown(error: BaseException) -> str:
    """Return type, text and place of an error of the program's function, in one line."""
    own = [line for line in traceback.extract_tb(error.__traceback__) if _is_own(line.filename)]
    at = f" (in {own[-1].name}, {own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{at}"


def _is_own(filename: str) -> bool:
    if filename.startswith(_PYTHONS):
        return "-packages" in filename and not _OTHERS.search(filename)
    # "<string>" is of a dataclass
    return not (_OTHERS.search(filename) or filename.startswith((_OURS, "<frozen", "<string>")))


def show_mistakes() -> None:
    """Install the hook; called by ``import seamark``. Other uncaught errors are shown as before."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if (words := last_words(error)) is None:
            before(kind, error, trace)
            if "Failed to find data source: kafka" in str(error):
                version = getattr(sys.modules.get("pyspark"), "__version__", "VERSION")
                print("seamark:", _NO_CONNECTOR.format(version=version), file=sys.stderr)  # noqa: T201
            return
        lines: list[traceback.FrameSummary] = []
        for line in traceback.extract_tb(trace):
            if line.filename.startswith(_OURS) and lines:
                break  # what it led to in there is not the program's
            if _is_own(line.filename):
                lines.append(line)
        print("".join(traceback.format_list(lines)), end="", file=sys.stderr)  # noqa: T201
        print(f"{kind.__name__}: {words}", file=sys.stderr)  # noqa: T201 - its last words

    sys.excepthook = show
