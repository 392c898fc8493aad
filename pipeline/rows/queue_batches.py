"""Makes Arrow batches of consume_queue_segment from consume queue files, and unpacks them into rows of consume_queue."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.files.store_files import StoreFiles
from pipeline.rows.log_batches import constant
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, ODD_ENTRY
from pipeline.store.open_log import OpenLog
from store_format import store_paths as paths
from store_format.big_endian import Bytes
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.queue.consume_queue import Units, units_of
from store_format.queue.entry_lookup import NO_TIMESTAMP, EntriesInLog, look_up
from store_format.queue.packed_ext_units import UNIT, pack_units, unpack_units
from store_format.record.message import Message, decode
from udfs.pull.batch_caps import scan_window_entries

SEGMENT_ENTRIES = 8192
# entries of the scan window of a pull whose maxMsgNums is not greater than the window
SCAN_ENTRIES: int = scan_window_entries(0)


Offsets = TypeVar("Offsets", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIndex:
    """The commit log in which entries are looked up: its files, and the position in each file up to which it was walked."""

    files: tuple[MappedFile, ...]
    walked: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFile:
    """One file of a consume queue, or some of its segments; `extension` are the files of the queue's extension."""

    topic: str
    queue_id: int
    file: MappedFile
    extension: tuple[MappedFile, ...] = ()
    # numbers of the segments, counted from the file's first; None for all segments
    segments: range | None = None

    @property
    def starts(self) -> range:
        """The first entry of each of its segments, counted from the file's first entry."""
        entries = self.file.wrote // CQ_STORE_UNIT_SIZE
        all_starts = range(0, entries, SEGMENT_ENTRIES)
        return all_starts if self.segments is None else all_starts[self.segments.start : self.segments.stop]


def segment_at(file: MappedFile, start: int) -> int:
    """The number in the queue of the segment that starts at entry `start` of a file."""
    entries = file.length // CQ_STORE_UNIT_SIZE
    return segment_of(file.from_offset // CQ_STORE_UNIT_SIZE + start, entries)


def segments_a_file(entries_a_file: int) -> int:
    """The number of segments of a full queue file; the last one of a file may be shorter than the others."""
    return -(-entries_a_file // SEGMENT_ENTRIES)


def segment_of(offset: Offsets, entries_a_file: int) -> Offsets:
    """The number of the segment with a queue offset, or with each of many queue offsets."""
    file, inside = divmod(offset, entries_a_file)
    return file * segments_a_file(entries_a_file) + inside // SEGMENT_ENTRIES


def segment_of_sql(offset: str, entries_a_file: int) -> str:
    """`segment_of` as an expression of SQL over the column `offset`, whose values must not be negative."""
    return f"{offset} DIV {entries_a_file} * {segments_a_file(entries_a_file)} + {offset} % {entries_a_file} DIV {SEGMENT_ENTRIES}"


def segment_row(
    queue: tuple[str, str, int],
    *,
    segment: int,
    file_first: int,
    first: int,
    window: Units,
    stamps: NDArray[np.int64],
    bytes_before: int,
    odd: list[int],
    ext_units: bytes | None,
) -> dict[str, object]:
    """A row of consume_queue_segment.

    Args:
        queue: broker name, topic and queueId.
        segment: number of the segment.
        file_first: queue offset of the first entry of the segment's file.
        first: queue offset of the segment's first entry.
        window: the segment's entries, as many as `stamps`, and the entries after them that a scan from the last one can reach.
        stamps: storeTimestamp of each entry of the segment, ms.
        bytes_before: sum of the sizes of the file's entries before the segment.
        odd: positions of entries whose bytes are no record.
        ext_units: the packed extension units of the window.
    """
    return {
        **dict(zip(("brokerName", "topic", "queueId"), queue, strict=True)),
        "segment": segment,
        "firstQueueOffset": first,
        "entryCount": len(stamps),
        "entries": window.tobytes(),
        "storeTimestamps": stamps.astype("<i8").tobytes(),
        "minStoreTimestamp": int(stamps.min()),
        "fileFirstOffset": file_first,
        "entryBytes": int(window["size"][: len(stamps)].astype(np.int64).sum()),
        "bytesBefore": bytes_before,
        "oddEntries": odd,
        "extUnits": ext_units,
    }


class QueueReader:
    """Reads queue files of one store and looks their messages up in its commit log."""

    def __init__(self, store: StoreFiles, broker: str, log: LogIndex, version: BrokerVersion = DEFAULT_VERSION) -> None:
        self.store, self.broker, self.log, self.version = store, broker, log, version
        self._opened = OpenLog(store)

    def log_content(self, file: MappedFile) -> Bytes:
        """The bytes of a file of the commit log."""
        return self._opened.content(file)

    def units(self, queue_file: QueueFile) -> Units:
        """The entries in use of a queue file."""
        path = (paths.CONSUME_QUEUE, queue_file.topic, str(queue_file.queue_id), queue_file.file.name)
        return units_of(self.store.part(0, queue_file.file.wrote, *path))

    def look_up(self, units: Units) -> EntriesInLog:
        """The bytes of the entries in the commit log."""
        offsets, sizes = units["physicOffset"].astype(np.int64), units["size"].astype(np.int32)
        return look_up(self.log.files, self.log.walked, self.log_content, offsets, sizes, self.version)

    def segments(self, queue_file: QueueFile) -> Iterator[pa.RecordBatch]:
        """The file's entries, SEGMENT_ENTRIES a row; each row also has the later entries that a scan from its last entry can reach."""
        starts = queue_file.starts
        if not starts:
            return
        units = self.units(queue_file)
        first = queue_file.file.from_offset // CQ_STORE_UNIT_SIZE
        read_unit_file = self._extension_reader(queue_file)
        rows = []
        for start in starts:
            own = units[start : start + SEGMENT_ENTRIES]
            window = units[start : start + len(own) + SCAN_ENTRIES - 1]
            found = self.look_up(own)
            rows.append(
                segment_row(
                    (self.broker, queue_file.topic, queue_file.queue_id),
                    segment=segment_at(queue_file.file, start),
                    file_first=first,
                    first=first + start,
                    window=window,
                    stamps=found.store_timestamps,
                    bytes_before=int(units["size"][:start].sum(dtype=np.int64)),
                    odd=np.flatnonzero((found.file >= 0) & ~found.is_record).tolist(),
                    ext_units=pack_units(queue_file.extension, read_unit_file, window["tagsCode"].astype(np.int64)),
                )
            )
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(CONSUME_QUEUE_SEGMENT))

    def _extension_reader(self, queue_file: QueueFile) -> Callable[[MappedFile], Bytes]:
        folder = (paths.CONSUME_QUEUE_EXT, queue_file.topic, str(queue_file.queue_id))
        return lambda file: self.store.content(*folder, file.name)

    def odd_entries(self, units: Units) -> Iterator[dict[str, object]]:
        """The rows of odd_entry for the entries whose bytes are no record."""
        found = self.look_up(units)
        for unit, index, position in zip(units, found.file.tolist(), found.positions.tolist(), strict=True):
            file = self.log.files[index]
            raw = self.log_content(file)[position : position + int(unit["size"])]
            yield self._odd_entry(unit, file.from_offset + position, raw.tobytes())

    def _odd_entry(self, unit: np.void, start_offset: int, raw: bytes) -> dict[str, object]:
        message = decode(raw, uncompress_body=False, version=self.version)
        return {
            "brokerName": self.broker,
            "physicOffset": int(unit["physicOffset"]),
            "size": int(unit["size"]),
            "startOffset": start_offset,
            "recordCrc32": zlib.crc32(raw),
            **_decoded(message),
        }


def _decoded(message: Message | None) -> dict[str, object]:
    if message is None:
        return {}
    properties = message.properties_map()
    return {
        "queueOffset": message.queue_offset,
        "messagePhysicOffset": message.physic_offset,
        "msgId": message.msg_id,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "bodyCrc": message.body_crc,
        "storeTimestamp": message.store_timestamp,
    }


def odd_entry_batches(reader: QueueReader, segments: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of odd_entry for a batch of consume_queue_segment; a row for each entry, even if entries are equal."""
    for segment in segments.select(["entries", "oddEntries"]).to_pylist():
        units = units_of(np.frombuffer(segment["entries"], np.uint8))
        rows = list(reader.odd_entries(units[segment["oddEntries"]]))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(ODD_ENTRY))


def unpack_segments(segments: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of consume_queue in a batch of consume_queue_segment, in their order."""
    schema = arrow_schema(CONSUME_QUEUE)
    for row in segments.to_pylist():
        units = units_of(np.frombuffer(row["entries"], np.uint8))[: row["entryCount"]]
        stamps: NDArray[np.int64] = np.frombuffer(row["storeTimestamps"], "<i8")
        sizes = units["size"].astype(np.int32)
        columns = [
            constant(row["brokerName"], len(units)),
            constant(row["topic"], len(units)),
            pa.array(np.full(len(units), row["queueId"], np.int32)),
            pa.array(np.arange(len(units)) + row["firstQueueOffset"]),
            pa.array(units["physicOffset"].astype(np.int64)),
            pa.array(sizes),
            pa.array(units["tagsCode"].astype(np.int64)),
            _ext_units(row["extUnits"], len(row["entries"]) // CQ_STORE_UNIT_SIZE, len(units)),
            pa.array(stamps, mask=stamps == NO_TIMESTAMP),
            pa.array(sizes.astype(np.int64).cumsum() - sizes + row["bytesBefore"]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _ext_units(packed: bytes | None, packed_count: int, count: int) -> pa.Array:
    """The column extUnit with the first `count` of `packed_count` packed units."""
    kind = arrow_schema(CONSUME_QUEUE).field("extUnit").type
    if packed is None:
        return pa.nulls(count, kind)
    units = unpack_units(packed, packed_count)
    offsets = np.append(units.bit_maps.starts, units.bit_maps.starts[-1:] + units.bit_maps.lengths[-1:])[: count + 1].astype(np.int32)
    maps = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(units.buffer)])
    no_map = pa.array(units.bit_maps.lengths[:count] == 0)
    columns = [pa.array(units.tags_codes[:count]), pa.array(units.msg_store_times[:count]), pc.if_else(no_map, None, maps)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(units.states[:count] != UNIT))


def queue_files(files: Iterator[pa.RecordBatch]) -> Iterator[QueueFile]:
    """The queue files of rows of loaded_queue, each row with a `segment`; consecutive segments of a file become one QueueFile."""
    rows = (row for batch in files for row in batch.to_pylist())
    numbered = ((row["segment"] - place, row) for place, row in enumerate(rows))
    for _, run in groupby(numbered, lambda one: (one[0], one[1]["topic"], one[1]["queueId"], one[1]["name"])):
        one, *others = (row for _, row in run)
        yield QueueFile(
            topic=one["topic"],
            queue_id=one["queueId"],
            file=_mapped(one),
            extension=tuple(_mapped(file) for file in one["extFiles"] or ()),
            segments=range(one["segment"], one["segment"] + 1 + len(others)),
        )


def _mapped(row: Mapping[str, Any]) -> MappedFile:
    return MappedFile(name=row["name"], from_offset=row["fromOffset"], length=row["length"], wrote=row["wrote"])


def read_entries(reader: QueueReader, files: Iterator[pa.RecordBatch], wanted: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of consume_queue and odd_entry for rows of loaded_queue; each batch comes with its table's name.

    Each row of `files` has a `segment`.
    """
    for queue_file in queue_files(files):
        for segments in reader.segments(queue_file):
            if CONSUME_QUEUE.name in wanted:
                yield from ((CONSUME_QUEUE.name, rows) for rows in unpack_segments(segments))
            if ODD_ENTRY.name in wanted:
                yield from ((ODD_ENTRY.name, rows) for rows in odd_entry_batches(reader, segments))


def unpack(segments: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of consume_queue in rows of consume_queue_segment."""
    for batch in segments:
        yield from unpack_segments(batch)
