"""Makes records of the commit log from rows of commit_log, the reverse of `log_batches`.

Each row is checked: its record must have the row's storeSize and recordCrc32, and lie inside one file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from store_format.big_endian import Bytes
from store_format.errors import StoreError
from store_format.layout import BORNHOST_V6_FLAG, IPV6_HOST, RECORD_PREFIX, STOREHOSTADDRESS_V6_FLAG
from store_format.log.append import MessageColumns, encode, encode_at, hosts_bytes
from store_format.record.crc32 import crc32_of_ranges
from store_format.record.record_columns import Slices

Longs = NDArray[np.int64]
# offset of a log file -> writable bytes of that file, and the offset in the log of their first byte
OpenFile = Callable[[int], tuple[Bytes, int]]

_MAX_TEXT = 32767  # bytes; of a topic, in a V2 record
_PHYSIC_OFFSET = 28  # position of physicOffset in a record
assert RECORD_PREFIX.fields["physicOffset"][1] == _PHYSIC_OFFSET  # type: ignore[index]
# the columns of commit_log from which a record is made, and the columns with which the record is compared
RECORD_COLUMNS = (
    "bodyCrc",
    "queueId",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "storeTimestamp",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "queueOffset",
    "physicOffset",
    "bornHost",
    "bornPort",
    "storeHost",
    "storePort",
    "body",
    "topic",
    "propertiesRaw",
    "storeSize",
    "recordCrc32",
)


def _bytes_of(column: pa.Array) -> tuple[Longs, Bytes]:
    """The n + 1 offsets and the read-only bytes of a binary or text column."""
    _, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type) else np.int32
    at = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = int(at[0]), int(at[-1])
    return at - first, np.frombuffer(data if last > first else b"", np.uint8)[first:last]


def _hosts(addresses: pa.Array, ports: pa.Array) -> tuple[Longs, Bytes]:
    """The length of each host, and a buffer with twenty bytes for each host; it is fast for few distinct addresses."""
    known = addresses.dictionary_encode()
    packed = [ipaddress.ip_address(text).packed for text in known.dictionary.to_pylist()]
    codes = known.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return hosts_bytes(packed, codes, ports.to_numpy().astype(np.int64))


def _messages(rows: pa.RecordBatch) -> MessageColumns:
    """The MessageColumns of rows; the bodies, nearly all of the bytes, are not copied."""
    count = len(rows)
    buffers: list[Bytes] = []
    base = 0

    def placed(starts: Longs, lengths: Longs, data: Bytes) -> Slices:
        nonlocal base
        found = Slices(starts + base, lengths)
        buffers.append(data)
        base += len(data)
        return found

    def hosts(address: str, port: str) -> Slices:
        lengths, data = _hosts(rows.column(address), rows.column(port))
        return placed(np.arange(count) * IPV6_HOST, lengths, data)

    def raw(name: str) -> Slices:
        at, data = _bytes_of(rows.column(name))
        return placed(at[:-1], np.diff(at), data)

    born_host, store_host = hosts("bornHost", "bornPort"), hosts("storeHost", "storePort")
    topic, properties = raw("topic"), raw("propertiesRaw")
    body_at, bodies = _bytes_of(rows.column("body"))
    none = np.full(count, -1, np.int64)
    return MessageColumns(
        buffer=np.concatenate(buffers),
        bodies=bodies,
        queue=none,
        batch=none,
        body_crc=_long(rows, "bodyCrc"),
        queue_id=_long(rows, "queueId"),
        flag=_long(rows, "flag"),
        sys_flag=_long(rows, "sysFlag"),
        born_timestamp=_long(rows, "bornTimestamp"),
        store_timestamp=_long(rows, "storeTimestamp"),
        reconsume_times=_long(rows, "reconsumeTimes"),
        prepared_transaction_offset=_long(rows, "preparedTransactionOffset"),
        born_host=born_host,
        store_host=store_host,
        body=Slices(body_at[:-1], np.diff(body_at)),
        topic=topic,
        properties=properties,
    )


def _long(rows: pa.RecordBatch, name: str) -> Longs:
    values: Longs = rows.column(name).to_numpy().astype(np.int64)
    return values


def _check(rows: pa.RecordBatch, messages: MessageColumns, offsets: Longs, file_size: int) -> None:
    """Raise for a row from which no record can be made, before a byte is written."""
    sizes = _long(rows, "storeSize")
    faults = {
        "storeSize that goes with the row": messages.record_sizes() != sizes,
        "hosts as sysFlag says": ((messages.born_host.lengths == IPV6_HOST) != (messages.sys_flag & BORNHOST_V6_FLAG != 0))
        | ((messages.store_host.lengths == IPV6_HOST) != (messages.sys_flag & STOREHOSTADDRESS_V6_FLAG != 0)),
        f"a topic of 1 to {_MAX_TEXT} bytes": (messages.topic.lengths < 1) | (messages.topic.lengths > _MAX_TEXT),
        f"{_MAX_TEXT} bytes of properties at most": messages.properties.lengths > _MAX_TEXT,
        f"a record inside one file of {file_size} bytes": (offsets < 0) | (offsets % file_size + sizes > file_size),
    }
    for expected, is_bad in faults.items():
        if is_bad.any():
            raise _bad_row(rows, int(is_bad.argmax()), expected)


def _bad_row(rows: pa.RecordBatch, row: int, expected: str) -> StoreError:
    names = ("topic", "queueId", "queueOffset", "physicOffset", "storeSize", "sysFlag")
    found = ", ".join(f"{name} {rows.column(name)[row].as_py()!r}" for name in names)
    return StoreError("commit_log", expected, f"a row with {found}", hint="import the store again")


def write_records(rows: pa.RecordBatch, file_size: int, open_file: OpenFile, at: str = "physicOffset") -> int:
    """Write the records of rows of commit_log, each at its physicOffset; returns the bytes written.

    Args:
        rows: rows with RECORD_COLUMNS at least.
        file_size: length of the commit log's files, bytes.
        open_file: called once for each file with records of the rows.
        at: column with the offset at which each record is written; it becomes the record's physicOffset.

    Raises:
        StoreError: no record can be made from a row, or it is not the record that was imported.
    """
    if not len(rows):
        return 0
    _check_nulls(rows, at)
    order = np.argsort(_long(rows, at), kind="stable")
    rows = rows.take(pa.array(order)) if (np.diff(order) < 0).any() else rows
    messages = _checked(rows, at, file_size)
    names = (at, "physicOffset", "storeSize", "recordCrc32", "queueOffset")
    offsets, imported_offsets, sizes, crcs, queue_offsets = (_long(rows, name) for name in names)
    moves = at != "physicOffset"
    files, firsts = np.unique(offsets // file_size, return_index=True)
    for number, first, after in zip(files.tolist(), firsts.tolist(), [*firsts.tolist()[1:], len(rows)], strict=True):
        part = slice(first, after)
        content, start = open_file(number * file_size)
        positions = encode(messages, part, offsets, queue_offsets, content, start)
        if moves:
            _put_physic_offsets(content, positions, imported_offsets[part])  # recordCrc32 is computed with the imported offsets
        _check_crcs(rows, part, content, positions, sizes, crcs)
        if moves:
            _put_physic_offsets(content, positions, offsets[part])
    return int(sizes.sum())


def _put_physic_offsets(content: Bytes, positions: Longs, offsets: Longs) -> None:
    content[positions[:, None] + np.arange(_PHYSIC_OFFSET, _PHYSIC_OFFSET + 8)] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)


def encoded_records(rows: pa.RecordBatch, file_size: int) -> tuple[Bytes, Longs]:
    """The records of rows of commit_log, one after the other; raises the same errors as `write_records`.

    Args:
        rows: rows with RECORD_COLUMNS at least.
        file_size: length of the commit log's files, bytes.

    Returns:
        The bytes, and the position in them of each record, followed by the end of the last one.
    """
    _check_nulls(rows, "physicOffset")
    sizes, crcs = _long(rows, "storeSize"), _long(rows, "recordCrc32")
    messages = _checked(rows, "physicOffset", file_size)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    content = np.empty(int(ends[-1]), np.uint8)
    whole = slice(0, len(rows))
    encode_at(messages, whole, ends[:-1], _long(rows, "physicOffset"), _long(rows, "queueOffset"), content)
    _check_crcs(rows, whole, content, ends[:-1], sizes, crcs)
    return content, ends


def _checked(rows: pa.RecordBatch, at: str, file_size: int) -> MessageColumns:
    """The MessageColumns of rows, after the checks that no value is null and that records can be written at the offsets in column `at`."""
    try:
        messages = _messages(rows)
    except ValueError as error:
        raise _bad_row(rows, 0, f"addresses of hosts ({error}) in a batch that begins here") from error
    _check(rows, messages, _long(rows, at), file_size)
    return messages


def _check_nulls(rows: pa.RecordBatch, at: str) -> None:
    for name in {*RECORD_COLUMNS, at}:
        if rows.column(name).null_count:
            missing = pc.is_null(rows.column(name)).to_numpy(zero_copy_only=False)
            raise _bad_row(rows, int(missing.argmax()), f"a value of {name}")


def _check_crcs(rows: pa.RecordBatch, part: slice, content: Bytes, positions: Longs, sizes: Longs, crcs: Longs) -> None:
    differs = crc32_of_ranges(content, positions, sizes[part]).astype(np.int64) != crcs[part]
    if differs.any():
        raise _bad_row(rows, part.start + int(differs.argmax()), "the record whose recordCrc32 the row says")
