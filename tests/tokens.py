"""A job's token, as its callers on this machine find it."""

from __future__ import annotations

from seamark.jobs.token import tokens_at_hand


def read_token(jid: str) -> str | None:
    """Return the first of `tokens_at_hand`; None if there is none."""
    return next(tokens_at_hand(jid), None)
