"""A table's directory on local disks, HDFS, S3, Google's or Azure's store: delta-rs's options.

delta-rs reads and commits the table itself. Growing data files, the ledger's log entries and the
attempts' records go through `seamark.files` (`sinks/internal/stored.py`). Both reach the stores as
Spark does, by its Hadoop settings.
"""

from seamark.files import HadoopSettings
from seamark.files.cloud_options import CLOUD_SCHEMES, TIMEOUT_S, CloudOptions
from seamark.files.hdfs import client_settings
from seamark.files.s3_options import S3Options
from seamark.sinks.internal.stored import is_local

_DEADLINES = {
    "connect_timeout": "5s",
    "max_retries": "3",
}
"""A call to an unreachable store must return within seconds."""


def delta_options(uri: str, hadoop: HadoopSettings) -> dict[str, str] | None:
    """Return delta-rs's options for a table: Spark's settings under delta-rs's names.

    The clouds' own places fill in the rest: environment, profile, the machine's role. S3's requests
    are path-style, delta-rs's default, so no bucket needs a host name of its own. None for a local
    table.
    """
    if is_local(uri):
        return None
    if uri.startswith("hdfs://"):
        return dict(client_settings(hadoop))
    if uri.partition(":")[0] in CLOUD_SCHEMES:
        cloud = CloudOptions.of(uri, hadoop)
        waits = {"timeout": f"{TIMEOUT_S:g}s", "retry_timeout": f"{TIMEOUT_S:g}s"}
        plain = {"allow_http": "true"} if cloud.is_plain else {}
        return {**_DEADLINES, **waits, **plain, **dict(cloud.options)}
    s3 = S3Options.of(uri.partition("://")[2].partition("/")[0], hadoop)
    options = {
        "aws_endpoint_url": s3.endpoint,
        "aws_region": s3.region,
        "aws_access_key_id": s3.access_key,
        "aws_secret_access_key": s3.secret_key,
        "aws_session_token": s3.session_token,
        "aws_skip_signature": "true" if s3.anonymous else "",
        "aws_server_side_encryption": s3.encryption,
        "aws_sse_kms_key_id": s3.encryption_key,
        "aws_allow_http": "true" if s3.endpoint.startswith("http:") else "",
        "timeout": f"{s3.timeout_s:g}s",
        "retry_timeout": f"{s3.timeout_s:g}s",
    }
    return {**_DEADLINES, **{name: value for name, value in options.items() if value}}
