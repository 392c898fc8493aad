"""The properties that a filter reads for an entry, compared with MessageDecoder.decodeProperties in plain Python, on any bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.files.store_files import StoreFiles
from pipeline.rows import queue_batches as qb
from pipeline.rows.property_batches import property_batches
from store_format.files.mapped_files import MappedFile
from store_format.queue.entry_properties import BUFFER_UNDERFLOW, INDEX_OUT_OF_BOUNDS, NOT_THERE, find_properties
from store_format.record.message import encode
from tests.makers.records import messages, placed
from tests.models.slow_broker import Thrown, decode_properties_of
from tests.runs.sampling import examples

LENGTH = 600


def decoded(raw: bytes) -> bytes | int:
    try:
        return decode_properties_of(raw)
    except Thrown as thrown:
        return INDEX_OUT_OF_BOUNDS if "IndexOutOfBounds" in str(thrown) else BUFFER_UNDERFLOW


def check(content: bytes, entries: list[tuple[int, int]]) -> None:
    file = MappedFile(name="0", from_offset=0, length=LENGTH, wrote=len(content))
    offsets, sizes = np.array([at for at, _ in entries], np.int64), np.array([size for _, size in entries], np.int32)
    raw = np.frombuffer(content, np.uint8)
    found = find_properties([file], lambda _: raw, offsets, sizes)
    expected: list[bytes | int] = []
    for at, size in entries:
        there = 0 <= at < LENGTH and size >= 0 and at + size <= len(content)
        expected.append(decoded(content[at : at + size]) if there else NOT_THERE)
    assert found.lengths.tolist() == [one if isinstance(one, int) else len(one) for one in expected]
    assert found.bytes_of(lambda _: raw).tobytes() == b"".join(one for one in expected if isinstance(one, bytes))


@given(st.lists(messages(), max_size=3), st.data())
@settings(max_examples=examples(300))
def test_properties_are_those_that_the_decoder_reads(records: list, data: st.DataObject) -> None:  # type: ignore[type-arg]
    lying = [one for one in placed(records, 0) if one.physic_offset + one.store_size <= LENGTH]
    content = bytearray(b"".join(map(encode, lying)))
    entries = [(one.physic_offset, one.store_size + off) for one in lying for off in (0, -1, 1, -20)]
    entries += data.draw(st.lists(st.tuples(st.integers(-2, LENGTH), st.integers(-1, 300)), max_size=6))
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x30]))
    check(bytes(content), entries)


@given(st.binary(max_size=LENGTH), st.lists(st.tuples(st.integers(0, 40), st.integers(0, LENGTH)), max_size=6))
def test_any_bytes_are_read_as_a_record(content: bytes, entries: list[tuple[int, int]]) -> None:
    check(content, entries)


def test_lengths_of_every_kind_at_their_limits() -> None:
    def record(body: int, topic: int, properties: int, rest: int) -> bytes:
        return bytes(84) + struct.pack(">ibh", body, topic, properties) + bytes(rest)

    cases = [
        record(0, 0, 0, 0),
        record(0, 0, 5, 5),
        record(0, 0, 5, 4),
        record(0, 0, -5, 0),
        record(0, -1, 0, 0),
        record(0, -128, 0, 0),
        record(-1, 0, 0, 0),
        record(-88, 0, 0, 0),
        record(-(2**31), 0, 0, 0),
        record(2**31 - 1, 0, 0, 0),
        record(2**31 - 88, 0, 0, 0),
        bytes(39),
        bytes(40),
        bytes(87),
        b"",
    ]
    for raw in cases:
        check(raw, [(0, len(raw))])


def test_rows_of_properties_are_cut_where_they_get_too_large(small_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.rows import property_batches as pb
    from pipeline.store import load_files as lf

    store = StoreFiles(str(small_store))
    sizes = lf.file_sizes(store, {})
    log = lf.recover_log(store, lf.load_log(store, sizes), check_crc=True).files
    reader = qb.QueueReader(store, "b", qb.LogIndex(files=log, walked=tuple(file.wrote for file in log)))
    for topic in lf.topics(store):
        for queue_id in lf.queue_ids(store, topic):
            for file in lf.recover_queue(store, topic, queue_id, sizes, None).files:
                queue_file = qb.QueueFile(topic=topic, queue_id=queue_id, file=file)
                whole = [row for batch in property_batches(reader, queue_file) for row in batch.to_pylist()]
                with monkeypatch.context() as patched:
                    patched.setattr(pb, "ROW_BYTES", 300)
                    cut = [row for batch in property_batches(reader, queue_file) for row in batch.to_pylist()]
                assert b"".join(row["properties"] for row in cut) == b"".join(row["properties"] for row in whole)
                assert b"".join(row["lengths"] for row in cut) == b"".join(row["lengths"] for row in whole)
                at = file.from_offset // 20
                for row in cut:
                    assert row["firstQueueOffset"] == at
                    assert len(row["properties"]) <= 300 or len(row["lengths"]) == 4
                    at += len(row["lengths"]) // 4
                assert at == file.from_offset // 20 + file.wrote // 20
