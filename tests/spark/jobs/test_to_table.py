"""`toTable` as Spark's own: the table named is the one that Spark means, and one that is missing is
made as Spark makes it. What cannot be written is refused before a table is made.

How: each query runs twice, the second time over one more file; Spark's reader must see every row.
Tables of Delta need their extension at the session's start, so they have a program of their own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import seamark as sm
from tests.integration.delta.test_sink_spark import delta_jars
from tests.spark.jobs.test_write_stream import add


@pytest.fixture
def rows(tmp_path: Path, spark: SparkSession) -> DataFrame:
    (tmp_path / "in").mkdir()
    add(tmp_path, range(40))
    return spark.readStream.schema("id BIGINT, page STRING").json(str(tmp_path / "in"))


@pytest.fixture
def name(tmp_path: Path, spark: SparkSession) -> Iterator[str]:
    """A database with the session in it, and a table's name."""
    database = f"db_{tmp_path.name.replace('-', '_')}"
    spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path / 'a%41 warehouse'}'")
    spark.sql(f"USE {database}")
    yield f"{database}.clicks"
    spark.sql("USE default")
    spark.sql(f"DROP DATABASE {database} CASCADE")


def run_twice(
    tmp_path: Path, spark: SparkSession, frame: DataFrame, table: str, **given: Any
) -> None:
    for ends in (40, 60):
        writer = sm.write_stream(frame).option("checkpointLocation", str(tmp_path / "store/q"))
        writer.trigger(availableNow=True).toTable(table, **given).awaitTermination()
        spark.catalog.refreshTable(table)
        found = spark.table(table).selectExpr("id", "page").collect()
        assert sorted(found) == [(i, f"p{i % 3}") for i in range(ends)]
        add(tmp_path, range(40, 60))


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_missing_table_is_made_with_partitions(
    tmp_path: Path,
    spark: SparkSession,
    name: str,
    rows: DataFrame,
    format_: str,
) -> None:
    given = {"header": True, "sep": ";", "nullValue": "NULL"} if format_ == "csv" else {}
    run_twice(tmp_path, spark, rows, name, format=format_, partitionBy="Page", **given)
    table = spark.catalog.listColumns(name)
    assert [(c.name, c.isPartition) for c in table] == [("id", False), ("page", True)]
    assert (tmp_path / "a%41 warehouse/clicks/page=p0").is_dir()
    spark.sql(f"INSERT INTO {name} VALUES (100, 'p1')")
    assert spark.table(name).where("page = 'p1'").count() == 21
    # Its partitions need not be named again, and others are refused.
    (tmp_path / "in/0.json").write_text('{"id": 200, "page": "p9"}')
    location = str(tmp_path / "store/other")
    with pytest.raises(sm.ConfigurationError, match=r"partitioned by \['page'\]"):
        writer = sm.write_stream(rows).option("checkpointLocation", location)
        writer.toTable(name, partitionBy=["id"])
    writer = sm.write_stream(rows).option("checkpointLocation", location)
    writer.trigger(availableNow=True).toTable(name).awaitTermination()
    spark.catalog.refreshTable(name)
    assert spark.table(name).where("page = 'p9'").count() == 1


def test_a_missing_table_has_the_columns_own_names(
    tmp_path: Path, spark: SparkSession, name: str, rows: DataFrame
) -> None:
    """No ``${…}`` is a variable, as none is where Spark's own writer makes it."""
    odd = rows.toDF("id", "${x}")
    writer = sm.write_stream(odd).option("checkpointLocation", str(tmp_path / "store/q"))
    writer.trigger(availableNow=True).toTable(name).awaitTermination()
    found = spark.table(name)
    assert found.columns == odd.columns
    assert sorted(found.collect())[:2] == [(0, "p0"), (1, "p1")]


@pytest.mark.parametrize("spelt", ["clicks", "{}", "spark_catalog.{}", "`{}`.`clicks`", "CLICKS"])
def test_a_name_is_sparks(
    tmp_path: Path,
    spark: SparkSession,
    name: str,
    rows: DataFrame,
    spelt: str,
) -> None:
    database = name.partition(".")[0]
    table = spelt.format(database if "`" in spelt else name)
    run_twice(tmp_path, spark, rows, table, format="json")
    assert spark.table(name).count() == 60


def test_a_table_of_its_own_place_and_an_existing_one(
    tmp_path: Path,
    spark: SparkSession,
    name: str,
    rows: DataFrame,
) -> None:
    place = tmp_path / "it's here"
    run_twice(tmp_path, spark, rows, name, path=str(place))
    spark.sql(f"DROP TABLE {name}")
    assert len(list(place.glob("*.parquet"))) > 0  # an external one: its files stay
    (tmp_path / "in/40.json").unlink()
    spark.sql(
        f"CREATE TABLE {name} (page STRING, id BIGINT) USING csv OPTIONS (sep '|', header 'true')"
    )
    remedy = "ALTER TABLE clicks SET SERDEPROPERTIES (multiline 'true')"
    with pytest.raises(sm.ConfigurationError, match=re.escape(remedy)):
        sm.write_stream(rows).option("checkpointLocation", str(tmp_path / "no")).toTable("clicks")
    spark.sql(remedy)
    with pytest.raises(sm.ConfigurationError, match="by place: the table has the columns page, id"):
        sm.write_stream(rows).option("checkpointLocation", str(tmp_path / "no")).toTable("clicks")
    query = sm.write_stream(rows.select("PAGE", "id"))
    query = query.option("checkpointLocation", str(tmp_path / "store/csv"))
    query.trigger(availableNow=True).toTable("clicks").awaitTermination()
    spark.catalog.refreshTable(name)
    assert sorted(r.id for r in spark.table(name).collect()) == list(range(40))


def test_a_table_of_csv_has_every_text_as_it_is(
    tmp_path: Path, spark: SparkSession, name: str, rows: DataFrame
) -> None:
    texts = ['say "hi"', "x,\\", "two\nlines", "\\", '"', 'a\\"b', " blanks ", "", "p,q", "é"]
    (tmp_path / "in/0.json").write_text(
        "\n".join(json.dumps({"id": i, "page": text}) for i, text in enumerate(texts))
    )
    writer = sm.write_stream(rows).option("checkpointLocation", str(tmp_path / "store/q"))
    query = writer.trigger(availableNow=True).toTable(name, format="csv", nullValue="NULL")
    query.awaitTermination()
    spark.catalog.refreshTable(name)
    assert sorted(spark.table(name).collect()) == list(enumerate(texts))


@pytest.mark.parametrize(
    ("columns", "made", "said"),
    [
        ("ID BIGINT, PAGE STRING", ["id", "page"], "the table has `ID` bigint"),
        ("ID STRING", ["id"], "the table has `ID` string, and the DataFrame `id` bigint"),
        ("o STRUCT<Id: BIGINT>", ["named_struct('id', id) AS o"], "`o` struct<Id:bigint>"),
    ],
)
def test_names_of_json_have_the_tables_case(
    tmp_path: Path,
    spark: SparkSession,
    name: str,
    rows: DataFrame,
    columns: str,
    made: list[str],
    said: str,
) -> None:
    """Spark's reader of JSON would find null in each row."""
    spark.sql(f"CREATE TABLE {name} ({columns}) USING json")
    writer = sm.write_stream(rows.selectExpr(*made)).trigger(availableNow=True)
    with pytest.raises(sm.ConfigurationError, match=re.escape(said)):
        writer.option("checkpointLocation", str(tmp_path / "no")).toTable(name).awaitTermination()
    writer = sm.write_stream(rows.selectExpr(*made).to(spark.table(name).schema))
    writer.option("checkpointLocation", str(tmp_path / "store/q")).trigger(availableNow=True)
    writer.toTable(name).awaitTermination()
    spark.catalog.refreshTable(name)
    ids = spark.table(name).selectExpr("o.id" if "STRUCT" in columns else "id").collect()
    assert sorted(int(r.id) for r in ids) == list(range(40))


def test_what_cannot_be_written_is_refused_and_nothing_is_made(
    tmp_path: Path,
    spark: SparkSession,
    name: str,
    rows: DataFrame,
) -> None:
    spark.range(1).createOrReplaceTempView("a_view")
    spark.sql("CREATE VIEW kept AS SELECT 1 AS id")
    spark.sql("CREATE TABLE o (id BIGINT, page STRING) USING orc")
    spark.sql("CREATE TABLE p (id BIGINT, page STRING) USING json PARTITIONED BY (page)")
    spark.sql("CREATE TABLE j (id BIGINT, page STRING) USING json")
    spark.sql(
        "CREATE TABLE b (id BIGINT, page STRING) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS"
    )
    spark.sql("CREATE TABLE c (id BIGINT, page STRING) USING csv OPTIONS (escape '\"')")
    jdbc = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
    spark.conf.set("spark.sql.catalog.derby", jdbc)
    spark.conf.set("spark.sql.catalog.derby.url", "jdbc:derby:memory:to_table;create=true")
    spark.conf.set("spark.sql.catalog.derby.driver", "org.apache.derby.iapi.jdbc.AutoloadedDriver")
    before = {table.name for table in spark.catalog.listTables()}
    counts = rows.groupBy("page").count()
    for table, frame, given, said in [
        ("a_view", rows, {}, "is a view"),
        ("kept", rows, {}, "is a view"),
        ("o", rows, {}, "of 'orc'"),
        ("p", rows, {}, "partitions in the catalog"),
        ("b", rows, {}, "in buckets"),
        ("c", rows, {}, "SERDEPROPERTIES (multiline 'true')"),
        ("j", rows, {"format": "csv"}, "format is 'csv', and the table is of 'json'"),
        ("new", rows, {"format": "orc"}, "of 'orc'"),
        ("new", rows, {"partitionBy": "nowhere"}, "partition column 'nowhere' is not in"),
        ("new", rows, {"compresion": "gzip"}, "did you mean 'compression'"),
        ("new", rows, {"partitionBy": ["id", "page"]}, "takes every column"),
        ("new", counts, {"outputMode": "complete"}, "SK006"),
        ("nowhere.new", rows, {}, "nowhere"),
        ("elsewhere.nowhere.new", rows, {}, "catalog 'elsewhere'"),
        ("derby.new", rows, {}, "'derby', and Seamark writes to tables of spark_catalog; give"),
        ("new; DROP TABLE j", rows, {}, "toTable"),
        (" ", rows, {}, "tableName is ' '"),
    ]:
        writer = sm.write_stream(frame).option("checkpointLocation", str(tmp_path / "store/no"))
        with pytest.raises(sm.ConfigurationError, match=re.escape(said)) as told:
            writer.toTable(table, **given)
        assert "\n" not in str(told.value)
        assert {table.name for table in spark.catalog.listTables()} == before
    assert not (tmp_path / "store").exists()


DELTA = """
import json, sys
import pyspark.sql
import seamark as sm
T, jars = sys.argv[1:]
spark = (pyspark.sql.SparkSession.builder.master("local[2]").config("spark.jars", jars)
    .config("spark.sql.warehouse.dir", f"{T}/warehouse").config("spark.ui.enabled", "false")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate())
df = spark.readStream.schema("id BIGINT, day DATE, name STRING").json(f"{T}/in")
def run(name, table, **given):
    writer = sm.write_stream(df).option("checkpointLocation", f"{T}/ck/{name}")
    writer.trigger(availableNow=True).toTable(table, **given).awaitTermination()
def add(i):
    with open(f"{T}/in/{i}.json", "w") as file:
        json.dump({"id": i, "day": "2026-01-0%d" % (i + 1), "name": "n"}, file)
found = {}
add(0)
run("t", "t", format="delta", partitionBy="day")
add(1)
run("t", "t", format="delta", partitionBy="day")
columns = "id BIGINT, day DATE, name STRING"
spark.sql(f"CREATE TABLE made ({columns}) USING delta PARTITIONED BY (name, day)")
run("made", "default.made")
spark.sql("DELETE FROM made WHERE id = 0")
for table in ("t", "made"):
    detail = spark.sql(f"DESCRIBE DETAIL {table}").first()
    ids = sorted(row.id for row in spark.table(table).collect())
    found[table] = [detail.partitionColumns, ids]
try:
    run("wrong", "t", partitionBy="name")
except sm.ConfigurationError as error:
    found["wrong"] = str(error)
with open(f"{T}/found.json", "w") as file:
    json.dump(found, file)
"""


def test_tables_of_delta(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    jars = ",".join(map(str, delta_jars()))
    program = tmp_path / "app.py"
    program.write_text(DELTA)
    ran = subprocess.run(
        [sys.executable, str(program), str(tmp_path), jars],
        capture_output=True, text=True, check=False, timeout=400, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("t") == [["day"], [0, 1]]
    assert found.pop("made") == [["name", "day"], [1]]
    assert "partitionBy is ['name'], and the table is partitioned by ['day']" in found["wrong"]
