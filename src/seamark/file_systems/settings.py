"""Access to HDFS and S3: Spark's Hadoop settings, as a value that shows no secret."""

from collections.abc import Iterator, Mapping

from seamark.model.errors import ConfigurationError


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
        return cls({key.removeprefix("spark.hadoop."): text for key, text in values.items()})

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
