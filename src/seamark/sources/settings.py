"""What several sources share: pass-through options, endings, moments."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from seamark.api.checks import texts
from seamark.model.errors import ConfigurationError


def checked_options(
    options: object,
    source: str,
    owned: Mapping[str, str],
    owned_prefixes: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return `options` in Spark's form: text to text, True as ``true``.

    `owned` maps an option's name in lower case (Spark ignores the case) to the setting to use
    instead; `owned_prefixes` maps all names beginning with a prefix. Raises ConfigurationError for
    these and for values other than text, number or boolean; the message never holds a value: it may
    be a secret.
    """
    checked = texts(options, f"{source}: options")
    given: set[str] = set()
    for name in checked:
        if name.lower() in given:
            raise ConfigurationError(
                f"{source}: options has {name!r} twice, as their case does not matter; give it once"
            )
        given.add(name.lower())
        instead = owned.get(name.lower())
        for prefix, remedy in (owned_prefixes or {}).items():
            if name.lower().startswith(prefix):
                instead = remedy
        if instead is not None:
            raise ConfigurationError(f"{source}: options must not set {name!r}; {instead}")
    return checked


def check_ending(ending: object, source: str) -> None:
    """Raise ConfigurationError unless `ending` is ``"never"`` or ``"latest"``."""
    if ending not in ("never", "latest"):
        raise ConfigurationError(
            f"{source}: ending is {ending!r}; give 'never' to go on until the job is stopped, or "
            "'latest' to end with what is there when the job starts"
        )


class Ending:
    """A source with the setting `ending`."""

    ending: str

    @property
    def bounded(self) -> bool:
        """Whether it ends with what is there at the job's start."""
        return self.ending == "latest"


def kafka_time_ms(moment: datetime) -> int:
    """Return the first of Kafka's times, in milliseconds since 1970, that is not before `moment`;
    0 for a moment before 1970: to Kafka -1 is the end of a log."""
    since = datetime(1970, 1, 1, tzinfo=timezone.utc) - moment
    return max(-(since // timedelta(milliseconds=1)), 0)


def moment_of(text: str) -> datetime | None:
    """Return an ISO 8601 text as a moment, None for any other text."""
    try:  # Python 3.10 does not read the Z
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
