"""The rules on servers, over facts: each mistake gives one finding, a sound server none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from seamark.contracts.sink import SinkContext
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Severity
from seamark.model.schema import Column
from seamark.sinks.internal.servers import quicker
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka import preflight as kafka
from seamark.sinks.kafka.sink import timeout_too_short
from seamark.sinks.mysql import MySQLSink
from seamark.sinks.mysql import preflight as mysql
from seamark.sinks.mysql.table import TableColumn, UniqueIndex, column_type, misfit
from seamark.sinks.postgres import PostgresSink
from seamark.sinks.postgres import preflight as postgres
from seamark.sinks.postgres.table import Table
from seamark.sinks.redis import RedisSink
from seamark.sinks.redis import preflight as redis

KAFKA = KafkaSink("b:1", topic="out", transactional_id_prefix="shop", transaction_timeout="15min")
TOPIC = kafka.TopicFacts("out", 0, 3, 3, frozenset({"DESCRIBE", "WRITE"}), 2)
BROKERS = kafka.BrokerFacts(topics={"out": TOPIC}, limits_ms=(900_000, 900_000))
CONTEXT = SinkContext("j", "job", "out", 1, 10.0, tasks=200, open_epochs=2)
ERROR, WARNING = Severity.ERROR, Severity.WARNING


def topic(**changed: Any) -> dict[str, Any]:
    return {"topics": {"out": replace(TOPIC, **changed)}}


@pytest.mark.parametrize(
    ("changed", "code", "severity", "found"),
    [
        ({"refused": "No such property"}, "SV007", ERROR, "No such property"),
        ({"unreachable": "refused"}, "SV001", ERROR, r"no broker answers at b:1 \(refused\)"),
        (topic(error_code=3), "SV004", ERROR, "'out' does not exist"),
        (topic(error_code=29), "SV003", ERROR, "not authorised for topic"),
        (topic(error_code=7), "SV002", ERROR, "answers 7"),
        (topic(may=frozenset({"DESCRIBE"})), "SV003", ERROR, "not authorised to write topic 'out'"),
        ({"limits_ms": (900_000, 60_000)}, "KF005", ERROR, "900s is above .* of 60s"),
        (topic(retention_ms=60_000), "KF005", WARNING, r"above retention.ms of topic 'out', 60s"),
        ({"ids_denied": True}, "SV003", ERROR, "transactional ids that begin with 'shop'"),
        ({"others": ("shop-x1-0c9e41d2aa07-g1-w-0",)}, "KF002", WARNING, "such as 'shop-x1-"),
        (topic(replicas=1, in_sync=1, least_in_sync=1), "KF006", WARNING, "1 replica"),
        (topic(least_in_sync=1), "KF007", WARNING, "min.insync.replicas 1"),
        (
            {"uncommitted": {"audit": "offset 31"}},
            "SK003",
            WARNING,
            "'audit' .* offset 31",
        ),
        (topic(in_sync=1), "KF007", ERROR, "1 replicas in sync, and min.insync.replicas is 2"),
    ],
)
def test_a_mistake_at_the_brokers(
    changed: dict[str, Any], code: str, severity: Severity, found: str
) -> None:
    (finding,) = kafka.findings(KAFKA, CONTEXT, replace(BROKERS, **changed))
    assert (finding.code.name, finding.weight) == (code, severity)
    assert finding.subject == "sink `out`"
    with pytest.raises(ValueError, match=found):
        raise ValueError(finding.found)


def test_sound_brokers_and_brokers_that_tell_nothing_have_no_finding() -> None:
    assert list(kafka.findings(KAFKA, CONTEXT, BROKERS)) == []
    kept = replace(BROKERS, **topic(retention_ms=-1))
    assert list(kafka.findings(KAFKA, CONTEXT, kept)) == []
    silent = kafka.BrokerFacts(topics={"out": kafka.TopicFacts("out", 0, 3, 3)})
    assert list(kafka.findings(KAFKA, CONTEXT, silent)) == []


def test_a_query_without_a_checkpoint_timeout_is_warned_of() -> None:
    endless = replace(CONTEXT, checkpoint_timeout_s=math.inf)
    (finding,) = kafka.findings(KAFKA, endless, BROKERS)
    assert (finding.code.name, finding.weight) == ("KF004", Severity.WARNING)
    assert "longer than transaction_timeout, 900s" in finding.found
    assert list(kafka.findings(replace(KAFKA, spool=True), endless, BROKERS)) == []


@pytest.mark.parametrize(
    ("timeouts", "needed"),
    [
        ((890.0, 0.0), "checkpoint interval 10s + timeout 890s + restart delay 0s = 900s"),
        ((60.0, 3600.0), "checkpoint interval 10s + timeout 60s + restart delay 3600s = 3670s"),
    ],
)
def test_a_transaction_must_outlive_interval_timeout_and_restart(
    timeouts: tuple[float, float], needed: str
) -> None:
    times = {"checkpoint_timeout_s": timeouts[0], "restart_delay_s": timeouts[1]}
    context = replace(CONTEXT, **times)
    (finding,) = timeout_too_short(KAFKA, context)
    assert finding.code.name == "KF004"
    assert needed in finding.found
    assert list(timeout_too_short(replace(KAFKA, spool=True), context)) == []
    assert list(timeout_too_short(replace(KAFKA, transaction_timeout="2h"), context)) == []
    with pytest.raises(ConfigurationError) as refused:
        KAFKA.check_transaction_scope(context)
    assert refused.value.finding == finding


def test_no_prefix_is_a_finding_when_the_sink_is_built() -> None:
    with pytest.raises(ConfigurationError, match="KF001") as refused:
        KafkaSink("b:1", topic="out")
    assert refused.value.finding is not None


SERVER = postgres.ServerFacts(16, only_reads=False, most_prepared=400)
PREPARED = PostgresSink("postgresql://u@h/d", table="t", mode="prepared")
STAGED = replace(PREPARED, mode="staged")


@pytest.mark.parametrize(
    ("sink", "changed", "code", "severity"),
    [
        (PREPARED, {"version": 12}, "SV002", ERROR),
        (PREPARED, {"only_reads": True}, "SV002", ERROR),
        (PREPARED, {"most_prepared": 0}, "PG001", ERROR),
        (PREPARED, {"most_prepared": 399}, "PG002", WARNING),
        (STAGED, {"off": ("fsync",)}, "SV006", WARNING),
        (PREPARED, {"denied": ("pg_control_system()",)}, "SV003", ERROR),
        (STAGED, {"denied": ("pg_control_system()",)}, "", None),
        (STAGED, {"most_prepared": 0}, "", None),
        (STAGED, {"locks": 699}, "PG004", WARNING),
        (STAGED, {"locks": 1400}, "", None),
        (PREPARED, {"locks": 699}, "", None),
        (PREPARED, {}, "", None),
    ],
)
def test_a_mistake_at_a_postgresql_server(
    sink: PostgresSink, changed: dict[str, Any], code: str, severity: Severity | None
) -> None:
    facts = replace(SERVER, **changed)
    found = list(postgres.server_findings(sink, CONTEXT, "sink 'out'", facts))
    assert [(f.code.name, f.weight) for f in found] == ([(code, severity)] if code else [])


def test_a_table_that_is_missing_or_not_this_users() -> None:
    def codes(sink: PostgresSink, facts: postgres.TableFacts) -> list[tuple[str, str]]:
        found = postgres.table_findings(sink, "sink 'out'", facts)
        return [(one.code.name, one.remedy) for one in found]

    there = postgres.TableFacts("etl", Table("public", "t", "r", ()))
    assert codes(PREPARED, there) == []
    assert [code for code, _ in codes(PREPARED, postgres.TableFacts("etl"))] == ["SV004"]
    denied = replace(there, lacks=["INSERT"], may_create=False)
    assert codes(PREPARED, denied) == [("SV003", 'GRANT INSERT ON "public"."t" TO etl')]
    assert [code for code, _ in codes(STAGED, denied)] == ["SV003", "SV003"]
    ledger = replace(there, lacks_ledger=["SELECT", "DELETE"])
    grant = 'GRANT SELECT, DELETE ON "public"."_seamark_ledger" TO etl'
    assert codes(STAGED, ledger) == [("SV003", grant)]
    unfit = replace(there, unlogged=["t"], bound=True, published_by=["every"])
    assert [code for code, _ in codes(PREPARED, unfit)] == ["SV005", "SV006"]
    assert [code for code, _ in codes(STAGED, unfit)] == ["SV005", "SV006", "PG003"]
    assert [code for code, _ in codes(STAGED, replace(there, late=["trigger t"]))] == ["SV009"]


INFO = {"redis_version": "7.2.4", "role": "master", "aof_enabled": "1", "connected_slaves": "0"}
REDIS = RedisSink("redis://h:1", key="k")


@pytest.mark.parametrize(
    ("information", "appendfsync", "found"),
    [
        ({}, "always", []),
        ({}, "", []),
        ({}, "everysec", [("SV006", WARNING)]),
        ({"redis_version": "5.0"}, "always", [("SV002", ERROR)]),
        ({"redis_mode": "cluster"}, "always", [("SV002", ERROR)]),
        ({"role": "slave"}, "always", [("SV002", ERROR)]),
        ({"aof_enabled": "0"}, "always", [("RD001", ERROR)]),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": "9"}, "always", [("SV006", ERROR)]),
        ({"maxmemory_policy": "volatile-lru", "maxmemory": "9"}, "always", []),
        ({"maxmemory_policy": "volatile-lru", "maxmemory": "0"}, "ttl", []),
        ({"maxmemory_policy": "volatile-lru", "maxmemory": "9"}, "ttl", [("SV006", WARNING)]),
        ({"maxmemory_policy": "noeviction", "maxmemory": "9"}, "ttl", []),
    ],
)
def test_a_mistake_at_a_redis_server(
    information: dict[str, str], appendfsync: str, found: list[tuple[str, Severity]]
) -> None:
    """``ttl``: of a sink with a time to live, at a server that writes through."""
    sink = replace(REDIS, ttl="1h") if appendfsync == "ttl" else REDIS
    facts = redis.ServerFacts({**INFO, **information}, appendfsync.replace("ttl", "always"))
    assert [(f.code.name, f.weight) for f in redis.findings(sink, "sink", facts)] == found


MYSQL = MySQLSink("mysql://u:p@h/d", "t", "upsert", keys=["id"])
XA = MySQLSink("mysql://u:p@h/d", "t", "xa")
ROWS = (Column("id", "bigint"), Column("at", "timestamp"))
ID = TableColumn("id", "bigint", True, 0, True, True, False)
AT = TableColumn("at", "datetime", True, 6, False, False, False)
BY_ID = UniqueIndex("PRIMARY", ("id",))
MARIADB = mysql.ServerFacts("10.11.6-MariaDB")
THERE = mysql.TableFacts("InnoDB", (ID, AT), (BY_ID,))


@pytest.mark.parametrize(
    ("sink", "changed", "found"),
    [
        (XA, {}, []),
        (XA, {"version": "8.0.36"}, []),
        (XA, {"version": "5.7.40"}, [("SV002", ERROR)]),
        (XA, {"flush": 2}, [("SV006", WARNING)]),
        (XA, {"sync": 0}, [("SV006", WARNING)]),
        (MYSQL, {"sync": 100, "flush": 0}, [("SV006", ERROR), ("SV006", WARNING)]),
        (XA, {"flush": 0, "version": "10.5.1-MariaDB"}, [("SV002", ERROR), ("SV006", ERROR)]),
        (XA, {"galera": True, "unlisted": "denied"}, [("SV002", ERROR), ("SV003", ERROR)]),
        (MYSQL, {"galera": True, "unlisted": "denied"}, []),
    ],
)
def test_a_mistake_at_a_mysql_server(
    sink: MySQLSink, changed: dict[str, Any], found: list[tuple[str, Severity]]
) -> None:
    findings = mysql.server_findings(sink, "sink 'out'", replace(MARIADB, **changed))
    assert [(one.code.name, one.weight) for one in findings] == found


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"engine": ""}, ["SV004 the table `d`.`t` does not exist"]),
        ({"engine": "MyISAM"}, ["SV005 `d`.`t` is MyISAM"]),
        ({"columns": (ID,)}, ["SV005 `d`.`t` has no column 'at'"]),
        (
            {"columns": (replace(ID, data_type="float"), replace(AT, fraction_digits=0))},
            ["SV005 column 'id' is bigint", "SV005 column 'at' is timestamp"],
        ),
        (
            {"columns": (ID, AT, replace(ID, name="more"))},
            ["SV005 column 'more' of `d`.`t` is"],
        ),
        ({"indexes": ()}, ["SV005 `d`.`t` has no unique index on exactly (id)"]),
        ({"indexes": (BY_ID, UniqueIndex("a", ("at",)))}, ["SV005 `d`.`t` has a second unique"]),
    ],
)
def test_every_misfit_of_a_mysql_table_is_found(changed: dict[str, Any], found: list[str]) -> None:
    facts = replace(THERE, **changed)
    findings = mysql.table_findings(MYSQL, ROWS, "sink 'out'", MARIADB, facts)
    told = [f"{one.code.name} {one.found}" for one in findings]
    assert len(told) == len(found)
    assert all(text.startswith(start) for text, start in zip(told, found, strict=True)), told


@pytest.mark.parametrize(
    ("type_", "fits"),
    [("array<decimal(15,2)>", True), ("array<decimal(16,2)>", False), ("decimal(38,0)", False),
     ("map<string,bigint>", True), ("struct<a:double>", True)],
)  # fmt: skip
def test_mysqls_json_takes_no_long_decimals(type_: str, fits: bool) -> None:
    """Its JSON has doubles; MariaDB's is a text."""
    column = Column("c", type_)
    json_column = replace(ID, name="c", data_type="json", takes_bytes=False)
    assert bool(misfit(column, json_column)) is not fits
    if not type_.startswith("decimal"):
        assert column_type(column, False, "8.0.36") == ("JSON" if fits else "LONGTEXT")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("compresion.type", "compression.type"),
        ("queue.bufering.max.messages", "queue.buffering.max.messages"),
    ],
)
def test_an_unknown_producer_option_names_the_nearest(given: str, meant: str) -> None:
    sink = KafkaSink(
        "b:1", topic="out", transactional_id_prefix="shop", producer_options={given: "1"}
    )
    assert kafka._refused_options(sink, "sink `out`").endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("timeout_s", "line"),
    [
        (600, 'KafkaSink(…, transaction_timeout="11min")'),
        (3600, 'KafkaSink(…, spool=True), or of write_stream .option("spool", True)'),
    ],
)
def test_a_short_transaction_timeout_is_refused_with_the_line_to_paste(
    timeout_s: int, line: str
) -> None:
    sink = KafkaSink("b:1", "out", transactional_id_prefix="shop", transaction_timeout="1min")
    context = replace(CONTEXT, checkpoint_timeout_s=timeout_s)
    with pytest.raises(ConfigurationError, match="KF004") as refused:
        sink.check_transaction_scope(context)
    assert line in str(refused.value)


def test_a_quicker_mode_is_a_note() -> None:
    found = quicker("sink `out`", "the server has 9", "prepared")
    assert (found.code.name, found.weight) == ("SV008", Severity.NOTE)
    assert "mode='prepared'" in found.remedy
