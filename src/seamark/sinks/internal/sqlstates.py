"""The classes of SQLSTATE, the first two characters of the code that SQL servers give an error."""

OF_A_ROW = ("02", "20", "22", "23", "44", "45", "54", "P0")
"""It refuses a row: its value does not fit the type or column, it breaks a constraint, a trigger
raises (on MySQL 02, 20 and 45), or a key is too long for its index."""
LASTING = (*OF_A_ROW, "0A", "21", "2B", "3F", "42")
"""Only these blame the rows, the table, the statement or the user's rights. With any other the
server is away, restarting, read-only or out of some resource, refuses the login, or another
transaction holds a lock."""


def class_of(error: BaseException | None) -> str:
    """Return the class that a driver's error has; "" for one without a SQLSTATE."""
    return str(getattr(error, "sqlstate", None) or "")[:2]
