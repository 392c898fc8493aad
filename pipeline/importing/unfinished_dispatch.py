"""Counts the records that the broker's start would dispatch again: those after the last message in any consume queue."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.tasks.work import Tasks, of_items
from store_format.broker_version import BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.commit_log import WALK_BATCH, walk
from store_format.record import record_columns as rc
from store_format.store_paths import COMMIT_LOG


def undispatched_records(tasks: Tasks, store: StoreFiles, files: tuple[MappedFile, ...], reput_from: int, version: BrokerVersion) -> int:
    """The number of records from offset `reput_from` on that would become queue entries; prepared and rolled back messages never do.

    `version` is that of the broker whose records count.
    """
    undispatched = [file for file in files if file.from_offset + file.wrote > reput_from]

    def count(file: MappedFile) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"records": [_records(store, file, reput_from, version)]})

    return sum(row["records"] for row in of_items(tasks, undispatched, count, "records BIGINT").rows())


def _records(store: StoreFiles, file: MappedFile, reput_from: int, version: BrokerVersion) -> int:
    at, found = max(reput_from - file.from_offset, 0), 0
    content = store.stretch(at, file.wrote, file.length, COMMIT_LOG, file.name)
    while True:
        part = walk(content, at, file.wrote, WALK_BATCH, version)
        kinds = rc.prefixes(content, part.positions)["sysFlag"] & TRANSACTION_ROLLBACK_TYPE
        found += int(((kinds == 0) | (kinds == TRANSACTION_COMMIT_TYPE)).sum())
        if part.ended is not None:
            return found
        at = part.end


assert TRANSACTION_PREPARED_TYPE | TRANSACTION_COMMIT_TYPE == TRANSACTION_ROLLBACK_TYPE
