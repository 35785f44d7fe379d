"""The layout below ``state/`` of a Spark checkpoint location: its operators, their stores, and each
store's column families with their schemas.

Spark's own classes read the schema files. Their answer becomes a Java object, sent to the tasks by
`state/rows.py`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import SparkSession

from seamark.checkpoint.spark_files import metadata_at, read_log
from seamark.files import Directory, numbered
from seamark.model.errors import CorruptRecordError
from seamark.savepoints.record import ColumnFamily, Operator, Store
from seamark.spark.java_calls import items_of, java_list
from seamark.spark.operator_uids import OperatorUids
from seamark.spark.planned_query import OFFSET_LOG
from seamark.spark.spark_versions import (
    base_of_family,
    has_several_values,
    schema_checker,
    spark_class,
)
from seamark.spark.state_backend import PARTITIONS

STRICT_DISTRIBUTION = "spark.sql.streaming.statefulOperator.useStrictDistribution"
"""Whether Spark spreads the rows of every operator by its whole key; false in a query begun before
Spark 3.3, in which rows spread by a part of the key already are not spread again."""
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
STATE_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
"""With ``avro`` Spark finds the columns of a transformWithState's variables by their names."""
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_STATE = "org.apache.spark.sql.execution.streaming.state."
_OPERATORS = "org.apache.spark.sql.execution.streaming.operators.stateful."
_CONVERTERS = "scala.jdk.javaapi.CollectionConverters"
_TRANSFORM_WITH_STATE = "transformWithState"
_SCHEMA_PATH = re.compile(r"^.*?/state/(\d+)/(_stateSchema/.*)$")


@dataclass(frozen=True)
class StoreInfo:
    """One store of an operator, by Spark's operator metadata."""

    name: str
    prefix_columns: int
    schema_paths: tuple[str, ...]
    """Of metadata version 2: the schema files, oldest first, below the checkpoint location."""


@dataclass(frozen=True)
class OperatorInfo:
    """One operator, by Spark's operator metadata."""

    index: int
    name: str
    stores: tuple[StoreInfo, ...]
    properties: str
    """JSON, of a transformWithState; else empty."""
    metadata_path: str
    """The metadata's file, below the checkpoint location."""

    @property
    def is_transform_with_state(self) -> bool:
        """Whether it is a transformWithState, in whichever language."""
        return self.name.startswith(_TRANSFORM_WITH_STATE)


def read_operators(files: Directory, epoch: int) -> list[OperatorInfo]:
    """Return the stateful operators as of `epoch`; raises CorruptRecordError."""
    return [_read_operator(files, index, epoch) for index in numbered(files.list("state"))]


def _read_operator(files: Directory, index: int, epoch: int) -> OperatorInfo:
    at = f"state/{index}/_metadata"
    versions = [f"{at}/v2/{number}" for number in numbered(files.list(f"{at}/v2"))]
    (path,) = metadata_at(versions, epoch) or [f"{at}/metadata"]
    try:
        body = read_log(files, path)[0]
        return OperatorInfo(
            index=index,
            name=body["operatorInfo"]["operatorName"],
            stores=tuple(
                StoreInfo(
                    info["storeName"],
                    info.get("numColsPrefixKey", 0),
                    tuple(
                        _SCHEMA_PATH.sub(r"state/\1/\2", p)
                        for p in info.get("stateSchemaFilePaths") or ()
                    ),
                )
                for info in body["stateStoreInfo"]
            ),
            properties=body.get("operatorPropertiesJson") or "",
            metadata_path=path,
        )
    except FileNotFoundError:
        raise CorruptRecordError(
            f"{files.uri}/{path}: missing; state without operator metadata, as Spark before 4.0 "
            "wrote it, cannot be exported: run the query with this Spark for one epoch first"
        ) from None
    except (KeyError, TypeError, AttributeError, LookupError) as error:
        raise CorruptRecordError(f"{files.uri}/{path}: {error!r}") from None


def relocated(
    metadata: bytes, location: str, index: int | None = None, partitions: int | None = None
) -> bytes:
    """Return the bytes of an operator's metadata file for the checkpoint location with the URI
    `location`, where the schema files then are. `index` and `partitions`: the operator's new number
    and number of state partitions, if they change."""

    def moved(path: str) -> str:
        return _SCHEMA_PATH.sub(
            lambda match: f"{location}/state/{match[1] if index is None else index}/{match[2]}",
            path,
        )

    version, text = metadata.decode().split("\n", 1)
    body = json.loads(text)
    if index is not None:
        body["operatorInfo"]["operatorId"] = index
    for store in body["stateStoreInfo"]:
        if partitions is not None:
            store["numPartitions"] = partitions
        if "stateSchemaFilePaths" in store:
            store["stateSchemaFilePaths"] = list(map(moved, store["stateSchemaFilePaths"]))
    return f"{version}\n{compact_json(body)}".encode()


def compact_json(value: Any) -> str:
    """Return JSON as Spark writes it into its logs."""
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True)
class StoreState:
    """One store: the Java description for the tasks, and its column families in our words."""

    info: StoreInfo
    java: Any
    java_families: tuple[Any, ...]
    families: tuple[ColumnFamily, ...]


class StateLayout:
    """Describes stores. Reads their schemas at `described`; their rows lie at `location`. Both are
    Spark checkpoint locations, or `described` is a savepoint's ``spark`` directory. `settings` come
    from the offset log; `format_version` is Spark's checkpoint format."""

    def __init__(
        self,
        spark: SparkSession,
        classes: Any,
        described: str,
        location: str,
        settings: Mapping[str, str],
        format_version: int,
    ) -> None:
        self._spark, self._jvm = spark, cast(Any, spark._jvm)
        self._classes = classes
        self._described = described
        self._location = location
        self._settings = settings
        session = spark._jsparkSession.sessionState()
        self._hadoop = session.newHadoopConf()
        conf = session.conf().clone()
        # As a query does at its start: a setting that an older version did not record gets the
        # value it had then.
        recorded = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": dict(settings)}
        log = self._class(OFFSET_LOG)
        log.setSessionConf(log.apply(json.dumps(recorded)), conf)
        for key, value in {**settings, _FORMAT: str(format_version)}.items():
            conf.setConfString(key, value)
        self._conf = self._class(_STATE + "StateStoreConf").apply(conf)

    def _class(self, name: str) -> Any:
        return spark_class(self._jvm, name)

    def operator(self, info: OperatorInfo, uids: OperatorUids) -> tuple[Operator, list[StoreState]]:
        """Describe an operator as in a savepoint's record, without figures; and its stores."""
        described = [self.store(info, store) for store in info.stores]
        keyed = is_keyed(info.name, [f for store in described for f in store.families])
        stores = (
            Store(s.info.name, f"state/{info.index}/{s.info.name}", s.families) for s in described
        )
        return Operator(
            uid=uids.of_operator(info.index),
            index=info.index,
            name=info.name,
            partitions=int(self._settings[PARTITIONS]) if keyed else 1,
            keyed=keyed,
            properties=json.loads(info.properties) if info.properties else None,
            stores=tuple(stores),
        ), described

    def store(
        self, operator: OperatorInfo, info: StoreInfo, index: int | None = None
    ) -> StoreState:
        """Describe one store; `index`: the operator's number at `location`, if it differs."""
        jvm, some = self._jvm, self._class("scala.Option").apply
        variables = self._variables(operator)
        schemas = self._schemas(operator, info)
        java_families, families = [], []
        for schema in schemas:
            name = schema.colFamilyName()
            internal = name.startswith("$")
            base = base_of_family(jvm, name) if variables else name
            # Of a transformWithState; Spark extracts a key's columns by it.
            variable = next((v for v in variables if v.stateName() in (name, base)), None)
            # The indexes of a list have one value for a key.
            several = has_several_values(jvm, name, None if internal else variable)
            java_families.append(
                self._classes.new("Family", schema, several, internal, some(variable))
            )
            families.append(_family(schema, variable, several, internal))
        provider = None
        if operator.is_transform_with_state:
            state = f"{self._described}/state"
            paths = java_list(jvm, (f"{self._described}/{path}" for path in info.schema_paths))
            metadata = self._class(_STATE + "StateSchemaMetadata").createStateSchemaMetadata(
                state, self._hadoop, self._list(paths)
            )
            provider = self._class(_STATE + "InMemoryStateSchemaProvider")(metadata)
        join_format = int(self._settings.get(JOIN_FORMAT, "2"))
        java = self._classes.new(
            "Store",
            f"{self._location}/state",
            self._class("java.lang.Long")(operator.index if index is None else index),
            operator.name,
            info.name,
            some(self._class("java.lang.Integer")(join_format)),
            self._conf,
            self._class("org.apache.spark.util.SerializableConfiguration")(self._hadoop),
            some(provider),
            java_list(jvm, java_families),
            operator.is_transform_with_state or len(families) > 1,
            is_keyed(operator.name, families),
        )
        return StoreState(info, java, tuple(java_families), tuple(families))

    def _variables(self, operator: OperatorInfo) -> list[Any]:
        if not operator.is_transform_with_state:
            return []
        parsed = self._class(
            _OPERATORS + "transformwithstate.TransformWithStateOperatorProperties"
        ).fromJson(operator.properties)
        return items_of(self._class(_CONVERTERS).asJava(parsed.stateVariables()))

    def _list(self, items: Any) -> Any:
        """Return a Java list as Scala's immutable one."""
        return self._class(_CONVERTERS).asScala(items).toList()

    def _schemas(self, operator: OperatorInfo, info: StoreInfo) -> list[Any]:
        """Return Spark's description of each column family, with its key's encoding."""
        jvm = self._jvm
        option = self._class("scala.Option")
        path = self._class("org.apache.hadoop.fs.Path")
        paths = java_list(jvm, (path(f"{self._described}/{name}") for name in info.schema_paths))
        store = self._class(_STATE + "StateStoreId")(
            f"{self._described}/state", operator.index, 0, info.name
        )
        provider = self._class(_STATE + "StateStoreProviderId")(
            store, self._class("java.util.UUID").randomUUID()
        )
        checker = schema_checker(self._spark, provider, self._hadoop, self._list(paths))
        schemas = []
        for schema in items_of(self._class(_CONVERTERS).asJava(checker.readSchemaFile())):
            if not schema.keyStateEncoderSpec().isDefined():
                key = schema.keySchema()
                if info.prefix_columns:
                    spec = self._class(_STATE + "PrefixKeyScanStateEncoderSpec")(
                        key, info.prefix_columns
                    )
                else:
                    spec = self._class(_STATE + "NoPrefixKeyStateEncoderSpec")(key)
                schema = self._class(_STATE + "StateStoreColFamilySchema")(
                    schema.colFamilyName(),
                    schema.keySchemaId(),
                    key,
                    schema.valueSchemaId(),
                    schema.valueSchema(),
                    option.apply(spec),
                    schema.userKeyEncoderSchema(),
                )
            schemas.append(schema)
        if not schemas:
            raise CorruptRecordError(
                f"{self._described}/state/{operator.index}: store {info.name!r} has no state schema"
            )
        return schemas


def is_keyed(operator: str, families: Sequence[ColumnFamily]) -> bool:
    """Whether an operator's rows are spread by a key: not of a limit, or without grouping."""
    return operator != "globalLimit" and any(f.key_schema["fields"] for f in families)


def _family(schema: Any, variable: Any, several: bool, internal: bool) -> ColumnFamily:
    kind = "rows"
    if variable is not None:
        type_ = str(variable.stateVariableType().toString())
        kind = type_.removesuffix("State").lower()
        if internal and kind != "timer":
            kind = "index"
    return ColumnFamily(
        name=schema.colFamilyName(),
        kind=kind,
        key_schema=json.loads(schema.keySchema().json()),
        value_schema=json.loads(schema.valueSchema().json()),
        key_encoding=json.loads(schema.keyStateEncoderSpec().get().json()),
        several_values=several,
        ttl=bool(variable is not None and variable.ttlEnabled()),
    )


def hashmap_problems(operators: Iterable[Operator]) -> list[str]:
    """Return why the hashmap backend cannot hold some of these operators, a line for each."""
    problems = []
    for operator in operators:
        why = None
        if operator.name.startswith(_TRANSFORM_WITH_STATE):
            why = "transformWithState needs column families"
        elif any(len(s.families) > 1 or any(f.several_values for f in s.families)
                 for s in operator.stores):  # fmt: skip
            why = "its state has several column families, or several values for a key"
        if why:
            problems.append(
                f"operator {operator.uid!r} ({operator.name}): the hashmap backend cannot hold its "
                f"state: {why}; restore with state_backend='rocksdb'"
            )
    return problems
