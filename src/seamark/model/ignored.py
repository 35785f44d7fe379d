"""Errors that nobody needs: said in the log, and no more."""

import contextlib
import logging
from collections.abc import Iterator

from seamark.model.redaction import redact

log = logging.getLogger(__name__)


@contextlib.contextmanager
def ignored(what: str) -> Iterator[None]:
    """Log an error of the block and go on: an earlier one matters, or nothing depends on it.
    `what` names the work, e.g. ``the abort of a writer``."""
    try:
        yield
    except Exception as error:
        log.info("error ignored in %s: %s: %s", what, type(error).__name__, redact(str(error)))
