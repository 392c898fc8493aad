"""Entries that are added batch by batch are packed into the same rows as all entries at once."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.follow import queue_growth as qg
from pipeline.rows import queue_batches as qb
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import CONSUME_QUEUE_SEGMENT
from tests.runs.sampling import examples

A_FILE = 25


def entries(count: int) -> list[dict[str, Any]]:
    return [
        {
            "topic": "T",
            "queueId": 3,
            "queueOffset": number,
            "physicOffset": 1000 + 7 * number,
            "size": 100 + number,
            "tagsCode": number - 5,
            "storeTimestamp": 10_000 - number % 3,
            "propertiesRaw": b"p" * (number % 4),
        }
        for number in range(count)
    ]


def unit(row: dict[str, Any]) -> bytes:
    return struct.pack(">qiq", row["physicOffset"], row["size"], row["tagsCode"])


def expected_segments(rows: list[dict[str, Any]], segment_entries: int, scan: int) -> list[dict[str, Any]]:
    """The rows of consume_queue_segment, made entry by entry from the description of the table."""
    found = []
    a_file_segments = -(-A_FILE // segment_entries)
    for file_first in range(0, len(rows), A_FILE):
        of_file = rows[file_first : file_first + A_FILE]
        for start in range(0, len(of_file), segment_entries):
            own = of_file[start : start + segment_entries]
            seen = of_file[start : start + len(own) + scan - 1]
            found.append(
                {
                    "brokerName": "b",
                    "topic": "T",
                    "queueId": 3,
                    "segment": file_first // A_FILE * a_file_segments + start // segment_entries,
                    "firstQueueOffset": file_first + start,
                    "entryCount": len(own),
                    "entries": b"".join(unit(row) for row in seen),
                    "storeTimestamps": b"".join(row["storeTimestamp"].to_bytes(8, "little") for row in own),
                    "minStoreTimestamp": min(row["storeTimestamp"] for row in own),
                    "fileFirstOffset": file_first,
                    "entryBytes": sum(row["size"] for row in own),
                    "bytesBefore": sum(row["size"] for row in of_file[:start]),
                    "oddEntries": [],
                    "extUnits": None,
                }
            )
    return found


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(2, 12), st.integers(2, 9))
def test_batches_of_entries_pack_to_what_all_of_them_give(counts: list[int], segment_entries: int, scan: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qb, "SEGMENT_ENTRIES", segment_entries)
        patch.setattr(qb, "SCAN_ENTRIES", scan)
        rows = entries(sum(counts))
        known: dict[int, dict[str, Any]] = {}
        lengths: dict[int, list[int]] = {}
        at = 0
        for count in counts:
            new = pa.Table.from_pylist(rows[at : at + count])
            shuffled = new.take(np.random.default_rng(count).permutation(count))
            last_file = at // A_FILE * A_FILE
            open_ones = [
                row
                for row in known.values()
                if row["fileFirstOffset"] == last_file and row["firstQueueOffset"] + row["entryCount"] + scan - 1 > at
            ]
            schema = arrow_schema(CONSUME_QUEUE_SEGMENT)
            grown = qg.grown_segments("b", A_FILE, ("T", 3), shuffled, pa.Table.from_pylist(open_ones, schema=schema))
            known |= {row["segment"]: row for row in grown.to_pylist()}
            for part in qg.grown_properties("b", A_FILE, ("T", 3), shuffled).to_pylist():
                of_part = np.frombuffer(part["lengths"], "<i4").tolist()
                assert part["properties"] == b"p" * sum(of_part)
                seen = lengths.setdefault(part["segment"], [])
                segment_first = expected_segments(rows, segment_entries, scan)
                first = next(row["firstQueueOffset"] for row in segment_first if row["segment"] == part["segment"])
                assert part["firstQueueOffset"] == first + len(seen)
                seen += of_part
            at += count
        expected = expected_segments(rows, segment_entries, scan)
        assert [known[segment] for segment in sorted(known)] == expected
        for row in expected:
            reached = len(row["entries"]) // 20
            assert lengths[row["segment"]] == [(row["firstQueueOffset"] + number) % 4 for number in range(reached)]
