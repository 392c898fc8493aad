"""A log file as Arrow batches: rows have the decoder's values, and rows and ranges together give the file's bytes back."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.rows import log_batches as lb
from pipeline.schema.tables import COMMIT_LOG, COMMIT_LOG_SEGMENT, STORE_FILE_RANGE, Table
from store_format.broker_version import DEFAULT_VERSION
from store_format.files.mapped_files import MappedFile
from store_format.log.commit_log import walk
from store_format.record.message import Host, Message, decode, encode
from tests.makers.log_rows import batches_of
from tests.makers.records import blank, message_of, messages, placed

TABLES = (COMMIT_LOG, STORE_FILE_RANGE, COMMIT_LOG_SEGMENT)


def file_of(content: bytes, from_offset: int, wrote: int | None = None) -> MappedFile:
    length = len(content)
    return MappedFile(name="the file", from_offset=from_offset, length=length, wrote=length if wrote is None else wrote)


def rows_of(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def log_rows(file: MappedFile, content: Any, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """The rows of commit_log in the order of the log."""
    return sorted(rows_of(batches_of(COMMIT_LOG, file, content, start, end)), key=lambda row: row["physicOffset"])


@given(st.lists(messages(text_properties=True), max_size=5), st.sampled_from([0, 1 << 30, 7 << 40]))
def test_rows_say_what_the_decoder_says(found: list[Message], from_offset: int) -> None:
    log = placed(found, from_offset)
    content = b"".join(map(encode, log))
    rows = log_rows(file_of(content, from_offset), np.frombuffer(content, np.uint8))
    assert [message_of(row) for row in rows] == log
    for row, message in zip(rows, log, strict=True):
        properties = message.properties_map()
        assert row["brokerName"] == "b"
        assert dict(row["properties"]) == properties
        assert [name for name, _ in row["properties"]] == list(properties)
        assert (row["tags"], row["keys"]) == (properties.get("TAGS"), properties.get("KEYS"))
        assert row["msgId"] == message.msg_id
        assert row["recordCrc32"] == zlib.crc32(encode(message))


@pytest.mark.parametrize(
    ("properties", "tags", "keys"),
    [
        (b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02", "TagA", "k1 k2"),
        (b"KEYS\x01\x02TAGS\x01a\x01b", "a\x01b", None),
        (b"TAGS\x01a\x02TAGS\x01b", "b", None),
        (b"tags\x01a\x02XTAGS\x01b", None, None),
        (b"TAGS\x01\xff\x02KEYS\x01\xc3\xa9", "\ufffd", "é"),
    ],
)
def test_tags_and_keys_have_columns(properties: bytes, tags: str | None, keys: str | None) -> None:
    host = Host(address=bytes(4), port=1)
    message = Message(
        queue_id=0,
        queue_offset=0,
        physic_offset=0,
        born_timestamp=0,
        born_host=host,
        store_timestamp=0,
        store_host=host,
        body=b"",
        topic=b"T",
        properties=properties,
    )
    content = encode(message)
    (row,) = log_rows(file_of(content, 0), np.frombuffer(content, np.uint8))
    assert (row["tags"], row["keys"], row["propertiesRaw"]) == (tags, keys, properties)


@given(messages(text_properties=True), st.sampled_from([-1, 65536, 2**31 - 1]), st.booleans())
def test_a_message_with_a_port_that_java_refuses_has_no_id(message: Message, port: int, born: bool) -> None:
    (lying,) = placed([message], 0)
    raw = bytearray(encode(lying))
    at = 48 + len(lying.born_host.address) if born else 48 + len(lying.born_host.address + lying.store_host.address) + 12
    raw[at : at + 4] = struct.pack(">i", port)
    assert decode(bytes(raw)) is None
    (row,) = log_rows(file_of(bytes(raw), 0), np.frombuffer(bytes(raw), np.uint8))
    assert (row["msgId"], row["tags"], row["keys"]) == (None, None, None)
    assert encode(message_of(row)) == bytes(raw)


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, int]:
    """A file's bytes and its first offset: records, some of which no row gives back, and any bytes after them."""
    from_offset = draw(st.sampled_from([0, 1 << 30]))
    log = placed(draw(st.lists(messages(), max_size=4)), from_offset)
    records = [bytearray(encode(message)) for message in log]
    for record in records:
        if draw(st.integers(0, 3)) == 0:
            record[35] ^= 1  # not where it says it is
    behind = draw(st.sampled_from([b"", bytes(50), blank(50), blank(9) + b"x\0y", b"junk", bytes(7) + b"\1" + bytes(5)]))
    return b"".join(records) + behind + draw(st.binary(max_size=20)), from_offset


@given(files(), st.sampled_from([2, 16_384]), st.sampled_from([120, 16 << 20]), st.sampled_from([7, 1 << 20]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_and_ranges_give_the_file_back(
    monkeypatch: pytest.MonkeyPatch, case: tuple[bytes, int], records: int, size: int, a_range: int
) -> None:
    raw, from_offset = case
    for name, value in (("BATCH_RECORDS", records), ("BATCH_BYTES", size), ("RANGE_BYTES", a_range)):
        monkeypatch.setattr(lb, name, value)
    content, file = np.frombuffer(raw, np.uint8), file_of(raw, from_offset)
    rebuilt, used = bytearray(len(raw)), np.zeros(len(raw), np.bool_)
    rows = log_rows(file, content)
    cuts = [0, *(part.end for part in lb.walks(content, file.wrote, version=DEFAULT_VERSION) if part.ended is None), file.wrote]
    assert rows == [row for cut in pairwise(cuts) for row in log_rows(file, content, *cut)]
    pieces = [(row["physicOffset"] - from_offset, encode(message_of(row))) for row in rows]
    ranges = rows_of(batches_of(STORE_FILE_RANGE, file, content))
    for row in ranges:
        assert (row["kind"], row["name"]) == ("commitlog", "the file")
        assert len(row["bytes"]) <= a_range
        assert row["bytes"][0] != 0
        assert row["bytes"][-1] != 0
    for at, piece in pieces + [(row["position"], row["bytes"]) for row in ranges]:
        assert not used[at : at + len(piece)].any()
        used[at : at + len(piece)] = True
        rebuilt[at : at + len(piece)] = piece
    assert bytes(rebuilt) == raw


@given(files(), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_segments_hold_every_walked_record_once(monkeypatch: pytest.MonkeyPatch, case: tuple[bytes, int], data: st.DataObject) -> None:
    raw, from_offset = case
    monkeypatch.setattr(lb, "BATCH_RECORDS", data.draw(st.sampled_from([1, 2, 16_384])))
    wrote = data.draw(st.integers(0, len(raw)))
    content, file = np.frombuffer(raw, np.uint8), file_of(raw, from_offset, wrote)
    all_walked = walk(content, 0, wrote, 100)
    borders = [*(all_walked.positions + from_offset).tolist(), all_walked.end + from_offset]
    decoded = [decode(raw[at - from_offset :]) for at in borders[:-1]]
    segments = rows_of(batches_of(COMMIT_LOG_SEGMENT, file, content))
    found = []
    for row in segments:
        ends = np.frombuffer(row["ends"], "<i8").tolist()
        stamps = np.frombuffer(row["storeTimestamps"], "<i8").tolist()
        assert (row["recordCount"], row["endPhysicOffset"], row["minStoreTimestamp"]) == (len(ends), ends[-1], min(stamps))
        found += list(zip(pairwise([row["firstPhysicOffset"], *ends]), stamps, strict=True))
    assert found == list(zip(pairwise(borders), [message.store_timestamp for message in decoded if message], strict=True))


@pytest.mark.parametrize("table", TABLES)
def test_a_file_without_a_record_has_no_rows(table: Table) -> None:
    assert batches_of(table, file_of(bytes(200), 0), np.zeros(200, np.uint8)) == []


@pytest.mark.parametrize("table", TABLES)
def test_batches_have_the_schema_of_their_table(table: Table) -> None:
    content = (91 + 1).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + bytes(80) + b"\1T" + bytes(2) + b"junk"
    found = batches_of(table, file_of(content, 0), np.frombuffer(content, np.uint8))
    assert [batch.num_rows for batch in found] == [1]
    assert all(isinstance(batch, pa.RecordBatch) for batch in found)
    for batch in found:
        batch.validate(full=True)


@given(st.lists(messages(), max_size=12), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_of_a_stretch_are_in_the_order_of_queues(monkeypatch: pytest.MonkeyPatch, found: list[Message], data: st.DataObject) -> None:
    monkeypatch.setattr(lb, "BATCH_RECORDS", data.draw(st.sampled_from([1, 3, 16_384])))
    topics, offsets = st.sampled_from([b"a", b"B", b"%RETRY%g", "ö".encode()]), st.integers(0, 3)
    queued = [replace(one, topic=data.draw(topics), queue_id=data.draw(offsets), queue_offset=data.draw(offsets)) for one in found]
    log = placed(queued, 0)
    content = b"".join(map(encode, log))
    rows = rows_of(batches_of(COMMIT_LOG, file_of(content, 0), np.frombuffer(content, np.uint8)))
    expected = sorted(log, key=lambda one: (one.topic, one.queue_id, one.queue_offset, one.physic_offset))
    assert [message_of(row) for row in rows] == expected
