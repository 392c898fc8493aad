"""Reads the files of a store as they are, without the changes of a broker's load and start: to look into a damaged store, or to keep it.

Records become rows up to the first position of a log file that has no record; entries become rows up to the last entry of a queue file
that is not zero. All other bytes are kept as bytes: the bytes of a log file after its records, and the files that a broker does not load
because of their length or name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import LoadedStore
from pipeline.importing.loaded_queues import LOADED_QUEUE, totals_of
from pipeline.importing.log_survey import FileSurvey, survey_log
from pipeline.rows.unmapped_files import FOLDER, walk_tree
from pipeline.schema.arrow_types import arrow_schema, arrow_table
from pipeline.schema.tables import STORE_FILE
from pipeline.settings.settings import BrokerSettings
from pipeline.store import load_files as lf
from pipeline.tasks.work import Tasks, Work, of_items
from store_format.big_endian import Bytes
from store_format.broker_version import BrokerVersion
from store_format.files.files import Entry, FilePath
from store_format.files.mapped_files import MappedFile, is_aligned, is_mapped_file_name
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.store.recovery import RecoveredLog
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

_TOPICS_A_TASK = 64
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStore:
    """A store as its files are.

    Attributes:
        loaded: the mapped files, in the form that an import needs; its `store` hides all other files in the folders of log and queues.
        odd: rows of store_file for the hidden files.
    """

    loaded: LoadedStore
    odd: Work


def find_store(tasks: Tasks, store: StoreFiles, broker: str, settings: BrokerSettings) -> FoundStore:
    """Read the files of a store as they are.

    Args:
        tasks: what does the work.
        store: the store's files.
        broker: value of brokerName in the rows.
        settings: the broker's settings; file sizes that they do not have are inferred from the files.

    Raises:
        StoreError: there is no store, or it cannot be read.
    """
    store.check_store()
    topics = lf.topics(store)
    odd = odd_queues(store, topics)
    visible = store.changed({}, frozenset(odd))
    sizes = lf.file_sizes(visible, {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")})
    queues = [(topic, queue_id) for topic in topics for queue_id in lf.queue_ids(visible, topic)]
    odd += _odd_files(store, (COMMIT_LOG,), sizes.commit_log)
    for topic, queue_id in queues:
        odd += _odd_files(store, (CONSUME_QUEUE, topic, str(queue_id)), sizes.consume_queue)
    visible = store.changed({}, frozenset(odd))
    log, surveys = _log(tasks, visible, settings.version)
    rows = _queue_rows(tasks, visible, broker, topics).once()
    return FoundStore(
        loaded=LoadedStore(
            store=visible,
            sizes=sizes,
            log=log,
            surveys=surveys,
            queues=rows,
            queue_count=len(queues),
            entry_count=totals_of(rows).wrote // CQ_STORE_UNIT_SIZE,
            notes=tuple(f"{store.path_of(*path)}: nothing that a broker takes, kept as it is" for path in odd),
            lost=0,
            version=settings.version,
        ),
        odd=tasks.of_rows(arrow_table(STORE_FILE, (row for path in odd for row in _rows_of_odd(store, broker, path)))),
    )


def odd_queues(store: StoreFiles, topics: Sequence[str]) -> list[FilePath]:
    """The folders whose names a broker reads as a queue's number but never writes, for example 01."""
    found: list[FilePath] = []
    for topic in topics:
        names = [entry.name for entry in store.folder(CONSUME_QUEUE, topic) if entry.is_folder]
        digits = [name for name in names if name.removeprefix("+").removeprefix("-").isdecimal()]
        found += [(CONSUME_QUEUE, topic, name) for name in digits if str(int(name)) != name]
    return found


def _odd_files(store: StoreFiles, folder: FilePath, size: int) -> list[FilePath]:
    """The files in a folder of mapped files that are no mapped files."""
    return [(*folder, entry.name) for entry in store.folder(*folder) if not _is_mapped(entry, size)]


def _is_mapped(entry: Entry, size: int) -> bool:
    if entry.is_folder or entry.length != size or not is_mapped_file_name(entry.name):
        return False
    return is_aligned(int(entry.name), size)


def _mapped(store: StoreFiles, *folder: str) -> tuple[MappedFile, ...]:
    return tuple(
        MappedFile(name=entry.name, from_offset=int(entry.name), length=entry.length, wrote=entry.length, mtime_ms=entry.mtime_ms)
        for entry in store.folder(*folder)
    )


def _log(tasks: Tasks, store: StoreFiles, version: BrokerVersion) -> tuple[RecoveredLog, tuple[FileSurvey, ...]]:
    """The commit log up to the end of its last record, and the survey of each file. A broker creates later files in advance."""
    files = _mapped(store, COMMIT_LOG)
    surveys = survey_log(tasks, store, files, check_crc=None, version=version)
    last = max((found.index for found in surveys if found.walked), default=-1)
    wrote = [file.length if index < last else surveys[index].walked for index, file in enumerate(files)]
    return RecoveredLog(files=tuple(replace(file, wrote=end) for file, end in zip(files, wrote, strict=True)), ended=None), tuple(surveys)


def _rows_of_odd(store: StoreFiles, broker: str, path: FilePath) -> Iterator[tuple[Any, ...]]:
    entry = next(entry for entry in store.folder(*path[:-1]) if entry.name == path[-1])
    for where, file in walk_tree(store, *path) if entry.is_folder else [(path, entry)]:
        length, mtime_ms = (0, None) if file is None else (file.length, file.mtime_ms)
        row = {"kind": FOLDER if file is None else OTHER, "name": where[-1], "length": length, "mtimeMs": mtime_ms, "path": "/".join(where)}
        yield tuple((row | {"brokerName": broker}).get(name) for name in STORE_FILE.names)


# queues: what tasks do ----------------------------------------------------------------------------------------------------------------


def _queue_rows(tasks: Tasks, store: StoreFiles, broker: str, topics: Sequence[str]) -> Work:
    groups = [topics[start : start + _TOPICS_A_TASK] for start in range(0, len(topics), _TOPICS_A_TASK)]

    def queues(group: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return (_queue(store, broker, topic, queue_id) for topic in group for queue_id in lf.queue_ids(store, topic))

    return of_items(tasks, groups, queues, LOADED_QUEUE.schema)


def _queue(store: StoreFiles, broker: str, topic: str, queue_id: int) -> pa.RecordBatch:
    folder = (CONSUME_QUEUE, topic, str(queue_id))
    files = _mapped(store, *folder)
    wrote = [_used_entries(store.content(*folder, file.name)) * CQ_STORE_UNIT_SIZE for file in files]
    shared = {
        "brokerName": broker,
        "topic": topic,
        "queueId": queue_id,
        "minOffset": files[0].from_offset // CQ_STORE_UNIT_SIZE if files else 0,
        "maxOffset": (files[-1].from_offset + wrote[-1]) // CQ_STORE_UNIT_SIZE if files else 0,
        "hasFolder": True,
    }
    found = [
        {"name": file.name, "fromOffset": file.from_offset, "length": file.length, "wrote": end, "mtimeMs": file.mtime_ms}
        for file, end in zip(files, wrote, strict=True)
    ]
    return pa.RecordBatch.from_pylist([shared | file for file in found or [{}]], schema=arrow_schema(LOADED_QUEUE))


def _used_entries(content: Bytes) -> int:
    """The number of entries in a queue file's bytes up to the last entry that is not zero."""
    used = np.flatnonzero(content[: len(content) // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE])
    return int(used[-1]) // CQ_STORE_UNIT_SIZE + 1 if len(used) else 0
