"""Finds the rows refused by a system that refuses a whole statement for one bad row."""

import re
from collections.abc import Callable

from seamark.contracts.dead_letters import RefusedRow


def sift(
    rows: int,
    take: Callable[[int, int], str],
    *,
    names_row: re.Pattern[str] | None = None,
) -> list[RefusedRow]:
    """Make the system take all good rows, in their order; return the refused ones.

    ``take(start, end)`` tries the rows of that range, all or none, and returns "" or the reason for
    the refusal. `names_row` finds a row of the range, from 1, in such a reason. This is a hint,
    perhaps absent or wrong: a row is refused only after it was tried alone.

    Without a bad row there is one call. A bad row costs about three more with true hints, else
    about log2(rows) or, where bad rows are dense, the distance between two. If all rows are bad,
    each costs one call.
    """
    refused: list[RefusedRow] = []
    start, length = 0, rows
    suspect = 0  # while `start` < `suspect`, a bad row lies between them
    after_bad = 0
    while start < rows:
        end = min(start + length, rows)
        why = take(start, end)
        if not why:
            start = end
            length = (suspect - start) // 2 or 1 if start < suspect else min(2 * length, rows)
        elif end - start == 1:
            refused.append(RefusedRow(start, why))
            # The next bad row may be as far away as this one was from the last.
            length = end - after_bad
            start = suspect = after_bad = end
        elif named := _row_named(why, names_row, end - start):
            suspect, length = start + named, max(named - 1, 1)
        else:
            suspect, length = end, (end - start) // 2
    return refused


def _row_named(why: str, names_row: re.Pattern[str] | None, rows: int) -> int:
    """Return the row named by a reason, if it can be one of the range, else 0."""
    numbers = names_row.findall(why) if names_row else []
    return int(numbers[-1]) if numbers and 1 <= int(numbers[-1]) <= rows else 0
