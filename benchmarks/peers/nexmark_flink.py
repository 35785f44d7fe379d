"""Nexmark in Flink SQL: the same queries as `nexmark.py`, over the same events.

The rows have the columns and the key of Spark's. A query with a key goes through `upsert-kafka`:
Flink writes each change of a result, where Spark writes an epoch's last one. Kafka is read up to
what is there at the start, so that the job ends; its last checkpoint commits the last rows.

Where a query has not the usual form of Flink's Nexmark:
- q4 averages as a double, as Spark does.
- q7 joins the bids with their window's highest by the window, as Spark's does, not by an interval.
- q12 counts per bidder and ten seconds of the clock, updated: a window in processing time does not
  fire when the input ends.
- q13's side input is a versioned table, read at the bid's event time: no connector of Flink's own
  looks rows up.
- q18 orders bids of one millisecond by their other columns, as Spark's does: a Top-1 and not a
  deduplication.
"""

from __future__ import annotations

from benchmarks.peers import nexmark
from benchmarks.peers.work import DELAY_S

AS_INSTANT = {
    "date_time": "happened AS date_time",
    "expires": "TO_TIMESTAMP_LTZ(expires, 3) AS expires",
}
JSON = (
    "'value.format'='json', 'value.json.timestamp-format.standard'='ISO-8601', "
    "'value.json.encode.ignore-null-fields'='true'"
)
JSON_KEY = "'key.format'='json', 'key.json.timestamp-format.standard'='ISO-8601'"
START_S = "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {}) AS start_s"
TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
SESSION = (
    "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
)


def statements(query: str, source: str, target: str) -> list[str]:
    """Return the statements of a query's job, the last of which starts it. `source` and `target`
    are the options that say where they lie."""
    events = (
        f"CREATE TABLE events ({nexmark.SCHEMA}, happened AS TO_TIMESTAMP_LTZ(date_time, 3), "
        f"WATERMARK FOR happened AS happened - INTERVAL '{DELAY_S}' SECOND) "
        f"WITH ('connector'='kafka', {source}, 'scan.bounded.mode'='latest-offset', {JSON})"
    )
    views = [
        f"CREATE TEMPORARY VIEW {kind} AS SELECT {', '.join(AS_INSTANT.get(c, c) for c in columns)}"
        f" FROM events WHERE kind = '{kind}'"
        for kind, columns in nexmark.COLUMNS.items()
    ]
    side = [SIDE[query]] if query in SIDE else []
    if query not in UPDATED:
        job = [
            f"CREATE TABLE target WITH ('connector'='kafka', {target}, {JSON}) AS {QUERIES[query]}"
        ]
    else:
        key = ", ".join(f"`{name}`" for name in nexmark.QUERIES[query].key)
        job = [
            f"CREATE TABLE target ({UPDATED[query]}, PRIMARY KEY ({key}) NOT ENFORCED) "
            f"WITH ('connector'='upsert-kafka', {JSON_KEY}, {target}, {JSON})",
            f"INSERT INTO target {QUERIES[query]}",
        ]
    return [events, *views, *side, *job]


UPDATED = {
    "q4": "category BIGINT, average DOUBLE",
    "q12": "bidder BIGINT, bid_count BIGINT, `start` TIMESTAMP_LTZ(3), `end` TIMESTAMP_LTZ(3)",
    "q17": """auction BIGINT, `day` STRING, total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT,
        rank3_bids BIGINT, min_price BIGINT, max_price BIGINT, avg_price BIGINT,
        sum_price BIGINT""",
    "q18": """auction BIGINT, bidder BIGINT, l ROW<date_time TIMESTAMP_LTZ(3), price BIGINT,
        channel STRING, url STRING, extra STRING>""",
}
"""The columns of the queries with a key: those that Flink takes from the query are nullable, and a
key's must not be."""
SIDE = {
    "q13": """CREATE TABLE side (key BIGINT, `value` AS 'side-' || CAST(key AS STRING),
        since AS TO_TIMESTAMP_LTZ(0, 3), WATERMARK FOR since AS since,
        PRIMARY KEY (key) NOT ENFORCED) WITH ('connector'='datagen', 'rows-per-second'='1000000',
        'fields.key.kind'='sequence', 'fields.key.start'='0', 'fields.key.end'='9999')"""
}
QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p
        ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, AVG(CAST(highest AS DOUBLE)) AS average FROM (
        SELECT MAX(b.price) AS highest, a.id, a.category FROM auction a JOIN bid b
        ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
        GROUP BY a.id, a.category) GROUP BY category""",
    "q5": f"""WITH counts AS (SELECT auction, COUNT(*) AS num, window_start, window_end
        FROM {HOP} GROUP BY auction, window_start, window_end)
        SELECT c.auction, c.num, {START_S.format("c.window_start")} FROM counts c JOIN (
        SELECT MAX(num) AS top, window_start, window_end FROM counts
        GROUP BY window_start, window_end) m ON c.num = m.top
        AND c.window_start = m.window_start AND c.window_end = m.window_end""",
    "q7": f"""SELECT b.auction, b.price, b.bidder, b.date_time AS `at`, b.extra,
        {START_S.format("b.window_start")} FROM (SELECT * FROM {TUMBLE.format("bid")}) b JOIN (
        SELECT MAX(price) AS top, window_start, window_end FROM {TUMBLE.format("bid")}
        GROUP BY window_start, window_end) m ON b.price = m.top
        AND b.window_start = m.window_start AND b.window_end = m.window_end""",
    "q8": f"""SELECT p.id, p.name, {START_S.format("p.window_start")} FROM (
        SELECT id, name, window_start, window_end FROM {TUMBLE.format("person")}
        GROUP BY id, name, window_start, window_end) p JOIN (
        SELECT seller, window_start, window_end FROM {TUMBLE.format("auction")}
        GROUP BY seller, window_start, window_end) a ON p.id = a.seller
        AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q11": f"""SELECT bidder, COUNT(*) AS bid_count, {START_S.format("window_start")},
        window_end AS `end` FROM {SESSION} GROUP BY bidder, window_start, window_end""",
    "q12": """SELECT bidder, COUNT(*) AS bid_count, `start`, `start` + INTERVAL '10' SECOND AS `end`
        FROM (SELECT bidder, TO_TIMESTAMP_LTZ(UNIX_TIMESTAMP() / 10 * 10, 0) AS `start` FROM bid)
        GROUP BY bidder, `start`""",
    "q13": """SELECT b.auction, b.bidder, b.price, b.date_time, s.`value` FROM (
        SELECT *, MOD(auction, 10000) AS place FROM bid) b
        JOIN side FOR SYSTEM_TIME AS OF b.date_time s ON b.place = s.key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price, CASE
        WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END
        AS bid_time_type, date_time, extra,
        CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q17": """SELECT auction, `day`, COUNT(*) AS total_bids,
        COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
        COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
        COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids, MIN(price) AS min_price,
        MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price FROM (
        SELECT *, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS `day` FROM bid)
        GROUP BY auction, `day`""",
    "q18": """SELECT auction, bidder, ROW(date_time, price, channel, url, extra) AS l FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY auction, bidder ORDER BY
        date_time DESC, price DESC, channel DESC, url DESC, extra DESC) AS place FROM bid)
        WHERE place = 1""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time,
        b.extra AS bid_extra, a.item_name, a.description, a.initial_bid, a.reserve,
        a.date_time AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel, CASE LOWER(channel)
        WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
        WHEN 'baidu' THEN '3' ELSE {nexmark.CHANNEL_ID} END AS channel_id FROM bid WHERE
        {nexmark.CHANNEL_ID} <> '' OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
        SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
}
