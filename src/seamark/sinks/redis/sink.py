"""`RedisSink`: the user's configuration, checked when it is built."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seamark.api.checks import one_of, whole_number
from seamark.contracts.sink import OUTPUT_MODES, WriterContext
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Schema
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import check_columns, require_column, text_expression
from seamark.sinks.internal.committables import StagingSink
from seamark.sinks.internal.servers import shown
from seamark.sinks.redis import preflight
from seamark.sinks.redis.committable import PREFIX, RedisCommittable
from seamark.sinks.redis.committer import RedisCommitter
from seamark.sinks.redis.rows import Layout
from seamark.sinks.redis.server import Address, parse_url
from seamark.sinks.redis.writer import RedisWriter, StageWriter, UpsertWriter

_AS_STRING = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class RedisSink(StagingSink[RedisCommittable]):
    """Write rows to a Redis server by key, exactly once: a key ends up with its newest row.

    url: ``redis://user:password@host:port/database``, or ``rediss://`` for TLS, with characters
        such as ``@`` and ``/`` in the password percent-encoded; options ``?ssl_ca_certs=…``,
        ``ssl_certfile``, ``ssl_keyfile``, ``ssl_check_hostname``. The password is never shown or
        stored. One server and its replicas; no Redis Cluster.
    key: the column with the text of the key, behind `key_prefix`.
    value: the column with the text or bytes of the string at the key; null deletes the key. None:
        all other columns become the fields of a hash; null deletes the field, and the hash's other
        fields stay as they are.
    mode:
        ``"upsert"``: tasks write as rows come. A reader sees an epoch's rows before its decision.
            While an epoch is repeated after a failure, a key's value may go back for a moment.
            Holds for deterministic jobs.
        ``"staged"``: rows wait in Redis in a list of their own. After the decision they are
            applied, a block at a time. No value ever goes back, but every row is in memory twice
            until then, and writing takes two to three times as long.
    op: a string column that is not written, but says what its row does: ``insert`` and ``update``
        write the row, ``delete`` deletes the key, a hash with all of its fields.
    key_prefix: the beginning of all keys, e.g. ``"orders:"``.
    ttl: how long a key lives after its last write, e.g. ``"1 h"``; None is for ever.
    durability: ``"aof"``: the server must have its append-only file on, and must not evict keys.
        ``"none"``: neither is checked; data lost by a dying server stay lost.
    replicas: how many replicas must have the rows before an epoch goes on.
    timeout: how long the server may take for an answer; for a block of rows it may take six times
        as long.

    If several rows of an epoch have one key, the last row of a task counts. Between tasks the
    winner is open: let one task have a key, as after a ``groupBy`` of it.

    Text of a column: strings as they are, binary its bytes, numbers and booleans as Spark's CAST
    gives them, dates and timestamps in UTC, arrays, maps and structs as JSON.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[redis]'``.
    """

    url: str
    key: str
    value: str | None = None
    mode: Literal["upsert", "staged"] = "upsert"
    op: str | None = None
    key_prefix: str = ""
    ttl: Duration | None = None
    durability: Literal["aof", "none"] = "aof"
    replicas: int = 0
    timeout: Duration = "10s"

    def __post_init__(self) -> None:
        _ = self.address
        for setting, text, optional in (
            ("key", self.key, False), ("value", self.value, True),
        ):  # fmt: skip
            if not (isinstance(text, str) and text) and not (optional and text is None):
                raise ConfigurationError(
                    f"RedisSink: {setting} is {text!r}; give the name of a column"
                )
        name = f"RedisSink by {self.key!r}"
        if self.key == self.value:
            raise ConfigurationError(f"{name}: value is the same column; give another, or none")
        keys = [self.key] if self.value is None else [self.key, self.value]
        changes.check_settings(self.op, keys, name, "give key=")
        one_of(self.mode, ("upsert", "staged"), f"{name}: mode")
        one_of(self.durability, ("aof", "none"), f"{name}: durability")
        if not isinstance(self.key_prefix, str) or self.key_prefix.startswith(PREFIX):
            raise ConfigurationError(
                f"{name}: key_prefix is {self.key_prefix!r}; give text that does not begin with "
                f"{PREFIX!r}, which is Seamark's own"
            )
        if self.ttl is not None and seconds(self.ttl, f"{name}: ttl", least_s=0.001) > 9e15:
            raise ConfigurationError(
                f"{name}: ttl is {self.ttl!r}; give at most 9e15 s, the most that Redis counts, or "
                "None for keys that live for ever"
            )
        whole_number(self.replicas, f"{name}: replicas", least=0)

    @property
    def address(self) -> Address:
        """The server's address and login."""
        made = parse_url(self.url, "RedisSink")
        return replace(made, timeout_s=seconds(self.timeout, "RedisSink: timeout", least_s=0.1))

    def __repr__(self) -> str:
        return shown(self, url=self.address.shown)

    output_modes = OUTPUT_MODES  # every mode writes by key

    @property
    def way(self) -> SinkWay:
        """Idempotent for upserts, two-phase commit for stages."""
        return SinkWay.IDEMPOTENT if self.mode == "upsert" else SinkWay.TWO_PHASE_COMMIT

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        kind = "hashes" if self.value is None else "strings"
        lost = "" if self.durability == "aof" else ", lost with the server"
        return f"Redis {kind} {self.key_prefix}* at {self.address} ({self.mode}{lost})"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """See `TwoPhaseCommitSink`. Selects scalars as text or as they are, the rest as JSON."""
        check_columns(schema, self.describe(), as_json=True)
        names = [column.name for column in schema]
        require_column(self.key, schema, "key", "key", self.describe())
        require_column(self.value, schema, "value", "value", self.describe())
        changes.check_schema(self.op, schema, self.describe())
        others = [name for name in names if name not in (self.key, self.value, self.op)]
        if self.value is None and not others:
            raise ConfigurationError(
                f"{self.describe()}: the DataFrame has only the key {self.key!r}, so that a hash "
                "would have no field; select a column more"
            )
        if self.value is not None and others:
            raise ConfigurationError(
                f"{self.describe()}: column {others[0]!r} would be left out, as only the column "
                f"{self.value!r} is written; drop it, or leave out value= for hashes of all columns"
            )
        return [text_expression(column, _AS_STRING) for column in schema]

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`: the database, and the keys' beginning."""
        return [f"redis://{self.address}/{self.key_prefix}*"]

    def create_writer(self, context: WriterContext) -> RedisWriter:
        """See `TwoPhaseCommitSink`. Connects at the first row."""
        ttl_ms = None if self.ttl is None else round(seconds(self.ttl, "ttl") * 1000)
        layout = Layout(self.key, self.value, self.key_prefix, ttl_ms, self.op)
        kind = UpsertWriter if self.mode == "upsert" else StageWriter
        return kind(self.address, layout, self.replicas, self.describe(), context)

    create_selective_writer = create_writer
    look = preflight.look
    committer = RedisCommitter
    committable = RedisCommittable
