"""The sinks behind ``format(…)``, made of the options that Spark's own sinks take."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from seamark.api.checks import nearest
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.model.errors import ConfigurationError

Sink = TwoPhaseCommitSink[Any]

_JDBC_IGNORED = (
    "driver", "batchsize", "numpartitions", "isolationlevel", "truncate", "connecttimeout",
    "logintimeout", "sockettimeout", "tcpkeepalive", "rewritebatchedinserts", "preparethreshold",
    "stringtype", "rewritebatchedstatements", "cacheprepstmts", "useserverprepstmts", "useunicode",
    "characterencoding", "allowpublickeyretrieval", "autoreconnect",
)  # fmt: skip
"""Options of Spark's writer, and properties of Java's drivers, that change no row here."""
_CODECS: Mapping[str | None, str] = {"uncompressed": "none", "lz4_raw": "lz4"}
"""What `FileSink` calls some of Spark's."""
_DATABASES = ("postgresql", "mysql", "mariadb")
_NAMES = {
    "postgresql": (r'"(?:[^"\0]|"")+"|[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*', '"'),
    "mysql": (r"`(?:[^`\0]|``)+`|[\w$\x80-\uffff]+", "`"),
}
"""One name in SQL, between quotation marks or without, and the mark."""
_PG_OPTIONS = {
    **{name: name for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout")},
    "ApplicationName": "application_name",
}
"""libpq's names of properties of a URL."""
_WITHOUT_TLS = (("ssl", "false"), ("useSSL", "false"))


class Options:
    """The options of one sink. As in Spark their names' case does not matter. `said`: how an error
    names what they were given to; by default the format of a `write_stream`."""

    def __init__(self, format_: str, given: Mapping[str, str], said: str | None = None) -> None:
        self.format = format_
        self.said = said or f'write_stream: format "{format_}"'
        self._given = {name.lower(): (name, value) for name, value in given.items()}
        self._known: list[str] = []

    def given(self, *names: str) -> str | None:
        """Return the text of the option with one of these names, which may be empty; None if none
        of them is given."""
        self._known.append(names[0])
        taken = [self._given.pop(name.lower()) for name in names if name.lower() in self._given]
        return taken[-1][1] if taken else None

    def take(self, *names: str) -> str | None:
        """Return `given`'s text; raises ConfigurationError for an empty one."""
        if (value := self.given(*names)) == "":
            raise ConfigurationError(
                f"{self.said}: option {' or '.join(map(repr, names))} is empty; give its value, or "
                "leave it out"
            )
        return value

    def need(self, name: str, example: str) -> str:
        """Return an option's value; raises ConfigurationError without one."""
        if not (value := self.given(name) or "").strip():
            raise ConfigurationError(
                f"{self.said} needs the option {name!r}, e.g. .option({name!r}, {example!r})"
            )
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option that is true or false."""
        value = self.take(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise ConfigurationError(
                f'{self.said}: option {name!r} is {value!r}; give "true" or "false"'
            )
        return value.lower() == "true"

    def below(self, prefix: str) -> dict[str, str]:
        """Return all options whose names begin with `prefix`."""
        self._known.append(f"{prefix}…")
        names = [name for name in self._given if name.startswith(prefix)]
        return dict(self._given.pop(name) for name in names)

    def require_none_left(self) -> None:
        """Raise ConfigurationError for an option that nobody took. Shows no value: it may be a
        secret."""
        for name, (written, _) in self._given.items():
            raise ConfigurationError(
                f"{self.said} has no option {written!r} here; {nearest(name, self._known)}it takes "
                f"{', '.join(self._known)}"
            )


def names_in(text: str, option: str) -> list[str]:
    """Return the names in an option's text, between commas. Raises ConfigurationError for none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigurationError(f"{option} is {text!r}; give names, with commas between them")
    return names


@dataclass(frozen=True)
class Place:
    """Where a query's job is: `location` is its Spark checkpoint location, a URI, and `query_name`
    the name given to the query, None if it has none."""

    location: str
    query_name: str | None = None

    def __post_init__(self) -> None:
        if not self.storage.partition(":")[2].strip("/"):
            raise ConfigurationError(
                f"checkpointLocation is {self.location!r}, which lies in no directory; give one "
                "such as '/var/lib/checkpoints/clicks': the directory above it is the storage in "
                "which seamark list finds the query"
            )

    @property
    def storage(self) -> str:
        """The directory of the location."""
        return self.location.rpartition("/")[0]

    @property
    def directory(self) -> str:
        """The location's own name."""
        return self.location.rpartition("/")[2]

    @property
    def name(self) -> str:
        """The job's name, which becomes part of ids: the query's, or the location's last part, with
        a hyphen for what a job's name cannot have. A directory may be hidden: files' readers pass
        over ``_checkpoints``."""
        given = self.query_name or unquote(self.directory)
        return re.sub("[^A-Za-z0-9._-]+", "-", given).lstrip("_.-")[:128] or "query"


@dataclass(frozen=True)
class Target:
    """What a format is asked to make: see `sink_of`."""

    options: Options
    partition_by: Sequence[str]
    place: Place


def kafka(target: Target) -> Sink:
    """`KafkaSink`. The transactional ids' prefix is made from name and checkpoint location."""
    from seamark.sinks.kafka import KafkaSink

    options, place = target.options, target.place
    options.given("includeHeaders")  # of a reader: Spark's own sink writes headers without it too
    servers = options.need("kafka.bootstrap.servers", "localhost:9092")
    own = {
        name: value
        for name in ("transactional_id_prefix", "transaction_timeout", "delivery_guarantee")
        if (value := options.take(name)) is not None
    }
    if own.get("delivery_guarantee") != "at-least-once":
        mark = hashlib.sha256(place.location.encode()).hexdigest()[:8]
        own.setdefault("transactional_id_prefix", f"{place.name}-{mark}")
    return KafkaSink(
        servers,
        topic=options.take("topic"),
        # Java's names have no capital letter, and Spark's options no case.
        producer_options={n.lower(): text for n, text in options.below("kafka.").items()},
        spool=options.flag("spool", default=False),
        **own,  # type: ignore[arg-type]
    )


def files(target: Target) -> Sink:
    """`FileSink`, with Spark's defaults."""
    from seamark.sinks.files import FileSink

    options = target.options
    compression = (options.take("compression") or "").lower() or None
    more: dict[str, Any] = {}
    if options.format == "csv":
        more["header"] = options.flag("header", default=False)
        more["delimiter"] = options.take("sep", "delimiter") or ","
        more["null_value"] = options.given("nullValue", "null_value") or ""
        more["escape"] = options.take("escape") or "\\"
    return FileSink(
        options.need("path", "/data/clicks"),
        options.format,
        partition_by=target.partition_by,
        compression=_CODECS.get(compression, compression),
        target_file_size=options.take("target_file_size"),
        hadoop=options.below("fs."),
        **more,
    )


def delta(target: Target) -> Sink:
    """`DeltaSink`; as Spark's it makes a missing table."""
    from seamark.sinks.delta import DeltaSink

    options = target.options
    return DeltaSink(
        options.need("path", "/data/clicks"),
        partition_by=target.partition_by,
        create_table=True,
        storage_options=options.below("fs."),
        keys=_keys(options),
        op=options.take("op"),
        target_file_size=options.take("target_file_size"),
    )


def iceberg(target: Target) -> Sink:
    """`IcebergSink`; as Spark's `toTable` it makes a missing table. Its catalog is that of the
    options ``catalog.…``."""
    from seamark.sinks.iceberg import IcebergSink

    options = target.options
    catalog = options.below("catalog.")
    keys = _keys(options)
    return IcebergSink(
        options.need("path", "shop.clicks"),
        {name.removeprefix("catalog."): value for name, value in catalog.items()},
        options.take("catalog_name") or "default",
        partition_by=target.partition_by,
        create_table=True,
        merge_schema=options.flag("mergeSchema", default=False),
        storage_options=options.below("fs."),
        mode="upsert" if keys else "append",
        keys=keys,
        op=options.take("op"),
        target_file_size=options.take("target_file_size"),
    )


def _keys(options: Options) -> list[str]:
    if (text := options.take("keys")) is None:
        return []
    return names_in(text, f"{options.said}: option 'keys'")


def jdbc(target: Target) -> Sink:
    """`PostgresSink` or `MySQLSink`, by the URL; as Spark's writer it makes a missing table. Staged
    unless the option `mode` names another way: this needs no setting of the server."""
    options = target.options
    url = options.need("url", "jdbc:postgresql://localhost:5432/shop")
    table = options.need("dbtable", "clicks")
    user, password = options.take("user"), options.given("password")
    for name in _JDBC_IGNORED:
        options.given(name)
    keys = _keys(options)
    more: dict[str, Any] = {
        "mode": options.take("mode") or ("upsert" if keys else "staged"),
        "keys": keys,
        "create_table": options.flag("create_table", default=True),
        "spool": options.flag("spool", default=False),
    }
    _, _, rest = url.partition(":")
    kind = rest.partition(":")[0]
    if not url.startswith("jdbc:") or kind not in _DATABASES:
        raise ConfigurationError(
            f"{options.said}: url is of {url.partition('//')[0]!r}; give "
            f"{' or '.join(f'jdbc:{name}://…' for name in _DATABASES)}. Any other database: "
            "sm.SqlSink(…), in format(\"seamark\") the sink 'sql'; foreach_batch, or "
            "sm.WriteAheadSink.spark_format"
        )
    if kind == "postgresql":
        from seamark.sinks.internal.table_sink import plain_name
        from seamark.sinks.postgres import PostgresSink

        names = _table_names(
            table, kind, 'orders, shop.orders, "Orders", shop."Orders"', 3, options.said
        )
        if names[:-2] not in ([], [unquote(urlsplit(rest).path.strip("/"))]):
            raise ConfigurationError(
                f"{options.said}: dbtable is {table!r}, a table of another database than the "
                "url's, which PostgreSQL cannot write to; change the url"
            )
        url = _server_url(rest, user, password, kind, _PG_OPTIONS, options.said)
        return PostgresSink(url, plain_name(names[-2:]), **more)
    from seamark.sinks.mysql import MySQLSink

    forms = "orders, shop.orders, `Orders`, shop.`Orders`"
    names = _table_names(table, "mysql", forms, 2, options.said)
    if len(names) == 2:
        rest = urlsplit(rest)._replace(path=f"/{quote(names[0], safe='')}").geturl()
    url = _server_url(rest, user, password, "mysql", {}, options.said)
    return MySQLSink(url, names[-1], **more)


def noop(target: Target) -> Sink:
    """`NoopSink`: nothing is kept."""
    from seamark.streaming.trial_sinks import NoopSink

    return NoopSink()


def console(target: Target) -> Sink:
    """`ConsoleSink`."""
    from seamark.sinks.write_ahead.console import ConsoleSink

    rows = target.options.take("numRows") or "20"
    if not rows.isdecimal():
        raise ConfigurationError(
            f"{target.options.said}: option numRows is {rows!r}; give a whole number"
        )
    return ConsoleSink(int(rows), target.options.flag("truncate", default=True))


def _table_names(text: str, kind: str, forms: str, most: int, said: str) -> list[str]:
    """Return what the server makes of a table's name in SQL: the table, behind its schema and
    database if they are given."""
    part, mark = _NAMES[kind]
    if not re.fullmatch(rf"\s*(?:{part})(?:\s*\.\s*(?:{part})){{0,{most - 1}}}\s*", text):
        raise ConfigurationError(
            f"{said}: dbtable is {text!r}, which is no table's name in SQL; give one such as "
            f"{forms}"
        )
    names = re.findall(part, text)
    fold = str if kind == "mysql" else lambda name: re.sub("[A-Z]", lambda a: a[0].lower(), name)
    return [n[1:-1].replace(mark * 2, mark) if n[0] == mark else fold(n) for n in names]


def _server_url(
    url: str,
    user: str | None,
    password: str | None,
    scheme: str,
    allowed: Mapping[str, str],
    said: str,
) -> str:
    """Return the sink's URL for a JDBC URL without ``jdbc:``. Never shows it in an error."""
    parts = urlsplit(url)
    given = {
        name: value
        for name, value in parse_qsl(parts.query)
        if name.lower() not in _JDBC_IGNORED and (name, value) not in _WITHOUT_TLS
    }
    user = given.pop("user", user)
    password = given.pop("password", password)
    if scheme == "postgresql" and given.get("ssl") == "true":
        given = {"sslmode": "verify-full", **given}
        del given["ssl"]
    if unknown := [name for name in given if name not in allowed]:
        raise ConfigurationError(
            f"{said}: the url has {unknown[0]!r}, which only Java's driver knows; leave it out, or "
            "give the sink itself, "
            f"sm.{'PostgresSink' if scheme == 'postgresql' else 'MySQLSink'}(…)"
        )
    login = ""
    if user is not None:
        secret = f":{quote(password, safe='')}" if password is not None else ""
        login = f"{quote(user, safe='')}{secret}@"
    renamed = {allowed[name]: value for name, value in given.items()}
    query = urlencode(renamed, quote_via=quote)  # libpq leaves a + as it is
    return f"{scheme}://{login}{parts.netloc or 'localhost'}{parts.path}{'?' * bool(query)}{query}"


_FORMATS: dict[str, Callable[[Target], Sink]] = {
    "kafka": kafka,
    **dict.fromkeys(("parquet", "json", "csv"), files),
    "delta": delta,
    "iceberg": iceberg,
    "jdbc": jdbc,
    "console": console,
    "noop": noop,
}


def sink_of(
    format_: str,
    given: Mapping[str, str],
    partition_by: Sequence[str],
    place: Place,
    said: str | None = None,
) -> Sink:
    """Return the sink for a format and its options; `said`: as of `Options`. Raises
    ConfigurationError for a format or an option that is not known, and for what the format cannot
    do."""
    name = format_.lower()
    if name not in _FORMATS:
        raise ConfigurationError(
            f"write_stream: format is {format_!r}; there are {', '.join(_FORMATS)}, memory; any "
            "other format that Spark can write: sm.write_stream(df, "
            f"sm.WriteAheadSink.spark_format({format_!r}, {{…}})), or foreach_batch"
        )
    options = Options(name, given, said)
    if partition_by and _FORMATS[name] not in (files, delta, iceberg):
        raise ConfigurationError(
            f"{options.said}: partitionBy is {list(partition_by)!r}, and it has no partitions by "
            "column; leave it out"
        )
    sink = _FORMATS[name](Target(options, tuple(partition_by), place))
    options.require_none_left()
    return sink
