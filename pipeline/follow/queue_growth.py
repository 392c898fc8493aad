"""Packs entries that are added to a queue into the rows that a replay reads, as an import of the whole queue would.

Rule: a segment is a run of entries of one queue file, with the later entries that a scan from it can reach. So new entries change the last
segment and the segments whose scans reach past the old end, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.rows import queue_batches as qb
from pipeline.rows.property_batches import row_parts
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import CONSUME_QUEUE_PROPERTIES, CONSUME_QUEUE_SEGMENT
from store_format.layout import CQ_STORE_UNIT_SIZE, CQ_UNIT
from store_format.queue.consume_queue import Units, encode_units, units_of

# columns of a new entry and of its message
ENTRY_COLUMNS = ("topic", "queueId", "queueOffset", "physicOffset", "size", "tagsCode", "storeTimestamp", "propertiesRaw")

Longs = NDArray[np.int64]


def grown_segments(broker: str, entries_a_file: int, key: tuple[Any, ...], new: pa.Table, known: pa.Table) -> pa.Table:
    """The new and changed rows of consume_queue_segment of a queue, whose topic and queueId are `key`.

    The `new` entries, in any order, together follow the last known entry without a gap. `known` are the rows of consume_queue_segment whose
    scans reach past the old end; there may be none.
    """
    new = new.sort_by("queueOffset")
    rows = sorted(known.to_pylist(), key=lambda row: row["segment"])
    fresh = encode_units(*(new.column(name).to_numpy() for name in CQ_UNIT.names or ()))
    start = rows[0]["firstQueueOffset"] if rows else new.column("queueOffset")[0].as_py()
    # joined as bytes, since numpy would change the byte order of joined rows to the processor's
    own = [row["entries"][: row["entryCount"] * CQ_STORE_UNIT_SIZE] for row in rows]
    units = units_of(np.frombuffer(b"".join([*own, fresh]), np.uint8))
    stamps = np.concatenate([*(np.frombuffer(row["storeTimestamps"], "<i8") for row in rows), new.column("storeTimestamp").to_numpy()])
    odd = [row["firstQueueOffset"] + position for row in rows for position in row["oddEntries"]]
    before = rows[0]["bytesBefore"] if rows else 0
    made = _rows((broker, *key), entries_a_file, start, units, stamps, odd, before)
    return pa.Table.from_pylist(list(made), schema=arrow_schema(CONSUME_QUEUE_SEGMENT))


def _rows(
    queue: tuple[str, ...], entries_a_file: int, start: int, units: Units, stamps: Longs, odd: list[int], before: int
) -> Iterator[dict[str, object]]:
    sizes = units["size"].astype(np.int64)
    file_first = start // entries_a_file * entries_a_file
    at, end = start, start + len(units)
    while at < end:
        if at >= file_first + entries_a_file:
            file_first, before = file_first + entries_a_file, 0
        file_end = min(file_first + entries_a_file, end)
        stop = min(at + qb.SEGMENT_ENTRIES - (at - file_first) % qb.SEGMENT_ENTRIES, file_end)
        yield qb.segment_row(
            queue,  # type: ignore[arg-type]
            segment=qb.segment_of(at, entries_a_file),
            file_first=file_first,
            first=at,
            window=units[at - start : min(stop + qb.SCAN_ENTRIES - 1, file_end) - start],
            stamps=stamps[at - start : stop - start],
            bytes_before=before,
            odd=[offset - at for offset in odd if at <= offset < stop],
            ext_units=None,
        )
        before += int(sizes[at - start : stop - start].sum())
        at = stop


def grown_properties(broker: str, entries_a_file: int, key: tuple[Any, ...], new: pa.Table) -> pa.Table:
    """The rows of consume_queue_properties to add for the new entries of a queue."""
    new = new.sort_by("queueOffset")
    properties = [raw or b"" for raw in new.column("propertiesRaw").to_pylist()]
    lengths = np.array([len(raw) for raw in properties], np.int64)
    first = new.column("queueOffset")[0].as_py()
    rows = [
        dict(zip(("brokerName", "topic", "queueId"), (broker, *key), strict=True))
        | {
            "segment": segment,
            "firstQueueOffset": first + start,
            "lengths": lengths[start:stop].astype("<i4").tobytes(),
            "properties": b"".join(properties[start:stop]),
        }
        for segment, begin, end in _reaches(first, first + len(new), entries_a_file)
        for start, stop in row_parts(lengths, begin - first, end - first)
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(CONSUME_QUEUE_PROPERTIES))


def _reaches(first: int, end: int, entries_a_file: int) -> Iterator[tuple[int, int, int]]:
    """The segments that have a new entry, or whose scans reach one, each with its new entries [begin, end)."""
    for file_first in range(first // entries_a_file * entries_a_file, end, entries_a_file):
        file_end = min(file_first + entries_a_file, end)
        least = max(first - (qb.SCAN_ENTRIES - 1), file_first) - file_first
        for start in range(file_first + least // qb.SEGMENT_ENTRIES * qb.SEGMENT_ENTRIES, file_end, qb.SEGMENT_ENTRIES):
            begin, stop = max(start, first), min(start + qb.SEGMENT_ENTRIES + qb.SCAN_ENTRIES - 1, file_end)
            if begin < stop:
                yield qb.segment_of(start, entries_a_file), begin, stop
