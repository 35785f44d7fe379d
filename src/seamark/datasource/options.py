"""Sinks as options, which are texts: what ``.option("sink", …)`` and the options beside it say.

`sink_options` makes the options of a sink that a program has as an object; `sink_of_options` makes
the sink again. Spark gives their names in lower case.
"""

import dataclasses
import hashlib
import importlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

from seamark.api.checks import nearest
from seamark.api.declarations import a_sink
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.files.location import storage_uri
from seamark.model.errors import ConfigurationError
from seamark.model.redaction import HIDDEN, is_secret_name, redact, secrets_in
from seamark.streaming import formats
from seamark.streaming.formats import Options, Place

Sink = TwoPhaseCommitSink[Any]

_SAID = 'format("seamark")'
SINK = "sink"
LOCATION = "location"
CHECKPOINT = "checkpointLocation"
_OWN = (SINK, LOCATION, "adopt", "selected", CHECKPOINT.lower(), "queryname")
"""Options of the query, not of its sink."""
_CLASSES = {
    "kafka": "seamark.sinks.kafka:KafkaSink",
    "postgres": "seamark.sinks.postgres:PostgresSink",
    "mysql": "seamark.sinks.mysql:MySQLSink",
    "sql": "seamark.sinks.sql:SqlSink",
    "sqlite": "seamark.sinks.sqlite:SQLiteSink",
    "files": "seamark.sinks.files:FileSink",
    "delta": "seamark.sinks.delta:DeltaSink",
    "iceberg": "seamark.sinks.iceberg:IcebergSink",
    "redis": "seamark.sinks.redis:RedisSink",
    "http": "seamark.sinks.write_ahead.http:HttpSink",
}
_FORMATS = ("parquet", "json", "csv", "jdbc")
"""Spark's own formats that are taken by Spark's options."""
_PREFIXES = {
    "kafka.": "producer_options",
    "fs.": "hadoop",
    "catalog.": "catalog",
}
"""Options of a system's own names, and the parameter that takes them."""


@dataclass(frozen=True)
class QueryOptions:
    """The options of a query that are not of its sink; None if left out."""

    sink: str
    location: str | None
    checkpoint: str | None
    name: str | None
    adopts: bool
    selected: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "QueryOptions":
        """Return those among all options. Raises ConfigurationError."""
        options = Options("seamark", given, _SAID)
        return cls(
            options.need(SINK, "kafka").strip(),
            options.take(LOCATION),
            options.take(CHECKPOINT),
            options.take("queryName"),
            options.flag("adopt", default=False),
            options.flag("selected", default=False),
        )


def sink_options(sink: Sink) -> dict[str, str]:
    """Return the options with which ``df.writeStream.format("seamark")`` writes to `sink`:
    ``.options(**sm.sink_options(sm.KafkaSink(…)))``.

    Passwords stand in them as they are: Spark keeps a query's options in its driver's memory.
    Raises ConfigurationError for what is no sink, and for one whose parameters are no texts,
    numbers or lists of them, such as one with a function.
    """
    a_sink(sink, "sink_options: sink")
    kind = type(sink)
    home = f"{kind.__module__}:{kind.__qualname__}"
    classes = {_load(path): name for name, path in _CLASSES.items() if _is_of(kind, path)}
    if not dataclasses.is_dataclass(sink) or "<locals>" in kind.__qualname__:
        raise ConfigurationError(
            f"sink_options: {sink.describe()} is of the class {kind.__qualname__}, which is no "
            "dataclass of a module; make it one, so that Spark's server can make the sink again"
        )
    options = {SINK: classes.get(kind, home)}
    for field in _parameters(kind).values():
        if (value := getattr(sink, field.name)) == _default(field):
            continue
        if "timedelta" in str(field.type) and isinstance(value, int | float):
            value = timedelta(seconds=value)
        options[field.name] = _text(value, f"sink_options: {sink.describe()}: {field.name}")
    return options


def sink_of_options(given: Mapping[str, str]) -> Sink:
    """Return the sink that the options of a query describe. Raises ConfigurationError, naming the
    option, and no value: it may be a secret."""
    query = QueryOptions.of(given)
    name, at = query.sink, query.location or query.checkpoint
    given = {option.lower(): text for option, text in given.items()}
    place = Place(storage_uri(at or "/seamark/query", CHECKPOINT), query.name)
    rest = {option: text for option, text in given.items() if option not in _OWN}
    if "path" in rest:
        require_absolute("path", rest["path"])
    if name.lower() in _FORMATS:
        by = rest.pop("partition_by", rest.pop("partitionby", None))
        columns = () if by is None else formats.names_in(by, f"{_SAID}: the option 'partition_by'")
        return formats.sink_of(name, rest, columns, place, f"{_SAID}: sink {name!r}")
    kind = _class_of(name)
    values: dict[str, Any] = {}
    fields = _parameters(kind)
    if (form := rest.get("value_format")) in ("avro", "protobuf", "json-schema"):
        raise ConfigurationError(
            f'format("seamark"): value_format is "{form}"; a data source cannot register its '
            "schema. Make the value with the registry's header in SQL, or use sm.write_stream"
        )
    if name.lower() == "kafka":
        rest.pop("includeheaders", None)  # of a reader: Spark's own sink writes them without it too
    servers = rest.pop("kafka.bootstrap.servers", None)
    if servers is not None and rest.setdefault("bootstrap_servers", servers) != servers:
        raise ConfigurationError(
            'format("seamark"): the options bootstrap_servers and kafka.bootstrap.servers '
            "differ; give one of them"
        )
    for option, text in sorted(rest.items(), key=lambda pair: "." in pair[0]):  # JSON objects first
        prefix = next((p for p in _PREFIXES if option.startswith(p)), None)
        parameter = _PREFIXES[prefix] if prefix else option
        if prefix == "fs." and "hadoop" not in fields:
            parameter = "storage_options"
        if prefix == "fs." and parameter not in fields:  # the location's own
            continue
        if parameter not in fields:
            raise _unknown(name, option, sorted(field.name for field in fields.values()))
        parameter = fields[parameter].name
        if prefix:
            values.setdefault(parameter, {})[setting_of(option)] = text
        else:
            values[parameter] = _value(text, fields[option], option)
    if name.lower() == "kafka" and values.get("delivery_guarantee") != "at-least-once":
        mark = hashlib.sha256(place.location.encode()).hexdigest()[:8]
        values.setdefault("transactional_id_prefix", f"{place.name}-{mark}")
    missing = [f.name for f in fields.values() if _default(f) is _NONE and f.name not in values]
    if missing:
        raise ConfigurationError(
            f'format("seamark"): sink {name!r} needs the option {missing[0]!r}; it takes '
            f"{', '.join(field.name for field in fields.values())}"
        )
    made: Sink = kind(**values)
    return made


def public_options(options: Mapping[str, str], sink: Sink) -> dict[str, str]:
    """Return a query's options as a location keeps them: HIDDEN stands for the whole of each that
    has a secret in it, of the sink's or by its look. The query's own are no secrets, whatever
    password they happen to have in them."""
    secrets = (secrets_in(dict(options)) | secrets_in({SINK: sink})) - {""}
    secrets |= {json.dumps(secret)[1:-1] for secret in secrets}

    def is_public(name: str, text: str) -> bool:
        known = () if name.lower() in _OWN else secrets
        return not is_secret_name(name) and all(
            redact(form) == form and not any(secret in form for secret in known)
            for form in (text, unquote(text))
        )

    return {name: text if is_public(name, text) else HIDDEN for name, text in options.items()}


def setting_of(option: str) -> str:
    """Return the name of a system's own setting, for an option, which Spark gives in lower
    case."""
    option = option.removeprefix("kafka.").removeprefix("catalog.")
    return "fs.defaultFS" if option == "fs.defaultfs" else option


def require_absolute(option: str, path: str) -> None:
    """Raise ConfigurationError for a local path that is not absolute: Spark's workers at the driver
    and in tasks have working directories of their own."""
    if not re.match(r"([A-Za-z][\w+.-]+:)?/", path):
        raise ConfigurationError(
            f'format("seamark"): the option {option} is {path!r}; give an absolute path, or a URI: '
            "Spark's workers do not share the program's working directory"
        )


_NONE = object()


def _parameters(kind: Any) -> "dict[str, dataclasses.Field[Any]]":
    """Return a sink's parameters by the names that Spark gives options, in lower case."""
    fields = {field.name.lower(): field for field in dataclasses.fields(kind) if field.init}
    if taken := [fields[name].name for name in _OWN if name in fields]:
        raise ConfigurationError(
            f'format("seamark"): {kind.__name__} has the parameter {taken[0]!r}, which is an '
            "option of the query; rename it"
        )
    return fields


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    made = field.default_factory
    return made() if made is not dataclasses.MISSING else _NONE


def _is_of(kind: type, path: str) -> bool:
    module, _, name = path.partition(":")
    return kind.__name__ == name and kind.__module__.startswith(module)


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _class_of(name: str) -> Any:
    if ":" not in name:
        if name.lower() not in _CLASSES:
            known = [*_CLASSES, *_FORMATS]
            raise ConfigurationError(
                f"{_SAID}: the option sink is {name!r}; {nearest(name, known)}give one of "
                f"{', '.join(known)}, or your own sink's module and class, as in my_sinks:QueueSink"
            )
        return _load(_CLASSES[name.lower()])
    try:
        kind = _load(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f'format("seamark"): the option sink is {name!r}, which cannot be imported where Spark '
            f"runs ({error}); install its module there"
        ) from None
    if not dataclasses.is_dataclass(kind):
        raise ConfigurationError(
            f'format("seamark"): the option sink is {name!r}, which is no dataclass; make it one'
        )
    return kind


def _unknown(name: str, option: str, known: list[str]) -> ConfigurationError:
    near = nearest(option, [*known, LOCATION, "adopt", "selected"])
    return ConfigurationError(
        f'format("seamark"): sink {name!r} has no option {option!r}; {near}it takes '
        f"{', '.join(known)}"
    )


def _value(text: str, field: "dataclasses.Field[Any]", option: str) -> Any:
    """Return the value of a parameter's type. A type is told by its own words."""
    kind = str(field.type)
    parse: Callable[[str], Any] | None = None
    if "bool" in kind:
        parse = {"true": True, "false": False}.__getitem__
        text = text.lower()
    elif "Mapping" in kind or (text[:1] in ("[", "{") and "Sequence" in kind):
        parse = _object if "Mapping" in kind else json.loads
    elif "Sequence" in kind and "str |" not in kind:
        return formats.names_in(text, f'format("seamark"): the option {option!r}')
    elif "int" in kind and "str" not in kind:
        parse = int
    if parse is None:
        return text
    try:
        return parse(text)
    except (KeyError, ValueError):
        forms = {int: "a number", json.loads: "JSON", _object: "a JSON object"}
        wanted = forms.get(parse, "true or false")
        raise ConfigurationError(
            f'format("seamark"): the option {option!r} cannot be read; give {wanted}'
        ) from None


def _object(text: str) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError for other JSON."""
    if not isinstance(value := json.loads(text), dict):
        raise ValueError(text)
    return value


def _text(value: Any, setting: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, timedelta):
        return f"{value.total_seconds()}s"
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value)
    except TypeError:
        raise ConfigurationError(
            f"{setting} is a {type(value).__name__}, which no option can say; leave it out"
        ) from None
