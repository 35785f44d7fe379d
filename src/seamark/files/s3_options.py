"""The options of an S3 client, from S3A's settings and their per-bucket forms."""

from dataclasses import dataclass, field

from seamark.files.settings import HadoopSettings
from seamark.model.durations import seconds
from seamark.model.errors import ConfigurationError

_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_ENCRYPTION = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}


@dataclass(frozen=True)
class S3Options:
    """The access to one bucket.

    "" leaves the choice to the AWS client (environment, profile, instance). `repr` hides keys.
    """

    endpoint: str = ""
    region: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    path_style: bool = False
    anonymous: bool = False
    encryption: str = ""
    encryption_key: str = field(default="", repr=False)
    timeout_s: float = 20.0

    @classmethod
    def of(cls, bucket: str, settings: HadoopSettings) -> "S3Options":
        """Read S3A's settings for this bucket.

        Raises ConfigurationError for an encryption supported by S3A alone.
        """

        def get(name: str) -> str:
            return settings.of_bucket(bucket, name)

        endpoint = get("endpoint")
        if endpoint and "://" not in endpoint:
            secure = get("connection.ssl.enabled").lower() != "false"
            endpoint = f"{'https' if secure else 'http'}://{endpoint}"
        algorithm = get("encryption.algorithm") or get("server-side-encryption-algorithm")
        if algorithm and algorithm not in _ENCRYPTION:
            raise ConfigurationError(
                f"bucket {bucket!r}: fs.s3a.encryption.algorithm is {algorithm!r}, which Seamark "
                f"cannot write; allowed are {', '.join(map(repr, _ENCRYPTION))}"
            )
        return cls(
            endpoint,
            get("endpoint.region"),
            get("access.key"),
            get("secret.key"),
            get("session.token"),
            path_style=get("path.style.access").lower() == "true",
            anonymous=_ANONYMOUS in get("aws.credentials.provider"),
            encryption=_ENCRYPTION.get(algorithm, ""),
            encryption_key=get("encryption.key") or get("server-side-encryption.key"),
            timeout_s=min(_seconds(get("connection.timeout") or "20s") or 20.0, 20.0),  # 0: none
        )


def _seconds(text: str) -> float:
    return int(text) / 1000 if text.isdigit() else seconds(text, "fs.s3a.connection.timeout")
