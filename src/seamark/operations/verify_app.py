"""`seamark verify --app`: a user's program under faults. What is asked of it stands in
docs/operations/verify.md; a program that cannot be judged is refused before anything is started.

The program is executed in a process of its own (`main`), under another `__name__`, to see what it
declares.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from seamark.model.errors import ConfigurationError, UserError
from seamark.operations.program_file import require_program
from seamark.operations.run import Program

if TYPE_CHECKING:
    from seamark.verify.systems import Systems
    from seamark.verify.trial import Workload

KAFKA_VARIABLE = "SEAMARK_VERIFY_KAFKA"
"""Environment: the bootstrap servers for the program under test."""
POSTGRES_VARIABLE = "SEAMARK_VERIFY_POSTGRES"
"""Environment: PostgreSQL's URL for the program under test."""
_KAFKA = "127.0.0.1:9"
_POSTGRES = "postgresql://postgres@127.0.0.1:9/postgres"
"""What the program is told while it is looked at: nothing is started yet."""


@dataclass(frozen=True)
class AppUnderTest:
    """A program, its arguments, and how its rows are numbered: `id` is a column or field, `row` the
    template of an input row. `kafka` and `postgres` are given servers."""

    app: Path
    arguments: tuple[str, ...] = ()
    id: str = "id"
    row: str | None = None
    ordered: bool = True
    kafka: str | None = None
    postgres: str | None = None

    @property
    def template(self) -> str:
        """The input row. Raises ConfigurationError without the row's number in it."""
        template = self.row if self.row is not None else f'{{"{self.id}": {{n}}}}'
        if "{n}" not in template:
            raise ConfigurationError(
                f"--row is {template!r}; put {{n}} where the row's number belongs"
            )
        return template


@dataclass(frozen=True)
class DeclaredApp:
    """What a program declares, as far as it can be fed and read. `sinks` are facts of readable
    sinks by uid; `not_read` says why others are not read."""

    job: str
    topic: str
    unaligned: bool
    sinks: dict[str, dict[str, Any]]
    not_read: dict[str, str]

    @property
    def needs_postgres(self) -> bool:
        """Whether a sink is on PostgreSQL."""
        return any(sink["kind"] == "postgres" for sink in self.sinks.values())


def declared(asked: AppUnderTest) -> DeclaredApp:
    """Return what the program declares. Raises UserError if it cannot be judged."""
    require_program(asked.app)
    _ = asked.template
    facts = _looked_at(asked)
    where = f"{asked.app}: job {facts['job']!r}"
    if facts["mode"] != "exactly-once":
        raise UserError(f"{where} has mode {facts['mode']!r}; only exactly-once can be verified")
    fed = [source for source in facts["sources"] if source["kind"] == "kafka"]
    if len(facts["sources"]) != 1 or len(fed) != 1 or len(fed[0]["topics"]) != 1:
        raise UserError(
            f"{where} reads {', '.join(s['what'] for s in facts['sources'])}; a job that can be "
            "fed has one KafkaSource with one topic"
        )
    (source,) = fed
    if source["servers"] != (asked.kafka or _KAFKA):
        raise UserError(
            f"{where}: source {source['uid']!r} reads from {source['servers']}. Rows are written "
            f"to its topic: let the program take its address from {KAFKA_VARIABLE}, or, if that "
            f"Kafka is for tests alone, give --kafka {source['servers']}"
        )
    if source["starting"] != "earliest":
        raise UserError(
            f"{where}: source {source['uid']!r} has starting_offsets={source['starting']!r}; every "
            "row must be read: give 'earliest' in this test"
        )
    not_read = {sink["uid"]: why for sink in facts["sinks"] if (why := _why_not(asked, sink))}
    sinks = {sink["uid"]: sink for sink in facts["sinks"] if sink["uid"] not in not_read}
    if not sinks:
        reasons = "; ".join(f"{uid}: {why}" for uid, why in not_read.items())
        raise UserError(f"{where} has no sink that can be read back ({reasons})")
    return DeclaredApp(facts["job"], source["topics"][0], facts["unaligned"], sinks, not_read)


def workload(
    asked: AppUnderTest, declared: DeclaredApp, systems: "Systems", directory: Path
) -> "Workload":
    """Return the workload of a program. Raises UserError if a sink or the topic holds rows."""
    from seamark.verify import workloads
    from seamark.verify.generator import KEYS, ROW_MS
    from seamark.verify.trial import Workload

    kafka = systems.kafka_direct
    topics = [sink["topic"] for sink in declared.sinks.values() if sink["kind"] == "kafka"]
    workloads.create_topics(kafka, declared.topic, *topics)
    sinks = [_watched(asked, uid, sink, systems, directory) for uid, sink in declared.sinks.items()]
    for sink in sinks:
        try:
            held = len(sink.final(30).numbers)
        except AssertionError as error:
            raise UserError(f"{error}; give the test a sink of its own") from None
        if held:
            raise UserError(f"{sink.name} holds rows already; give the test a sink of its own")
    settings = [
        f"checkpoint.storage={systems.storage.as_uri()}", "checkpoint.interval=500ms",
        "checkpoint.timeout=2min",
    ]  # fmt: skip
    program = Program(str(asked.app.resolve()), asked.arguments, settings, log_level="INFO")
    command, environment = program.command()
    environment[KAFKA_VARIABLE] = systems.kafka_for_job
    if declared.needs_postgres:
        environment[POSTGRES_VARIABLE] = systems.postgres_for_job
    template = asked.template

    def row(number: int) -> tuple[str, str]:
        key = f"key-{number % KEYS}"
        text = template.replace("{n}", str(number)).replace("{k}", key)
        return key, text.replace("{ms}", str(number * ROW_MS))

    points = {point for sink in declared.sinks.values() for point in workloads.POINTS[sink["kind"]]}
    return Workload(
        declared.job, command, systems.storage / declared.job, kafka, declared.topic, row, sinks,
        [*workloads.PROTOCOL, *sorted(points)],
        environment, whole=not declared.unaligned, ordered=asked.ordered,
    )  # fmt: skip


def _watched(
    asked: AppUnderTest, uid: str, sink: dict[str, Any], systems: "Systems", directory: Path
) -> Any:
    from seamark.sinks.internal.columns import in_double_quotes
    from seamark.verify import readers
    from seamark.verify.trial import ROWS
    from seamark.verify.workloads import numbered_by

    if sink["kind"] == "kafka":
        return readers.WatchedTopic(
            f"Kafka {sink['topic']}", ROWS, systems.kafka_direct, sink["topic"],
            numbered_by(asked.id),
        )  # fmt: skip
    column = in_double_quotes(asked.id)
    table = sink["sql"]
    if sink["kind"] == "sqlite":
        database = directory / sink["path"]
        query = readers.sqlite_query(database, table, column)
        return readers.WatchedTable(f"SQLite {sink['table']}", ROWS, query)
    query = readers.postgres_query(systems.postgres_direct, table, column)
    return readers.WatchedTable(f"PostgreSQL {sink['table']}", ROWS, query)


def _why_not(asked: AppUnderTest, sink: dict[str, Any]) -> str:
    """Return why a sink cannot be judged; "" if it can."""
    kind = sink["kind"]
    if kind == "other":
        return f"{sink['what']} is of no kind that is read: Kafka, PostgreSQL, SQLite"
    if not sink["exactly_once"]:
        return f"{sink['what']} is not exactly-once"
    if kind == "kafka":
        if sink["topic"] is None:
            return "its topics are in a column"
        if sink["servers"] != (asked.kafka or _KAFKA):
            return f"it is at {sink['servers']}, not at {KAFKA_VARIABLE} nor --kafka"
        return ""
    if asked.id not in sink["columns"]:
        return f"it has no column {asked.id!r} (but {', '.join(sink['columns'])}); give --id"
    if (
        kind == "postgres"
        and urlsplit(sink["url"]).netloc.rpartition("@")[2]
        != urlsplit(asked.postgres or _POSTGRES).netloc.rpartition("@")[2]
    ):
        return f"it is not at {POSTGRES_VARIABLE} nor --postgres"
    return ""


def _looked_at(asked: AppUnderTest) -> dict[str, Any]:
    """Execute the program to see its declaration, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="seamark-verify-") as scratch:
        answer = Path(scratch) / "declared.json"
        done = subprocess.run(
            [
                sys.executable, "-c", "from seamark.operations.verify_app import main; main()",
                str(answer), str(asked.app.resolve()), *asked.arguments,
            ],
            stdout=sys.stderr,
            cwd=scratch,
            env={
                **os.environ,
                KAFKA_VARIABLE: asked.kafka or _KAFKA,
                POSTGRES_VARIABLE: asked.postgres or _POSTGRES,
            },
            check=False,
        )  # fmt: skip
        if not answer.exists():
            raise UserError(
                f"{asked.app} has ended (exit code {done.returncode}) before its job was declared"
            )
        facts: dict[str, Any] = json.loads(answer.read_text())
    if "error" in facts:
        raise UserError(facts["error"])
    return facts


def main() -> None:
    """Write what the program at the second argument's path declares into the first one's."""
    # Not above: these bring pyarrow, which the command itself, running for hours, never needs.
    from seamark.operations.reading import declared_jobs, traceback_in_program

    answer, app, *arguments = sys.argv[1:]
    try:
        jobs = declared_jobs(Path(app), arguments)
        if len(jobs) != 1:
            raise UserError(f"{app} declares {len(jobs)} jobs; one can be verified")
        facts = _facts(jobs[0].declaration)
    except UserError as error:
        facts = {"error": str(error)}
    except Exception as error:
        if (shown := traceback_in_program(error)) is None:
            raise
        sys.exit(shown.rstrip())
    Path(answer).write_text(json.dumps(facts))


def _facts(job: Any) -> dict[str, Any]:
    return {
        "job": job.name,
        "mode": job.checkpoint.mode.value,
        "unaligned": job.checkpoint.unaligned,
        "sources": [_source_facts(source) for source in job.sources.values()],
        "sinks": [_sink_facts(sink) for sink in job.sinks.values() if not sink.dead_letters_of],
    }


def _source_facts(declared: Any) -> dict[str, Any]:
    from seamark.sources.kafka import KafkaSource

    facts = {"uid": declared.uid, "what": declared.description, "kind": "other"}
    if isinstance(declared.source, KafkaSource):
        source = declared.source
        facts |= {
            "kind": "kafka",
            "servers": source.bootstrap_servers,
            "topics": list(source.topics or ()),
            "starting": source.starting_offsets if source.starting_offsets == "earliest" else "…",
        }
    return facts


def _sink_facts(declared: Any) -> dict[str, Any]:
    from seamark.model.guarantee import SinkWay
    from seamark.sinks.internal.columns import in_double_quotes
    from seamark.sinks.kafka.sink import KafkaSink
    from seamark.sinks.postgres.sink import PostgresSink
    from seamark.sinks.sqlite.sink import SQLiteSink

    sink = declared.sink
    facts = {
        "uid": declared.uid,
        "what": sink.describe(),
        "kind": "other",
        "exactly_once": sink.way is not SinkWay.NONE,
        "columns": [column.name for column in declared.schema],
    }
    if isinstance(sink, KafkaSink):
        facts |= {"kind": "kafka", "servers": sink.bootstrap_servers, "topic": sink.topic}
    elif isinstance(sink, PostgresSink):
        facts |= {"kind": "postgres", "url": sink.url, "table": sink.table, "sql": sink.sql_name}
    elif isinstance(sink, SQLiteSink):
        path, here = Path(sink.path), Path.cwd()  # the drivers have another directory
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        facts |= {
            "kind": "sqlite",
            "path": str(shown),
            "table": sink.table,
            "sql": in_double_quotes(sink.table),
        }
    return facts
