"""No pair of a Spark type and a column's type alters a value: the pair is refused at the start, or
the server refuses the row.

How: each odd value, by itself, into a column of each type that the start lets through.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pytest

from seamark.model.errors import WriteRefusedError
from seamark.model.schema import Column
from seamark.sinks.mysql import connection as client
from seamark.sinks.mysql.loading import Loader
from seamark.sinks.mysql.table import NARROW, misfit, read_columns
from seamark.verify.conformance.odd_values import ODD_VALUES
from tests.integration.mysql.conftest import fresh_database
from tests.servers.mariadb import MariaDBServer

COLUMNS = (
    "TINYINT", "MEDIUMINT", "INT", "BIGINT", "BIGINT UNSIGNED", "DECIMAL(38,10)", "DECIMAL(10,2)",
    "FLOAT", "DOUBLE", "FLOAT(8,2)", "DOUBLE(10,2)", "CHAR(30)", "VARCHAR(20)",
    "TEXT CHARACTER SET latin1", "LONGTEXT", "BINARY(30)", "VARBINARY(20)", "LONGBLOB", "DATE",
    "DATETIME", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(6)", "TIME", "TIME(6)", "YEAR", "BIT(1)",
    "BIT(64)", "ENUM('x','y')", "SET('x','y')", "POINT",
)  # fmt: skip
MORE: Mapping[str, tuple[str, ...]] = {
    "int": ("1", "70", "2024", "16777217", "20240101"),
    "bigint": ("1", "70", "2024", "9007199254740993", "20240101101010"),
    "float": ("1.5", "0.005", "20240100", "1e20"),
    "double": ("1.5", "0.005", "20240101", "16777217", "123456.789"),
    "decimal(38,0)": ("9007199254740993", "20240101"),
    "decimal(10,2)": ("1.50", "2.00", "-0.01", "20240101.00"),
    "string": ("1.5", "0.1234567890123456789", "70", "x", "x ", "X", "1", "y,x", "2024-1-1",
               "20240101", "2024-01-01 10:00:00.1234567", "10:00:00.5"),
    "binary": ("x ", "1.5", "2024-01-01"),
}  # fmt: skip


def values(type_: str) -> dict[str, Any]:
    """Return the type's values by their text."""
    make = {"int": int, "big": int, "flo": float, "dou": float, "dec": Decimal}
    more = {
        text: text.encode() if type_ == "binary" else make.get(type_[:3], str)(text)
        for text in MORE.get(type_, ())
    }
    odd = ODD_VALUES[type_][1] if type_ in ODD_VALUES else {}
    return {text: value for text, value in {**odd, **more}.items() if len(text) < 99}


def arrived(kind: pa.DataType, text: str, sent: Any, found: Any) -> bool:
    if pa.types.is_floating(kind):
        if found is None:
            return bool(sent != sent)  # NaN is null
        with contextlib.suppress(ValueError):
            return bool(pa.scalar(float(found), kind).as_py() == pa.scalar(sent, kind).as_py())
        return False
    raw = found if isinstance(found, bytes) else str(found).encode()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return raw == (sent if isinstance(sent, bytes) else sent.encode())
    if pa.types.is_temporal(kind):
        return raw.decode().split(".")[0].removesuffix(" 00:00:00") == (
            text.split(".")[0].removesuffix(" 00:00:00")
        ) and Decimal("0." + raw.decode().partition(".")[2]) == Decimal(
            "0." + text.partition(".")[2]
        )
    with contextlib.suppress(InvalidOperation):
        return Decimal(raw.decode()) == Decimal(int(sent) if isinstance(sent, bool) else sent)
    return False


@pytest.mark.parametrize("infile", [1, 0], ids=["load-data", "insert"])
@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
def test_no_pair_of_types_alters_a_value(
    request: pytest.FixtureRequest, kind: str, infile: int
) -> None:
    server: MariaDBServer = request.getfixturevalue(kind)
    server.execute(f"SET GLOBAL local_infile={infile}")
    arrow = {
        type_: kind
        for type_, (kind, _) in ODD_VALUES.items()
        if not pa.types.is_nested(kind) and type_ != "timestamp_ntz"
    } | {"decimal(10,2)": pa.decimal128(10, 2)}
    altered, taken = list[str](), set[str]()
    with fresh_database(server) as database:
        address = client.parse_url(server.url(database=database), "test")
        with contextlib.closing(
            client.connect(address, lock_timeout_s=10, local_infile=True)
        ) as connection:
            for number, definition in enumerate(COLUMNS):
                name = f"t{number}"
                client.execute(connection, f"CREATE TABLE {name} (v {definition} NULL)")
                (column,) = read_columns(connection, database, name)
                wanted = {"FLOAT": "v + 0e0", "FLOAT(8,2)": "v + 0e0"}.get(definition, "v")
                if definition.startswith(("DATE", "TIME", "YEAR")):
                    wanted = "CAST(v AS CHAR)"
                narrow = {"v": column} if column.data_type in NARROW else {}
                texts = [] if column.takes_bytes else ["v"]
                loader = Loader(connection, name, ["v"], texts, narrow)
                for type_ in arrow:
                    if misfit(Column("v", type_), column):
                        continue
                    for text, sent in values(type_).items():
                        client.execute(connection, "START TRANSACTION")
                        row = pa.record_batch({"v": pa.array([sent], arrow[type_])})
                        with contextlib.suppress(WriteRefusedError):
                            if not loader.refusal(row):
                                ((found,),) = client.rows(
                                    connection, f"SELECT {wanted} FROM {name}"
                                )
                                taken.add(definition)
                                if not arrived(arrow[type_], text, sent, found):
                                    altered.append(f"{type_} {text} as {definition}: {found!r:.40}")
                        client.execute(connection, "ROLLBACK")
    server.execute("SET GLOBAL local_infile=1")
    assert altered == []
    assert taken >= {"INT", "DECIMAL(10,2)", "DOUBLE", "VARCHAR(20)", "LONGBLOB", "DATETIME(6)"}
    assert taken >= {"CHAR(30)", "ENUM('x','y')"}
