"""An epoch's changes as one for each key, however many texts it has."""

from __future__ import annotations

import pyarrow as pa

from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.internal.table_merge import reduced


def test_the_last_row_of_each_key_stays() -> None:
    rows = pa.table(
        {
            "id": pa.chunked_array([[1, 2, None, 3], [2, None, 1, 4]]),
            "op": pa.chunked_array([["insert"] * 4, ["delete", "update", "insert", "delete"]]),
            "text": pa.chunked_array([["a", "b", "c", "d"], ["e", "f", "g", "h"]]),
        }
    )
    assert reduced(rows, ["id"], "op").to_pylist() == [
        {"id": 3, "text": "d", STAGED_OP: "changed"},
        {"id": 2, "text": "e", STAGED_OP: "delete"},
        {"id": None, "text": "f", STAGED_OP: "changed"},
        {"id": 1, "text": "g", STAGED_OP: "changed"},
        {"id": 4, "text": "h", STAGED_OP: "delete"},
    ]


def test_more_text_than_one_array_of_arrow_holds() -> None:
    text = pa.array(["x" * 2**27, "y"])  # one buffer, in each of 17 chunks
    rows = pa.table(
        {
            "id": pa.chunked_array([[1, number] for number in range(100, 117)]),
            "text": pa.chunked_array([text] * 17),
        }
    )
    found = reduced(rows, ["id"], "")
    assert found.num_rows == 18
    assert sum(len(one) for one in found["text"].to_pylist()) == 2**27 + 17
