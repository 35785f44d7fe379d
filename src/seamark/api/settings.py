"""Settings from outside the program: `seamark.toml`, and ``-D key=value`` of the command line.

The command line wins over the file, and the file over the program. `resolve` lays them over a job's
`CheckpointConfig` and `RestConfig` when the job is made. The keys are ``checkpoint.<setting>`` and
``rest.<setting>``; below ``checkpoint.restart_strategy`` they are a ``type`` and the type's
parameters in `RestartStrategy`. The command line reaches the program by the environment.
"""

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from seamark.api.config import CheckpointConfig
from seamark.api.rest_config import RestConfig
from seamark.api.restart_strategy import RestartStrategy
from seamark.files.location import storage_uri
from seamark.model.errors import ConfigurationError
from seamark.model.home import HOME_VARIABLE, seamark_home

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "seamark.toml"
FILE_VARIABLE = "SEAMARK_CONFIG"
"""Environment: the path of the settings file; without it, `FILE_NAME` in the current directory."""
STORAGE_VARIABLE = "SEAMARK_STORAGE"
"""Environment: the storage of jobs and verbs that name none; without it, ``checkpoints`` in this
user's ``~/.seamark``."""
COMMAND_LINE_VARIABLE = "SEAMARK_SETTINGS"
"""Environment: a JSON array of the command line's ``key=value`` texts; may be percent-encoded."""
RESTORE_VARIABLE = "SEAMARK_RESTORE"
"""Environment: the path given by ``seamark run -s``: a savepoint, or a retained checkpoint."""
DROP_STATE_VARIABLE = "SEAMARK_ALLOW_NON_RESTORED_STATE"
"""Environment: set by ``seamark run -n``."""
PARALLELISM_VARIABLE = "SEAMARK_PARALLELISM"
"""Environment: the number of ``seamark run -p``."""
CLAIM_MODE_VARIABLE = "SEAMARK_CLAIM_MODE"
"""Environment: the mode given by ``seamark run --claim-mode``."""
JOB_VARIABLE = "SEAMARK_JOB"
"""Environment: the name given by ``--job``: of a program's jobs the one that is meant."""
EXPECTING_VARIABLE = "SEAMARK_EXPECTING_JOB"
"""Environment: options of the command line for `Job.run` alone, which deletes it."""
PLAN_VARIABLE = "SEAMARK_RESTORE_PLAN"
"""Environment: set by ``seamark run --plan``: the file for the restore plan, as JSON."""
TRANSACTIONS_VARIABLE = "SEAMARK_TRANSACTIONS"
"""Environment: set by ``seamark txn``: the file with the request, as JSON."""
TRANSACTIONS_ANSWER = ".answer"
"""Added to the path of that file for the answer's, JSON too."""

DEFAULT, PROGRAM, COMMAND_LINE = "default", "program", "command line"

_PREFIX = "checkpoint."
_REST = "rest."
_STRATEGY = "restart_strategy."
_STRATEGY_TYPE = _STRATEGY + "type"
_STRATEGIES = {
    name: getattr(RestartStrategy, name)
    for name in ("none", "fixed_delay", "exponential_delay", "failure_rate")
}
_PLAIN = [f.name for f in fields(CheckpointConfig) if f.init and f.name != "restart_strategy"]
_REST_NAMES = [f.name for f in fields(RestConfig) if f.init]
KEYS = sorted(
    {
        _PREFIX + _STRATEGY_TYPE,
        *(_PREFIX + name for name in _PLAIN),
        *(
            _PREFIX + _STRATEGY + name
            for make in _STRATEGIES.values()
            for name in signature(make).parameters
        ),
        *(_REST + name for name in _REST_NAMES),
    }
)
"""Every key for a file or the command line."""


@dataclass(frozen=True)
class Setting:
    """A setting's value and its origin. The origin is ``"default"``, ``"program"``, the path of the
    settings file, or ``"command line"``; of the usual storage SEAMARK_STORAGE or this user's
    ``~/.seamark``."""

    value: Any
    origin: str


class Settings(dict[str, Setting]):
    """All settings of a job by key, e.g. ``checkpoint.interval``; `str` shows them as a table."""

    def __str__(self) -> str:
        rows = [(key, _shown(s.value), s.origin) for key, s in sorted(self.items())]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{k:<{widths[0]}}  {v:<{widths[1]}}  {origin}" for k, v, origin in rows)


def resolve(
    job: str, program: object, rest: object = None
) -> tuple[CheckpointConfig, Settings, RestConfig]:
    """Return the settings of the job named `job` ("" for none), each with its origin. `program` and
    `rest` are the program's CheckpointConfig and RestConfig; None is the default. Reads the
    environment and the settings file. Raises ConfigurationError with the value's origin."""
    if not isinstance(program, CheckpointConfig):
        raise ConfigurationError(
            f"Job {job!r}: checkpoint is {program!r}; give sm.CheckpointConfig(storage=…)"
        )
    rest = RestConfig() if rest is None else rest
    if not isinstance(rest, RestConfig):
        raise ConfigurationError(f"Job {job!r}: rest is {rest!r}; give sm.RestConfig(…)")
    settings = {
        key: Setting(value, PROGRAM if given else DEFAULT)
        for key, value, given in _values(program, rest)
    }
    for layer in (_from_file(), _from_command_line()):
        chosen = layer.get(_STRATEGY_TYPE)
        if chosen is not None and chosen.value != settings[_STRATEGY_TYPE].value:
            settings = {k: s for k, s in settings.items() if not k.startswith(_STRATEGY)}
        settings |= layer
    if settings["storage"].origin == DEFAULT:
        settings["storage"] = _usual_storage()
    try:
        config = CheckpointConfig(
            **_chosen(settings, _PLAIN, ""), restart_strategy=_strategy(settings)
        )
        rest = RestConfig(**_chosen(settings, _REST_NAMES, _REST))
    except ConfigurationError as error:
        whose = f"Job {job!r}: " if job else ""
        raise ConfigurationError(f"{whose}{error}{_blame(str(error), settings)}") from None
    origins = {key: s.origin for key, s in settings.items()}
    shown = Settings(
        (_full(key), Setting(value, origins.get(key, DEFAULT)))
        for key, value, _ in _values(config, rest)
    )
    return config, shown, rest


def _usual_storage() -> Setting:
    """Return the storage of jobs that name none: no verb on a laptop needs to be told it."""
    if named := os.environ.get(STORAGE_VARIABLE):
        return Setting(storage_uri(named, STORAGE_VARIABLE), STORAGE_VARIABLE)
    home = seamark_home()
    return Setting(storage_uri(home / "checkpoints", HOME_VARIABLE), str(home))


def check_command_line(texts: Iterable[str]) -> None:
    """Raise ConfigurationError if one of the ``key=value`` texts has no known key."""
    _parse_texts(texts)


# --- the three layers, by key, without the prefix "checkpoint."


def _full(key: str) -> str:
    return key if key.startswith(_REST) else _PREFIX + key


def _values(config: CheckpointConfig, rest: RestConfig) -> Iterator[tuple[str, Any, bool]]:
    """Yield each setting's key, its value, and whether the program gave it."""
    for name in _PLAIN:
        yield name, getattr(config, name), name in config.given
    strategy, given = config.restart_strategy, "restart_strategy" in config.given
    yield _STRATEGY_TYPE, strategy.type, given
    for parameter in (f.name for f in fields(strategy) if f.init):
        yield _STRATEGY + parameter, getattr(strategy, parameter), given
    for name in _REST_NAMES:
        yield _REST + name, getattr(rest, name), name in rest.given


def _from_file() -> dict[str, Setting]:
    named = os.environ.get(FILE_VARIABLE)
    path = Path(named or FILE_NAME).absolute()
    if not named and not path.exists():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        from_ = f" (named by {FILE_VARIABLE})" if named else ""
        raise ConfigurationError(f"{path}{from_} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None
    return {_known(key, str(path)): Setting(value, str(path)) for key, value in _leaves(table)}


def _from_command_line() -> dict[str, Setting]:
    text = os.environ.get(COMMAND_LINE_VARIABLE, "[]")
    try:
        texts = json.loads(text if text.startswith("[") else unquote(text))
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            f"{COMMAND_LINE_VARIABLE} is {text!r}; give a JSON array of key=value texts, or use "
            "seamark run -D key=value"
        ) from None
    return _parse_texts(texts)


def _parse_texts(texts: Iterable[str]) -> dict[str, Setting]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"-D {text!r}: give key=value, e.g. -D checkpoint.interval=5s")
        settings[_known(key.strip(), COMMAND_LINE)] = Setting(_scalar(value.strip()), COMMAND_LINE)
    return settings


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _scalar(text: str) -> Any:
    """Parse `text` as a bool or number in TOML's notation; return any other `text` unchanged."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if re.fullmatch(r"[+-]?\d+\.\d+", text):
        return float(text)
    return text


def _known(key: str, origin: str) -> str:
    """Return `key` without its prefix; for an unknown setting raise, with the nearest name."""
    if key in KEYS:
        return key.removeprefix(_PREFIX)
    written = key.replace("-", "_").lower()  # brings Flink's names near
    short = {k.rpartition(".")[2]: k for k in KEYS}
    near = difflib.get_close_matches(written, KEYS, n=1) or [
        short[name] for name in difflib.get_close_matches(written, short, n=1)
    ]
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(KEYS)}"
    raise ConfigurationError(f"there is no setting {key!r} ({_given(origin)}); {hint}")


# --- to and from the configuration


def _chosen(settings: Mapping[str, Setting], names: Iterable[str], prefix: str) -> dict[str, Any]:
    """Return the given values, by their names without the prefix."""
    named = {name: settings[prefix + name] for name in names}
    return {name: s.value for name, s in named.items() if s.origin != DEFAULT}


def _strategy(settings: Mapping[str, Setting]) -> RestartStrategy:
    values = {
        key[len(_STRATEGY) :]: setting.value
        for key, setting in settings.items()
        if key.startswith(_STRATEGY)
    }
    chosen = values.pop("type")
    make = _STRATEGIES.get(chosen) if isinstance(chosen, str) else None
    if make is None:
        raise ConfigurationError(
            f"restart_strategy: type is {chosen!r}; allowed are "
            + ", ".join(map(repr, _STRATEGIES))
        )
    parameters = signature(make).parameters
    for name in values:
        if name not in parameters:
            takes = f"takes {', '.join(parameters)}" if parameters else "takes no parameters"
            raise ConfigurationError(
                f"restart_strategy: {name} is given, but type {chosen!r} {takes}; give the type "
                f"too, as {_PREFIX}{_STRATEGY_TYPE}"
            )
    strategy = make(**values)
    assert isinstance(strategy, RestartStrategy)
    return strategy


def _blame(message: str, settings: Mapping[str, Setting]) -> str:
    """Return the settings in `message` with an origin outside the program."""
    outside = [
        f"{_full(key)} was {_given(setting.origin)}"
        for key, setting in settings.items()
        if setting.origin not in (DEFAULT, PROGRAM)
        and re.search(rf"\b{key.rpartition('.')[2]}\b", message)
    ]
    return f" ({'; '.join(outside)})" if outside else ""


def _given(origin: str) -> str:
    return "given on the command line" if origin == COMMAND_LINE else f"given in {origin}"


def _shown(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)
