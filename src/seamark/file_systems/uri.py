"""From a URI to a directory: the known file systems, and the URIs allowed to a user."""

from seamark.file_systems.directory import Directory
from seamark.file_systems.local import LocalDirectory, local_path
from seamark.file_systems.location import Location, decoded, local_of
from seamark.file_systems.settings import HadoopSettings
from seamark.model.errors import ConfigurationError

_S3_SCHEMES = ("s3a", "s3")


def shared_uri(value: object, setting: str) -> str:
    """Return `value` in the form for `open_directory`; touches nothing.

    The result is an absolute local path, or a ``hdfs:``, ``s3a:`` or ``s3:`` URI without a slash at
    its end. `setting` is the name for the error, e.g. ``FileSink: path``. Raises
    ConfigurationError.
    """
    wanted = "a local path or a URI such as 'file:///data/clicks'"
    location = Location.given(value, setting, wanted)
    if location.is_local:
        return local_path(value, setting)
    scheme = location.scheme
    if scheme not in ("hdfs", *_S3_SCHEMES):
        raise ConfigurationError(
            f"{setting} has the scheme {scheme!r}, and Seamark has no client for it; give a local "
            "path, or a URI with 'file:', 'hdfs:', 's3a:' or 's3:'"
        )
    if not location.path:
        raise ConfigurationError(
            f"{setting} is {value!r}: it names no directory; write "
            f"{scheme}://{location.authority}/<path>"
        )
    return location.uri


def open_directory(uri: str, settings: HadoopSettings | None = None) -> Directory:
    """Return the files below `uri`, a result of `shared_uri` or `encoded`.

    Touches nothing yet. Raises MissingDependencyError when the store's client is not installed, and
    ConfigurationError for a setting unknown to the client, and for a store without one: checkpoints
    may lie there, but no rows. Clients are kept for the process, one for each store and settings.
    """
    settings = settings or HadoopSettings()
    if uri.startswith("hdfs:"):
        from seamark.file_systems.hdfs import HdfsDirectory

        return HdfsDirectory(uri, settings)
    if uri.partition(":")[0] in _S3_SCHEMES:
        from seamark.file_systems.s3 import S3Directory

        return S3Directory(uri, settings)
    path = local_of(decoded(uri)) or uri
    if not path.startswith("/"):
        raise ConfigurationError(
            f"{uri}: rows cannot be kept here, because Seamark's Python workers have no client for "
            f"{uri.partition(':')[0]}:. Spools, write-ahead sinks and unaligned checkpoints keep "
            "rows beside the checkpoint; put it on a shared local path, hdfs: or s3a:, or do "
            "without them"
        )
    return LocalDirectory(path)
