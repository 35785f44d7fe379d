"""Errors that nobody needs: said in the log, and no more."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator

from seamark.model.redaction import redact

log = logging.getLogger(__name__)
LONGEST_CLEANING_S = 20.0
"""After this time `clean` begins nothing more: a silent store must not cost its time-out for each
file."""


@contextlib.contextmanager
def ignored(what: str) -> Iterator[None]:
    """Log an error of the block and go on: an earlier one matters, or nothing depends on it.
    `what` names the work, e.g. ``the abort of a writer``."""
    try:
        yield
    except Exception as error:
        log.info("error ignored in %s: %s: %s", what, type(error).__name__, redact(str(error)))


def clean(steps: Iterable[Callable[[], object]], what: str) -> bool:
    """Do each step as `ignored` does, until the time is over: somebody else cleans up the rest.
    Return whether there is no rest."""
    over = time.monotonic() + LONGEST_CLEANING_S
    for step in steps:
        if time.monotonic() > over:
            log.info("%s: given up after %g s", what, LONGEST_CLEANING_S)
            return False
        with ignored(what):
            step()
    return True
