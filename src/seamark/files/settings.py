"""Access to HDFS and object stores: Spark's Hadoop settings, as a value that shows no secret."""

import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from seamark.model.errors import ConfigurationError

_SPARK = "spark.hadoop."
_PROPERTY = re.compile(r"\s*([^#!\s=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*")
_JVM_ONLY = re.compile(r".*(credential\.provider\.path|fs\.s3a\..*proxy\.host)")
"""Settings that only Hadoop's own clients can follow."""
_PROVIDERS = re.compile(
    r"(.*\.)?(Anonymous|Simple|Temporary|EnvironmentVariable|IAMInstance|InstanceProfile|Container"
    r"|Default|Profile|WebIdentityToken\w*)(AWS)?CredentialsProvider(Chain)?"
)
"""Sources of S3A's keys that the settings here have too, or boto3."""


class HadoopSettings(Mapping[str, str]):
    """Settings by Hadoop's own names, e.g. ``fs.s3a.endpoint``.

    Picklable, hashable, and never changed; its `repr` shows no value: some are access keys.

    They travel from the driver to the Python workers within Spark's tasks, as Spark's own Hadoop
    configuration does; Seamark writes them nowhere.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    @classmethod
    def given(cls, values: object, setting: str) -> "HadoopSettings":
        """Return the user's value of `setting`; raises ConfigurationError, without the values."""
        if isinstance(values, HadoopSettings):
            return values
        if not isinstance(values, Mapping) or not all(
            isinstance(text, str) for pair in values.items() for text in pair
        ):
            raise ConfigurationError(
                f"{setting} is a {type(values).__name__}; give a dict of texts by Hadoop's names, "
                "e.g. {'fs.s3a.endpoint.region': 'eu-central-1'}"
            )
        return cls({key.removeprefix(_SPARK): text for key, text in values.items()})

    @classmethod
    def of_environment(cls) -> "HadoopSettings | None":
        """Return the settings that a Spark session started by this process would have: of
        ``core-site.xml`` and ``hdfs-site.xml`` in HADOOP_CONF_DIR, ``spark-defaults.conf`` and
        PYSPARK_SUBMIT_ARGS. None if they have what only a JVM can follow: a credential store, a
        proxy, a reference to another setting, or a provider of keys that boto3 does not know.

        Raises ConfigurationError for a file that cannot be read.
        """
        settings: dict[str, str] = {}
        try:
            if directory := os.environ.get("HADOOP_CONF_DIR"):
                for path in (Path(directory, f"{part}-site.xml") for part in ("core", "hdfs")):
                    if path.exists():
                        for entry in ElementTree.parse(path).iter("property"):
                            settings[entry.findtext("name", "")] = entry.findtext("value", "")
            for name, value in _spark_settings():
                if name.startswith(_SPARK):
                    settings[name.removeprefix(_SPARK)] = value
        except (OSError, ValueError, ElementTree.ParseError) as error:
            raise ConfigurationError(
                f"the settings of Spark and Hadoop cannot be read: {error}; correct the file"
            ) from error
        for name, value in settings.items():
            providers = value.split(",") if name.endswith("aws.credentials.provider") else []
            if (
                _JVM_ONLY.fullmatch(name)
                or ("${" in value and name.startswith("fs."))
                or not all(_PROVIDERS.fullmatch(one.strip()) for one in providers)
            ):
                return None
        return cls(settings)

    def under(self, other: Mapping[str, str]) -> "HadoopSettings":
        """Return these settings with those of `other` over them."""
        return HadoopSettings({**self._values, **other}) if other else self

    def of_bucket(self, bucket: str, name: str) -> str:
        """Return a bucket's value of S3A's setting ``fs.s3a.<name>``; "" if there is none."""
        for key in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
            if self._values.get(key):
                return self._values[key].strip()
        return ""

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"<{len(self._values)} Hadoop settings>"


def _spark_settings() -> Iterator[tuple[str, str]]:
    """Yield the settings of Spark's properties file, and of PYSPARK_SUBMIT_ARGS over them."""
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    given = [*itertools.pairwise(arguments)]
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or str(Path((spec and spec.origin) or "/").parent)
    conf = os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"
    named = [value for option, value in given if option == "--properties-file"]
    file = Path(named[-1] if named else f"{conf}/spark-defaults.conf")
    if named or file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            if match := _PROPERTY.fullmatch(line):
                yield match[1], match[2]
    for option, value in given:
        if option in ("--conf", "-c"):
            name, _, text = value.partition("=")
            yield name, text
