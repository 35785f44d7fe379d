"""Kafka's record batches (format 2) as Arrow columns, without a Python object per record.

`batches` cuts a fetched piece of a log into batches; `decode` reads the records of many of them at
once: one step in Python per record, to find where the next begins, and numpy for the fields.
"""

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.model.errors import OperationFailedError

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END = 12
_CODECS = {1: "gzip", 3: "lz4", 4: "zstd"}
_SNAPPY = 2
_XERIAL = b"\x82SNAPPY\x00"


@dataclass(frozen=True)
class LogBatch:
    """One record batch. `body` are its records, not compressed; `next_offset` is the offset after
    its last one."""

    offset: int
    next_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    control: bool
    records: int
    body: bytes


def batches(log: bytes) -> Iterator[LogBatch]:
    """Yield the whole batches of a fetched piece of a log; the last one may be cut off."""
    at = 0
    while at + _HEADER.size <= len(log):
        header = _HEADER.unpack_from(log, at)
        end = at + _LENGTH_END + header[1]
        if end > len(log):
            return
        if header[3] != 2:
            raise OperationFailedError(
                f"a record batch of format {header[3]} at offset {header[0]}: only format 2 is "
                "read; the topic was written by a client of 2017 or older"
            )
        attributes = header[5]
        yield LogBatch(
            offset=header[0],
            next_offset=header[0] + header[6] + 1,
            producer_id=header[9],
            producer_epoch=header[10],
            transactional=bool(attributes & 0x10),
            control=bool(attributes & 0x20),
            records=header[12],
            body=_decompressed(log[at + _HEADER.size : end], attributes & 7),
        )
        at = end


def _decompressed(body: bytes, codec: int) -> bytes:
    if codec == 0:
        return body
    if codec == _SNAPPY:
        return _from_snappy(body)
    with pa.CompressedInputStream(io.BytesIO(body), _CODECS[codec]) as stream:
        return bytes(stream.read())


def _from_snappy(body: bytes) -> bytes:
    """Read one block, as librdkafka writes, or Java's stream of blocks."""
    if not body.startswith(_XERIAL):
        return _snappy_block(body)
    blocks, at = [], 16
    while at < len(body):
        (size,) = struct.unpack_from(">i", body, at)
        blocks.append(_snappy_block(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


def _snappy_block(block: bytes) -> bytes:
    size, shift = 0, 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return bytes(pa.decompress(block, size, codec="snappy", asbytes=True))


@dataclass(frozen=True)
class Records:
    """Records as columns; `headers` is None if no record has one."""

    offsets: Any
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None


def decode(batches: Sequence[LogBatch]) -> Records:
    """Return the records of these batches, in order."""
    data = b"".join(batch.body for batch in batches)
    starts = _starts(data)
    counts = [batch.records for batch in batches]
    if len(starts) != sum(counts):
        raise OperationFailedError(
            f"{len(starts)} records where their batches, from offset {batches[0].offset} on, "
            f"announce {sum(counts)}"
        )
    raw = np.frombuffer(data + bytes(16), np.uint8)
    at = starts + 1  # the attributes
    _varints(raw, at)  # the timestamp
    offsets = np.repeat([batch.offset for batch in batches], counts) + _varints(raw, at)
    pieces = []
    for _ in range(2):
        length = _varints(raw, at)
        null = length < 0
        pieces.append((at.copy(), null))
        at += np.where(null, 0, length)
        pieces.append((at.copy(), null))
    keys, values = _pieces(data, [place for place, _ in pieces], (pieces[0][1], pieces[2][1]))
    return Records(offsets, keys, values, _headers(data, at, _varints(raw, at.copy())))


def _starts(data: bytes) -> Any:
    """Return where each record begins, after its length."""
    starts: list[int] = []
    append, at, end = starts.append, 0, len(data)
    while at < end:
        size = data[at]
        at += 1
        if size >= 0x80:
            size &= 0x7F
            shift = 7
            while True:
                byte = data[at]
                at += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        append(at)
        at += size >> 1
    return np.array(starts, np.int64)


def _varints(raw: Any, at: Any) -> Any:
    """Return the number at each place, and move the places behind them."""
    byte = raw[at].astype(np.int64)
    at += 1
    value = byte & 0x7F
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more):
        byte = raw[at[more]].astype(np.int64)
        at[more] += 1
        value[more] |= (byte & 0x7F) << shift
        more = more[byte >= 0x80]
        shift += 7
    return (value >> 1) ^ -(value & 1)


def _pieces(data: bytes, places: Sequence[Any], null: Sequence[Any]) -> list[pa.Array]:
    """Return keys and values: the whole data as one binary array, cut at every place, has them at
    every other position."""
    cuts = np.stack(places, axis=1).reshape(-1)
    offsets = pa.py_buffer(cuts.astype(np.int64))
    whole = pa.Array.from_buffers(
        pa.large_binary(), len(cuts) - 1, [None, offsets, pa.py_buffer(data)]
    )
    pieces = []
    for part in range(2):
        chosen = np.arange(2 * part, len(cuts), 4)
        pieces.append(whole.take(pa.array(chosen, mask=null[part])).cast(pa.binary()))
    return pieces


def _headers(data: bytes, at: Any, counts: Any) -> pa.Array | None:
    """Return the records' headers; the few records with some are read one by one."""
    if not counts.any():
        return None
    headers: list[list[dict[str, Any]]] = [[] for _ in counts]
    for row in np.flatnonzero(counts).tolist():
        place, count = _varint(data, int(at[row]))
        for _ in range(count):
            place, size = _varint(data, place)
            key, place = data[place : place + size], place + size
            place, size = _varint(data, place)
            value = data[place : place + size] if size >= 0 else None
            place += max(size, 0)
            headers[row].append({"key": key.decode(), "value": value})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.array(headers, kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the place after a number, and the number."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at, (value >> 1) ^ -(value & 1)
        shift += 7
