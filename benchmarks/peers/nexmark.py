"""Nexmark: events from a fixed seed, the queries as Spark streams them, and the judge.

Of 50 events the first is a person, the next 3 are auctions, the others bids; 10,000 events are a
second of event time, and half of the bids are for one auction in a hundred, three quarters by one
person in a hundred, as in github.com/nexmark/nexmark. Events are JSON, round robin over the
partitions. At the end each partition has one event of each kind an hour later, which closes the
windows.

`QUERIES` has q0 to q5, q7, q8, q11 to q14, q17, q18 and q20 to q22; `nexmark_flink.py` has Flink's
form of each. q5 finds an auction with the
most bids by a second aggregation instead of a join; q12's windows, in processing time, differ from
run to run: judged are its sums. q17 and q18 are in update mode: of each key the last row counts.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.work import DELAY_S, FIRST_MS, PARTITIONS, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEED = 20
EVENTS_A_SECOND = 10_000
SENTINEL_MS = FIRST_MS + 3_600_000
FIRST_ID = 1000
IN_FLIGHT, ACTIVE, LEAD, HOT = 100, 1000, 10, 100
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Seattle"]
NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Walter"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
SCHEMA = """
kind STRING, date_time BIGINT, id BIGINT, name STRING, email STRING, credit_card STRING,
city STRING, state STRING, item_name STRING, description STRING, initial_bid BIGINT,
reserve BIGINT, expires BIGINT, seller BIGINT, category BIGINT, auction BIGINT, bidder BIGINT,
price BIGINT, channel STRING, url STRING, extra STRING
"""
COLUMNS = {
    "person": ["id", "name", "email", "credit_card", "city", "state", "date_time", "extra"],
    "auction": ["id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires",
                "seller", "category", "extra"],
    "bid": ["auction", "bidder", "price", "channel", "url", "date_time", "extra"],
}  # fmt: skip
"""The columns of each kind of event."""
INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?Z?")


def events(count: int, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield the events, the same ones for a seed."""
    chance = random.Random(seed)
    for number in range(count):
        turn, place = divmod(number, 50)
        at = FIRST_MS + number * 1000 // EVENTS_A_SECOND
        persons, auctions = turn + 1, 3 * turn + min(place, 3)
        if place == 0:
            yield _person(chance, FIRST_ID + turn, at)
        elif place < 4:
            yield _auction(chance, FIRST_ID + auctions - 1, persons, at)
        else:
            yield _bid(chance, auctions, persons, at)


def records(count: int, seed: int = SEED) -> Iterator[Record]:
    """Yield the events as records of Kafka, and the ones that close the windows."""
    for number, event in enumerate(events(count, seed)):
        yield number % PARTITIONS, b"", json.dumps(event).encode()
    chance = random.Random(seed)
    for partition in range(PARTITIONS):
        last = -1 - partition
        person = _person(chance, last, SENTINEL_MS)
        auction = _auction(chance, last, 1, SENTINEL_MS) | {"seller": last}
        bid = _bid(chance, 1, 1, SENTINEL_MS) | {"auction": last, "bidder": last}
        for event in (person, auction, bid):
            yield partition, b"", json.dumps(event).encode()


def _person(chance: random.Random, number: int, at: int) -> dict[str, Any]:
    event = {
        "kind": "person", "id": number, "name": f"{chance.choice(NAMES)} {chance.choice(NAMES)}",
        "email": f"{_text(chance, 7)}@{_text(chance, 5)}.com",
        "credit_card": " ".join(f"{chance.randrange(10_000):04}" for _ in range(4)),
        "city": chance.choice(CITIES), "state": chance.choice(STATES), "date_time": at,
    }  # fmt: skip
    return event | {"extra": _text(chance, 110)}


def _auction(chance: random.Random, number: int, persons: int, at: int) -> dict[str, Any]:
    hot = chance.randrange(4) > 0
    seller = (persons - 1) // HOT * HOT if hot else _active_person(chance, persons)
    first = _price(chance)
    # On average an auction is open until IN_FLIGHT more have begun.
    open_ms = 1 + chance.randrange(2 * IN_FLIGHT * 50 // 3 * 1000 // EVENTS_A_SECOND)
    return {
        "kind": "auction", "id": number, "item_name": _text(chance, 20),
        "description": _text(chance, 100), "initial_bid": first,
        "reserve": first + _price(chance), "date_time": at, "expires": at + open_ms,
        "seller": FIRST_ID + seller, "category": 10 + chance.randrange(5),
        "extra": _text(chance, 330),
    }  # fmt: skip


def _bid(chance: random.Random, auctions: int, persons: int, at: int) -> dict[str, Any]:
    if chance.randrange(2):
        auction = (auctions - 1) // HOT * HOT
    else:
        first = max(auctions - 1 - IN_FLIGHT, 0)
        auction = first + chance.randrange(auctions - first + LEAD)
    if chance.randrange(4):
        bidder = (persons - 1) // HOT * HOT + 1
    else:
        bidder = _active_person(chance, persons)
    channel, path = chance.choice(HOT_CHANNELS), "hot/item/page"
    query = ""
    if chance.randrange(2):
        number = chance.randrange(10_000)
        channel, path = f"channel-{number}", f"c{number}/item{number % 7}/page{number % 11}"
        query = f"&channel_id={number}" if number % 10 else ""
    return {
        "kind": "bid", "auction": FIRST_ID + auction, "bidder": FIRST_ID + bidder,
        "price": _price(chance), "channel": channel,
        "url": f"https://www.nexmark.com/{path}/item.htm?query=1{query}", "date_time": at,
        "extra": _text(chance, 15),
    }  # fmt: skip


def _active_person(chance: random.Random, persons: int) -> int:
    active = min(persons, ACTIVE)
    return persons - active + chance.randrange(active + LEAD)


def _price(chance: random.Random) -> int:
    return round(100 * 10 ** (6 * chance.random()))


def _text(chance: random.Random, length: int) -> str:
    return f"{chance.getrandbits(4 * length):0{length}x}"


Views = Callable[[str], "DataFrame"]


@dataclass(frozen=True)
class Query:
    """A query over the views `person`, `auction` and `bid`. `key` has the columns of its key, if
    later rows replace earlier ones; `window`, whether rows of the last windows do not come."""

    build: Callable[[Views], DataFrame]
    key: tuple[str, ...] = ()
    window: bool = False
    mode: str = "append"

    def over(self, rows: DataFrame) -> tuple[DataFrame, str]:
        """Return key and value over the rows of Kafka, streamed or not, and the output mode."""
        from pyspark.sql import functions as F

        event = F.from_json(rows["value"].cast("string"), SCHEMA).alias("e")
        all_events = rows.select(event).select("e.*")
        for name in ("date_time", "expires"):
            all_events = all_events.withColumn(name, F.timestamp_millis(name))

        def view(kind: str) -> DataFrame:
            chosen = all_events.where(F.col("kind") == kind).select(*COLUMNS[kind])
            return chosen.withWatermark("date_time", f"{DELAY_S} seconds")

        found = self.build(view)
        key = F.to_json(F.struct(*self.key)).cast("binary") if self.key else F.lit(None)
        named = found.select(
            key.cast("binary").alias("key"), F.to_json(F.struct("*")).alias("value")
        )
        return named, self.mode


def judge(query: str, committed: list[tuple[bytes | None, bytes | None]], batch: Path) -> str:
    """Return "equal", or how the committed rows differ from those of the batch run."""
    expected = [json.loads(line) for line in batch.open()]
    wanted = Counter(results(query, ((key, value) for key, value in expected)))
    got = Counter(results(query, ((k and k.decode(), v and v.decode()) for k, v in committed)))
    if wanted == got:
        return "equal" if wanted else "both empty"
    missing, extra = wanted - got, got - wanted
    example = next(iter([*missing, *extra]))
    return f"{missing.total()} of {wanted.total()} missing, {extra.total()} extra, e.g. {example}"


def results(query: str, rows: Iterator[tuple[Any, Any]]) -> list[Any]:
    """Return the rows that count; a row of a key without a value deletes it. Windows are left out
    here and not in the query: Spark would move such a filter below the merging of sessions."""
    form = QUERIES[query]
    if form.key:
        values = [value for value in dict(rows).values() if value is not None]
    else:
        values = [value for _, value in rows]
    if query == "q12":
        sums: Counter[int] = Counter()
        for row in map(json.loads, values):
            sums[row["bidder"]] += row["bid_count"]
        return [f"{bidder}: {count}" for bidder, count in sums.items()]
    if form.window:
        last = SENTINEL_MS // 1000 - 60
        values = [v for v in values if json.loads(v)["start_s"] < last]
    return [json.loads(v, parse_float=Decimal, object_hook=one_form) for v in values]


def one_form(fields: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a row, or a struct in it, in one form. The engines differ in the zeros that end a
    decimal (equal as Decimal) or a moment's milliseconds, in its "T" and "Z", and in the order
    of columns."""
    return tuple(sorted((n, instant(v) if isinstance(v, str) else v) for n, v in fields.items()))


def instant(text: str) -> str:
    """Return a moment as "2023-11-14 22:13:20.1"; other text as it is."""
    if found := INSTANT.fullmatch(text):
        day, time, fraction = found.groups(default="")
        return f"{day} {time}{fraction.rstrip('0').rstrip('.')}"
    return text


def _sql(text: str, mode: str = "append", key: tuple[str, ...] = (), window: bool = False) -> Query:
    """Return a query in SQL; the views it names are put in the place of {person} and so on."""

    def build(view: Views) -> DataFrame:
        used = {name: view(name) for name in ("person", "auction", "bid") if f"{{{name}}}" in text}
        spark = next(iter(used.values())).sparkSession
        return spark.sql(text, **used)

    return Query(build, key, window, mode)


def _q13(view: Views) -> DataFrame:
    bids = view("bid")
    side = bids.sparkSession.range(10_000).selectExpr("id AS key", "concat('side-', id) AS value")
    joined = bids.join(side, bids["auction"] % 10_000 == side["key"])
    return joined.select("auction", "bidder", "price", "date_time", "value")


CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
QUERIES = {
    "q0": _sql("SELECT auction, bidder, price, date_time, extra FROM {bid}"),
    "q1": _sql("SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM {bid}"),
    "q2": _sql("SELECT auction, price FROM {bid} WHERE auction % 123 = 0"),
    "q3": _sql("""SELECT p.name, p.city, p.state, a.id FROM {auction} a JOIN {person} p
        ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"""),
    "q4": _sql("""SELECT category, avg(final) AS average FROM (
        SELECT max(b.price) AS final, a.id, a.category FROM {auction} a JOIN {bid} b
        ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
        GROUP BY a.id, a.category) GROUP BY category""", "update", ("category",)),
    "q5": _sql("""SELECT most.auction, most.num, start_s FROM (
        SELECT unix_seconds(w.start) AS start_s, max(num) AS top,
        collect_list(struct(num, auction)) AS counts FROM (
        SELECT window(date_time, '10 seconds', '2 seconds') AS w, auction, count(*) AS num
        FROM {bid} GROUP BY 1, 2) GROUP BY w)
        LATERAL VIEW explode(filter(counts, c -> c.num = top)) AS most""", window=True),
    "q7": _sql("""SELECT b.auction, b.price, b.bidder, b.at, b.extra,
        unix_seconds(b.w.start) AS start_s
        FROM (SELECT auction, price, bidder, extra, cast(date_time AS STRING) AS at,
        window(date_time, '10 seconds') AS w FROM {bid}) b JOIN (
        SELECT window(date_time, '10 seconds') AS w, max(price) AS top FROM {bid} GROUP BY 1) m
        ON b.w = m.w AND b.price = m.top""", window=True),
    "q8": _sql("""SELECT p.id, p.name, unix_seconds(p.w.start) AS start_s FROM (
        SELECT window(date_time, '10 seconds') AS w, id, name FROM {person} GROUP BY 1, 2, 3) p
        JOIN (SELECT window(date_time, '10 seconds') AS w, seller FROM {auction} GROUP BY 1, 2) a
        ON p.id = a.seller AND p.w = a.w""", window=True),
    "q11": _sql("""SELECT bidder, count(*) AS bid_count,
        unix_seconds(session_window.start) AS start_s, session_window.end AS end
        FROM {bid} GROUP BY bidder, session_window(date_time, '10 seconds')""", window=True),
    "q12": _sql("""SELECT bidder, count(*) AS bid_count, w.start AS start, w.end AS end FROM (
        SELECT bidder, window(current_timestamp(), '10 seconds') AS w FROM {bid})
        GROUP BY bidder, w""", "update", ("bidder", "start")),
    "q13": Query(_q13),
    "q14": _sql("""SELECT auction, bidder, 0.908 * price AS price, CASE
        WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END
        AS bid_time_type, date_time, extra,
        length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM {bid} WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000"""),
    "q17": _sql("""SELECT auction, date_format(date_time, 'yyyy-MM-dd') AS day,
        count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids,
        count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
        count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, min(price) AS min_price,
        max(price) AS max_price, cast(avg(price) AS BIGINT) AS avg_price, sum(price) AS sum_price
        FROM {bid} GROUP BY 1, 2""", "update", ("auction", "day")),
    "q18": _sql("""SELECT auction, bidder, max(struct(date_time, price, channel, url, extra)) AS l
        FROM {bid} GROUP BY auction, bidder""", "update", ("auction", "bidder")),
    "q20": _sql("""SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time,
        b.extra AS bid_extra, a.item_name, a.description, a.initial_bid, a.reserve,
        a.date_time AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM {bid} b JOIN {auction} a ON b.auction = a.id WHERE a.category = 10"""),
    "q21": _sql(f"""SELECT auction, bidder, price, channel, CASE lower(channel)
        WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
        WHEN 'baidu' THEN '3' ELSE {CHANNEL_ID} END AS channel_id FROM {{bid}} WHERE
        {CHANNEL_ID} != '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"""),
    "q22": _sql("""SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
        split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM {bid}"""),
}  # fmt: skip
