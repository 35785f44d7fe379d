"""`seamark savepoint inspect`, `diff` and `-d`: a savepoint's directory, without its job."""

from seamark.model.errors import UserError
from seamark.operations.storage import storage_of
from seamark.savepoints import claims


def dispose(path: str, storage: str | None, *, incomplete: bool = False) -> list[str]:
    """Delete a savepoint, as `claims.dispose`. `storage` is the value of --storage; None takes the
    storage of seamark.toml, if there is one."""
    try:
        looked_at = storage_of("savepoint", storage)
    except UserError:
        if storage is not None:
            raise
        looked_at = None
    return claims.dispose(path, storage=looked_at, incomplete=incomplete)
