"""`seamark dev` and `seamark topic`: real servers on this machine, and topics for trials."""

import json
import signal
import sys
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from seamark.cli.exits import BROKEN
from seamark.cli.options import Json, Storage, echo_json, flag, text
from seamark.cli.terminal import say, suggest, waiting
from seamark.cli.visible import echo
from seamark.model.errors import UserError

dev = typer.Typer(help="Real servers on this machine, for development.", no_args_is_help=True)
topic = typer.Typer(help="Topics for trials: make, fill and follow them.", no_args_is_help=True)


class IsolationLevel(str, Enum):
    """Kafka's, of a consumer."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_PORT = text("N", "Its port on 127.0.0.1; default: a free one.")
_SERVERS = text("HOST:PORT,…", "Kafka's brokers.", default="localhost:9092", shown=True)
_COUNT = text("N", "End after so many rows.", "-n", "--number", min=1)
_Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]


@dev.command("kafka")
def dev_kafka(
    brokers: int = typer.Option(1, help="1, or a cluster of 3."),
    port: int | None = _PORT,
    topics: list[str] | None = text(
        "NAME[:PARTITIONS]", "Make this topic; may be repeated.", "--topic"
    ),
    directory: Path | None = typer.Option(
        None,
        file_okay=False,
        help="Keep the data (and the ports) here for the next time; default: keep nothing.",
    ),
) -> None:
    """Start Kafka on 127.0.0.1, print its bootstrap address, and stop it at Ctrl-C.

    Three brokers take three ports in a row. The first start fetches the brokers' jars from Maven
    (45 MB). Only the address goes to stdout.
    """
    import logging

    from seamark.dev.java_server import serve_until_interrupted
    from seamark.dev.kafka import LocalKafka
    from seamark.dev.topics import make_topics, parse_topic

    logging.basicConfig(level=logging.INFO, format="%(message)s")  # downloads and their places
    wanted = dict(map(parse_topic, topics or []))

    def announce(kafka: LocalKafka) -> None:
        say(f"Kafka: {kafka.brokers} broker(s), data in {kafka.directory}")
        _say_topics(make_topics(kafka.bootstrap_servers, wanted))
        say("bootstrap servers (Ctrl-C stops them):")
        echo(kafka.bootstrap_servers)

    serve_until_interrupted(LocalKafka(brokers, directory, port=port), LocalKafka.check, announce)


@dev.command("postgres")
def dev_postgres(port: int | None = _PORT) -> None:
    """Start PostgreSQL on 127.0.0.1, print its URL, and stop it at Ctrl-C. It keeps nothing.

    Only the URL goes to stdout. Prepared transactions are allowed.
    """
    from seamark.dev.java_server import serve_until_interrupted
    from seamark.dev.postgres import PostgresServer

    def announce(server: PostgresServer) -> None:
        say("PostgreSQL (Ctrl-C stops it):")
        echo(server.url())

    serve_until_interrupted(PostgresServer(port=port), PostgresServer.check, announce)


def init(
    directory: Path = typer.Argument(metavar="NAME", show_default=False, help="A new directory."),
) -> None:
    """Make a project: a job, its settings, and a test that kills it with -9 and counts.

    `make run` and `make test` work in it at once.
    """
    from shlex import quote

    from seamark.operations.new_project import new_project

    for file in new_project(directory):
        say(str(file))
    at = f"cd {quote(str(directory))}"
    suggest(f"{at} && make run", f"{at} && make test")


def demo(
    kafka: bool = flag("From Kafka to Kafka, on a broker of its own.", "--kafka"),
    directory: Path | None = text("DIR", "A new or empty directory; default: a temporary one."),
    epochs: int = typer.Option(12, min=4),
    rows_per_epoch: int = typer.Option(10_000, min=20, help="Of each source."),
    kills: int = typer.Option(2, min=0, help="How often to kill it."),
) -> None:
    """Kill a job with -9 on its way, start it again, and count its output.

    Clicks from files and a generator are counted per user and ten seconds, into SQLite and Parquet.
    Exit code 1: a row was lost or doubled.
    """
    from seamark.model.packages import load_driver
    from seamark.spark.jars import find_java, require_pyspark

    find_java()
    require_pyspark()
    for module in ("psutil", *(["confluent_kafka"] if kafka else [])):
        load_driver(module, "the demo needs it", "demo")
    from seamark.demo.kills import demo as show

    # As Ctrl-C it ends what was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not show(directory, epochs, rows_per_epoch, kills, with_kafka=kafka):
        raise typer.Exit(BROKEN)


def doctor(
    storage: Storage = None,
    bootstrap_servers: str | None = text("HOST:PORT,…", "Ask these Kafka brokers, too."),
    as_json: Json = False,
) -> None:
    """Try out what a job needs here: Java, PySpark, jars, drivers, ports, storage, clock, brokers.

    Exit code 1: something is missing. The first time it fetches Spark's Kafka connector.
    """
    from dataclasses import asdict

    from seamark.operations.doctor import examine

    with waiting("Looking"):
        checks = list(examine(storage, bootstrap_servers))
    if as_json:
        echo_json([asdict(check) for check in checks])
    else:
        for check in checks:
            remedy = f"; {check.remedy}" if check.remedy else ""
            echo(f"{'MISSING' if check.missing else 'ok':<8}{check.name}: {check.found}{remedy}")
    if any(check.missing for check in checks):
        raise typer.Exit(BROKEN)


def class_archive() -> None:
    """Let Spark start with a third less CPU on this machine: write down the classes that it loads.

    Runs a small job, half a minute or so; the files take 170 MB. `seamark run` and a driver whose
    Spark is started by Seamark use them at once. For others, set what this prints.
    """
    from seamark.spark.class_archive import directory, make, variables

    with waiting("Running a small job"):
        make()
    say(f"class archives: {directory()}")
    for name, value in variables().items():
        echo(f"export {name}='{value}'")


@topic.command()
def create(
    topics: Annotated[list[str], typer.Argument(metavar="NAME[:PARTITIONS] …", show_default=False)],
    bootstrap_servers: str = _SERVERS,
) -> None:
    """Make topics, of one partition unless said otherwise, where they are missing."""
    from seamark.dev.topics import make_topics, parse_topic

    _say_topics(make_topics(bootstrap_servers, dict(map(parse_topic, topics))))


@topic.command()
def produce(
    name: _Topic,
    bootstrap_servers: str = _SERVERS,
    rate: float | None = text(
        "N", "Instead of stdin made-up clicks, so many a second: user as key, JSON as value."
    ),
    number: int | None = _COUNT,
    as_json: bool = flag('Each line is {"key": …, "value": …}; null for none.', "--json"),
) -> None:
    """Produce a row of each line of stdin: key, tab, value; without a tab the value alone."""
    from seamark.dev.topics import made_up_clicks
    from seamark.dev.topics import produce as produce_rows

    if rate is not None and not 0 < rate <= 1e6:
        raise typer.BadParameter(f"--rate is {rate:g}; give a number above 0")
    rows = made_up_clicks(rate) if rate is not None else _rows_of_stdin(as_json)
    say(f"{produce_rows(bootstrap_servers, name, islice(rows, number))} rows are in {name}")


@topic.command()
def tail(
    name: _Topic,
    bootstrap_servers: str = _SERVERS,
    from_beginning: bool = flag("All rows; default: those from now on.", "--from-beginning"),
    number: int | None = _COUNT,
    isolation_level: IsolationLevel = typer.Option(
        IsolationLevel.READ_COMMITTED, help="read_uncommitted also shows what may be aborted."
    ),
    as_json: bool = flag("With partition, offset and timestamp, a line a row.", "--json"),
) -> None:
    """Show a topic's rows as they become readable, key, tab, value, until Ctrl-C or -n rows."""
    from seamark.dev.topics import follow

    messages = follow(bootstrap_servers, name, isolation_level.value, from_beginning=from_beginning)
    next(messages)
    say(f"rows of {name}, {isolation_level.value} (Ctrl-C ends it):")
    # Not filter(None, …): a message without a value is falsy.
    for message in islice((m for m in messages if m is not None), number):
        key, value = _shown(message.key()), _shown(message.value())
        if as_json:
            place = {"partition": message.partition(), "offset": message.offset()}
            row = {**place, "timestamp": message.timestamp()[1], "key": key, "value": value}
            echo(json.dumps(row, ensure_ascii=False))
        else:
            shown = "null" if value is None else value
            echo(shown if key is None else f"{key}\t{shown}")
        sys.stdout.flush()


def _say_topics(topics: dict[str, int]) -> None:
    for name, partitions in topics.items():
        say(f"topic {name}, partitions: {partitions}")


def _shown(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _rows_of_stdin(as_json: bool) -> Iterator[dict[str, Any]]:
    if sys.stdin.isatty():
        say("a row a line: KEY<Tab>VALUE, or VALUE; Ctrl-D ends it")
    for place, line in enumerate(sys.stdin.buffer, 1):
        line = line.rstrip(b"\r\n")
        if as_json:
            yield _row_of_json(line, place)
        else:
            key, tab, value = line.partition(b"\t")
            yield {"key": key, "value": value} if tab else {"value": key}


def _row_of_json(line: bytes, place: int) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        return {"key": _encoded(row.get("key")), "value": _encoded(row["value"])}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(
            f"stdin, line {place}: {line[:80].decode(errors='replace')!r} is no row; give "
            '{"key": …, "value": …}'
        ) from None


def _encoded(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
