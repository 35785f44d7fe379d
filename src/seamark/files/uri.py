"""From a URI to a directory: the known file systems, and the URIs allowed to a user."""

import logging

from seamark.files.cloud_options import CLOUD_SCHEMES
from seamark.files.directory import RowDirectory
from seamark.files.local import LocalDirectory, local_path
from seamark.files.location import Location, decoded, local_of
from seamark.files.settings import HadoopSettings
from seamark.model.errors import ConfigurationError, MissingDependencyError

log = logging.getLogger(__name__)
_S3_SCHEMES = ("s3a", "s3")


def shared_uri(value: object, setting: str) -> str:
    """Return `value` in the form for `open_directory`; touches nothing.

    The result is an absolute local path, or a ``hdfs:``, ``s3a:``, ``s3:``, ``gs:``, ``abfss:`` or
    ``abfs:`` URI without a slash at its end. `setting` is the name for the error, e.g.
    ``FileSink: path``. Raises ConfigurationError.
    """
    wanted = "a local path or a URI such as 'file:///data/clicks'"
    location = Location.given(value, setting, wanted)
    if location.is_local:
        return local_path(value, setting)
    scheme = location.scheme
    if scheme not in ("hdfs", *_S3_SCHEMES, *CLOUD_SCHEMES):
        raise ConfigurationError(
            f"{setting} has the scheme {scheme!r}, and Seamark has no client for it; give a local "
            "path, or a URI with 'file:', 'hdfs:', 's3a:', 'gs:' or 'abfss:'"
        )
    if not location.path:
        raise ConfigurationError(
            f"{setting} is {value!r}: it names no directory; write "
            f"{scheme}://{location.authority}/<path>"
        )
    return location.uri


def open_directory(uri: str, settings: HadoopSettings | None = None) -> RowDirectory:
    """Return the files below `uri`, a result of `shared_uri` or `encoded`.

    Touches nothing yet. Raises MissingDependencyError when the store's client is not installed, and
    ConfigurationError for a setting unknown to the client, and for a store without one: checkpoints
    may lie there, but no rows. Clients are kept for the process, one for each store and settings.
    """
    settings = settings or HadoopSettings()
    if uri.startswith("hdfs:"):
        from seamark.files.hdfs import HdfsDirectory

        return HdfsDirectory(uri, settings)
    if uri.partition(":")[0] in _S3_SCHEMES:
        from seamark.files.s3 import S3Directory

        return S3Directory(uri, settings)
    if uri.partition(":")[0] in CLOUD_SCHEMES:
        from seamark.files.object_store import ObjectDirectory

        return ObjectDirectory(uri, settings)
    path = local_of(decoded(uri)) or uri
    if not path.startswith("/"):
        raise _no_client(uri)
    return LocalDirectory(path)


def open_for_rows(uri: str, settings: HadoopSettings | None = None) -> RowDirectory:
    """As `open_directory`, for rows beside a checkpoint and the log of a data source: on the stores
    on which these were run. Raises ConfigurationError."""
    if uri.partition(":")[0] in CLOUD_SCHEMES:
        raise _no_client(uri)
    return open_directory(uri, settings)


def _no_client(uri: str) -> ConfigurationError:
    return ConfigurationError(
        f"{uri}: rows cannot be kept here, because Seamark's Python workers have no client for "
        f"{uri.partition(':')[0]}:. Spools, write-ahead sinks and unaligned checkpoints keep "
        "rows beside the checkpoint; put it on a shared local path, hdfs: or s3a:, or do "
        "without them"
    )


def open_without_spark(uri: str) -> RowDirectory | None:
    """Return the files below a storage on ``hdfs:`` or ``s3a:``, by the settings of this process's
    environment. None if only a JVM knows the way: another store, a client that is not installed,
    settings that it does not follow."""
    if not uri.startswith(("hdfs:", "s3a:")):
        return None
    settings = HadoopSettings.of_environment()
    try:
        return None if settings is None else open_directory(uri, settings)
    except (MissingDependencyError, ConfigurationError) as error:
        log.info("%s is read through Spark: %s", uri, error)
        return None
