"""Queue files as packed segments and as rows again, against a plain reading of the same files."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.rows import queue_batches as qb
from pipeline.rows.property_batches import property_batches
from pipeline.store import load_files as lf
from store_format.files.mapped_files import MappedFile
from store_format.record.message import decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Entry = tuple[int, int, int]


@pytest.fixture(scope="module")
def reader(small_store: Path) -> qb.QueueReader:
    store = StoreFiles(str(small_store))
    log = lf.recover_log(store, lf.load_log(store, lf.file_sizes(store, {})), check_crc=True).files
    return qb.QueueReader(store, "the broker", qb.LogIndex(files=log, walked=tuple(file.wrote for file in log)))


def queue_files(store: StoreFiles) -> list[qb.QueueFile]:
    sizes = lf.file_sizes(store, {})
    return [
        qb.QueueFile(topic=topic, queue_id=queue_id, file=file)
        for topic in lf.topics(store)
        for queue_id in lf.queue_ids(store, topic)
        for file in lf.recover_queue(store, topic, queue_id, sizes, None).files
    ]


def entries_of(root: str, queue_file: qb.QueueFile) -> list[Entry]:
    path = Path(root, "consumequeue", queue_file.topic, str(queue_file.queue_id), queue_file.file.name)
    return list(struct.iter_unpack(">qiq", path.read_bytes()[: queue_file.file.wrote]))


def log_bytes(root: str) -> bytes:
    """The whole commit log, which starts at 0."""
    return b"".join(path.read_bytes() for path in sorted(Path(root, "commitlog").iterdir()))


@pytest.mark.parametrize(("segment_entries", "scan_entries"), [(qb.SEGMENT_ENTRIES, qb.SCAN_ENTRIES), (7, 5), (1, 1), (50, 2)])
def test_segments_hold_the_entries_and_unpack_to_rows_of_them(
    monkeypatch: pytest.MonkeyPatch, reader: qb.QueueReader, segment_entries: int, scan_entries: int
) -> None:
    monkeypatch.setattr(qb, "SEGMENT_ENTRIES", segment_entries)
    monkeypatch.setattr(qb, "SCAN_ENTRIES", scan_entries)
    log = log_bytes(reader.store.root)
    for queue_file in queue_files(reader.store):
        entries = entries_of(reader.store.root, queue_file)
        first = queue_file.file.from_offset // 20
        (segments,) = list(reader.segments(queue_file)) or [None]
        assert (segments is None) == (not entries)
        if segments is None:
            continue
        at = 0
        for row in segments.to_pylist():
            run = entries[at : at + segment_entries]
            assert (row["firstQueueOffset"], row["entryCount"], row["fileFirstOffset"]) == (first + at, len(run), first)
            assert list(struct.iter_unpack(">qiq", row["entries"])) == entries[at : at + segment_entries + scan_entries - 1]
            assert row["entryBytes"] == sum(size for _, size, _ in run)
            assert row["bytesBefore"] == sum(size for _, size, _ in entries[:at])
            assert row["oddEntries"] == []
            stamps = np.frombuffer(row["storeTimestamps"], "<i8").tolist()
            assert row["minStoreTimestamp"] == min(stamps)
            at += len(run)
        assert at == len(entries)
        rows = [row for batch in qb.unpack_segments(segments) for row in batch.to_pylist()]
        assert [(row["physicOffset"], row["size"], row["tagsCode"]) for row in rows] == entries
        for i, row in enumerate(rows):
            message = decode(log[row["physicOffset"] :])
            assert message is not None
            assert (row["brokerName"], row["topic"], row["queueId"]) == ("the broker", queue_file.topic, queue_file.queue_id)
            assert (row["queueOffset"], row["storeTimestamp"]) == (first + i, message.store_timestamp)
            assert row["queueOffset"] == message.queue_offset
            assert row["bytesBefore"] == sum(size for _, size, _ in entries[:i])


def test_a_file_read_in_parts_gives_the_rows_of_the_whole(monkeypatch: pytest.MonkeyPatch, reader: qb.QueueReader) -> None:
    monkeypatch.setattr(qb, "SEGMENT_ENTRIES", 20)
    monkeypatch.setattr(qb, "SCAN_ENTRIES", 33)
    for queue_file in queue_files(reader.store):
        count = len(queue_file.starts)
        parts = [replace(queue_file, segments=range(at, min(at + 2, count))) for at in range(0, count, 2)]
        for rows_of in (reader.segments, partial(property_batches, reader)):
            whole, cut = (
                [row for file in files for batch in rows_of(file) for row in batch.to_pylist()] for files in ([queue_file], parts)
            )
            assert cut == whole
            assert bool(whole) == bool(queue_file.file.wrote)


def test_segments_that_follow_each_other_in_a_file_are_read_together() -> None:
    def row(topic: str, name: str, segment: int) -> dict[str, object]:
        return {"topic": topic, "queueId": 0, "name": name, "fromOffset": 0, "length": 9, "wrote": 9, "extFiles": None, "segment": segment}

    rows = [row("a", "0", 3), row("a", "0", 4), row("a", "1", 5), row("b", "1", 6), row("b", "1", 8), row("b", "1", 9), row("b", "1", 0)]
    batches = [pa.RecordBatch.from_pylist(rows[:1]), pa.RecordBatch.from_pylist(rows[1:])]
    read = [(file.topic, file.file.name, file.segments) for file in qb.queue_files(iter(batches))]
    assert read == [
        ("a", "0", range(3, 5)),
        ("a", "1", range(5, 6)),
        ("b", "1", range(6, 7)),
        ("b", "1", range(8, 10)),
        ("b", "1", range(1)),
    ]


def test_segments_of_a_queue_are_numbered_on_over_its_files(monkeypatch: pytest.MonkeyPatch, reader: qb.QueueReader) -> None:
    monkeypatch.setattr(qb, "SEGMENT_ENTRIES", 20)
    files = [file for file in queue_files(reader.store) if (file.topic, file.queue_id) == ("BatchTopic", 0)]
    assert [file.file.from_offset for file in files] == [0, 1000, 2000]
    numbers = [row["segment"] for file in files for batch in reader.segments(file) for row in batch.to_pylist()]
    assert numbers == [0, 1, 2, 3, 4, 5, 6]


def test_entries_that_deliver_no_record_are_odd_and_described(small_store: Path, tmp_path: Path) -> None:
    first = (small_store / "commitlog" / ("0" * 20)).read_bytes()
    size = int.from_bytes(first[:4], "big")
    message = decode(first)
    assert message is not None
    entries = [(0, size, 5), (0, size - 1, 5), (0, size + 1, 5), (0, 0, 0), (0, 2147483647, 0), (10**9, 200, 0), (-5, 100, 0)]
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / ("0" * 20)).write_bytes(b"".join(struct.pack(">qiq", *entry) for entry in entries))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(first)
    log = MappedFile(name="0" * 20, from_offset=0, length=65536, wrote=65536)
    reader = qb.QueueReader(StoreFiles(str(tmp_path)), "b", qb.LogIndex(files=(log,), walked=(65536,)))
    file = MappedFile(name="0" * 20, from_offset=0, length=20 * len(entries), wrote=20 * len(entries))
    (segments,) = reader.segments(qb.QueueFile(topic="T", queue_id=0, file=file))
    assert segments.column("oddEntries").to_pylist() == [[1, 2, 3]]
    odd = [row for batch in qb.odd_entry_batches(reader, segments) for row in batch.to_pylist()]
    assert [(row["physicOffset"], row["size"], row["startOffset"]) for row in odd] == [(0, size - 1, 0), (0, size + 1, 0), (0, 0, 0)]
    assert [row["msgId"] for row in odd] == [None, message.msg_id, None]  # a byte short, a byte more, nothing
    assert odd[2]["recordCrc32"] == 0
    stamps = [row["storeTimestamp"] for batch in qb.unpack_segments(segments) for row in batch.to_pylist()]
    assert stamps == [message.store_timestamp] * 3 + [None] * 4


def test_segments_are_numbered_alike_in_sql(spark: SparkSession) -> None:
    size = qb.SEGMENT_ENTRIES
    for entries_a_file in (1, 7, size - 1, size, size + 1, 300_000, 3 * size):
        near = {edge + more for edge in (0, size, entries_a_file, 2 * entries_a_file, 300_000, 2**40) for more in range(-3, 4)}
        offsets = sorted(offset for offset in near if offset >= 0)
        rows = spark.createDataFrame([(offset,) for offset in offsets], "queueOffset BIGINT")
        found = rows.selectExpr("queueOffset", f"{qb.segment_of_sql('queueOffset', entries_a_file)} AS segment").collect()
        assert {row["queueOffset"]: row["segment"] for row in found} == {one: qb.segment_of(one, entries_a_file) for one in offsets}
        assert qb.segment_of(entries_a_file, entries_a_file) == qb.segments_a_file(entries_a_file)
