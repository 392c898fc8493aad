"""Reads the index files and the checkpoint into rows of their tables.

Broker source (4.9.3): IndexFile, IndexHeader, StoreCheckpoint.
Surprise: the positions of entries depend on maxHashSlotNum, which no file contains. It is inferred from the chains of all files. If they
are damaged and the setting is not given, index_entry has no rows; the files' bytes are still in store_file_range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema, arrow_table
from pipeline.settings.settings import BrokerSettings
from pipeline.store.store_settings import index_sizes
from pipeline.tasks.task_rows import TaskRows, rows_made
from pipeline.tasks.work import Batches, Tasks, items_of
from store_format.broker_version import BrokerVersion
from store_format.errors import CorruptStoreError
from store_format.files.files import Entry
from store_format.index.index_file import HASH_SLOT, INDEX_ENTRY, INDEX_HEADER, IndexFile, IndexSizes
from store_format.index.index_service import is_index_file_name
from store_format.store.checkpoint import CHECKPOINT_LENGTH, STORE_CHECKPOINT, decode_checkpoint
from store_format.store_paths import CHECKPOINT_FILE, INDEX

# entries that a task reads, and entries in one Arrow batch
_ENTRIES_A_TASK = 1 << 21
_ENTRIES_A_BATCH = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRows:
    """The rows of index_entry and checkpoint, notes about the files for people, and the index sizes; None if they are unknown."""

    entries: TaskRows
    checkpoint: pa.Table
    notes: tuple[str, ...]
    sizes: IndexSizes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPiece:
    """Entries `first` to `after` (excluded) of a file; their times count from `begin_timestamp`, ms."""

    name: str
    begin_timestamp: int
    first: int
    after: int


def index_rows(tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings) -> IndexRows:
    """The rows of index_entry and checkpoint for a store."""
    notes: tuple[str, ...] = ()
    sizes: IndexSizes | None = None
    pieces: list[IndexPiece] = []
    try:
        sizes, pieces = pieces_of_index(store, settings)
    except CorruptStoreError as error:
        notes = (f"index_entry has no rows: {error}",)
    read = partial(_read, store, broker, 1 if sizes is None else sizes.hash_slot_num, pieces)
    entries = rows_made(t.INDEX_ENTRY, tasks.of_items(pieces), read)
    return IndexRows(entries=entries, checkpoint=_checkpoint(store, broker, settings.version), notes=notes, sizes=sizes)


def pieces_of_index(store: StoreFiles, settings: BrokerSettings) -> tuple[IndexSizes, list[IndexPiece]]:
    """The sizes of the index files, and the pieces of them that tasks read.

    Raises:
        CorruptStoreError: no sizes agree with the files, or a broker cannot put a key with the sizes in the settings.
    """
    sizes = index_sizes(store, settings)
    files = _files(store)
    if files and not sizes.are_usable:
        found = f"{sizes.hash_slot_num} and {sizes.index_num}"
        raise CorruptStoreError(store.path_of(INDEX), "a maxHashSlotNum and maxIndexNum with which a key can be put", found)
    return sizes, [piece for file in files for piece in _pieces(store, file, sizes)]


def _files(store: StoreFiles) -> list[Entry]:
    return [entry for entry in store.folder(INDEX) if not entry.is_folder and is_index_file_name(entry.name)]


def _pieces(store: StoreFiles, file: Entry, sizes: IndexSizes) -> Iterator[IndexPiece]:
    """The pieces of the entries that a file has; the file may have been cut."""
    whole = (min(file.length, sizes.file_length) - _base(sizes.hash_slot_num)) // INDEX_ENTRY.itemsize
    if whole <= 1:
        return
    header = IndexFile(file.name, store.part(0, INDEX_HEADER.itemsize, INDEX, file.name), sizes).header
    after = min(header.index_count, whole)
    for first in range(1, after, _ENTRIES_A_TASK):
        yield IndexPiece(name=file.name, begin_timestamp=header.begin_timestamp, first=first, after=min(first + _ENTRIES_A_TASK, after))


def _base(slots: int) -> int:
    return INDEX_HEADER.itemsize + slots * HASH_SLOT.itemsize


def _read(store: StoreFiles, broker: str, slots: int, pieces: list[IndexPiece], batches: Batches) -> Batches:
    for piece in items_of(batches, pieces):
        for first in range(piece.first, piece.after, _ENTRIES_A_BATCH):
            yield _entries(store, broker, slots, piece, first, min(first + _ENTRIES_A_BATCH, piece.after))


def _entries(store: StoreFiles, broker: str, slots: int, piece: IndexPiece, first: int, after: int) -> pa.RecordBatch:
    start, stop = (_base(slots) + entry * INDEX_ENTRY.itemsize for entry in (first, after))
    entries = store.part(start, stop, INDEX, piece.name).view(INDEX_ENTRY)
    hashes, diffs = entries["keyHash"].astype(np.int32), entries["timeDiff"].astype(np.int32)
    columns = {
        "brokerName": pa.repeat(pa.scalar(broker, pa.string()), after - first),
        "file": pa.repeat(pa.scalar(piece.name, pa.string()), after - first),
        "entry": pa.array(np.arange(first, after, dtype=np.int32)),
        "keyHash": pa.array(hashes),
        "slot": pa.array(hashes % np.int32(slots)),
        "phyOffset": pa.array(entries["phyOffset"].astype(np.int64)),
        "timeDiff": pa.array(diffs),
        "storeTimestamp": pa.array(np.int64(piece.begin_timestamp) + diffs.astype(np.int64) * 1000),
        "previous": pa.array(entries["previous"].astype(np.int32)),
    }
    schema = arrow_schema(t.INDEX_ENTRY)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _checkpoint(store: StoreFiles, broker: str, version: BrokerVersion) -> pa.Table:
    raw = store.head(CHECKPOINT_LENGTH, CHECKPOINT_FILE)
    with_offsets: bool = STORE_CHECKPOINT.of(version).value
    found = decode_checkpoint(raw, with_offsets=with_offsets)
    offsets = (found.master_flushed_offset, found.confirm_phy_offset, found.logics_physical_offset)
    times = (found.physic_msg_timestamp, found.logics_msg_timestamp, found.index_msg_timestamp)
    row = (broker, *times, *(offsets if with_offsets else (None, None, None)))
    return arrow_table(t.CHECKPOINT, [] if raw is None else [row])
