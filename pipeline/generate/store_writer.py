"""Writes a broker's store to a disk as the broker does, from an empty folder to a clean shutdown.

Broker source (4.9.3): DefaultMessageStore.start, shutdown; ConfigManager.persist.
Rule: the abort file is made first and deleted last, so a store whose writer was killed counts as not shut down. Files have the times at
which their broker would have written them.
Surprise: the checkpoint's index time is that of the last index file that is full, 0 before there is one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from pipeline.generate.written_files import WrittenFiles, cannot_write
from pipeline.generate.written_index import WrittenIndex
from store_format.errors import StoreError
from store_format.files.files import FilePath
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.log.put_message import PutSettings
from store_format.queue.consume_queue import units_of
from store_format.record.record_columns import locate, store_timestamps
from store_format.store.dispatcher import BitMapOf
from store_format.store.message_store import MessageStore
from store_format.store.store_settings import StoreSettings, check_sizes
from store_format.store_paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from udfs.broker.schedule import deliver_timestamp_of

WrittenStore = MessageStore[WrittenFiles]


def new_store(
    root: str, settings: StoreSettings, put_settings: PutSettings | None = None, *, bit_map_of: BitMapOf | None = None
) -> WrittenStore:
    """Make the folder `root`, if there is none, and begin a store in it.

    `put_settings` decide which messages are refused, by default the broker's defaults; `bit_map_of` is as in Dispatcher.

    Raises:
        StoreError: the folder is not empty or cannot be made, or a broker cannot write a store with these settings.
    """
    check_sizes(settings)
    files = WrittenFiles(root)
    _make_folder(root)
    store = MessageStore(
        files=files,
        settings=settings,
        index=WrittenIndex(files, settings.index_sizes),
        deliver_timestamp=deliver_timestamp_of(settings.delays),
        put_settings=put_settings,
        bit_map_of=bit_map_of,
    )
    store.begin()
    for folder in (COMMIT_LOG, CONSUME_QUEUE):
        os.mkdir(files.path_of((folder,)))
    return store


def _make_folder(root: str) -> None:
    try:
        os.makedirs(root, exist_ok=True)
        found = sorted(os.listdir(root))
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreError(root, "an empty folder, or none", "a file", hint="give the name of a new folder") from error
    except OSError as error:
        raise cannot_write(root, error) from error
    if found:
        raise StoreError(root, "an empty folder, or none", f"{found[0]!r} in it", hint="a store is never written over")


def shut_down(store: WrittenStore, config: Mapping[str, bytes] | None = None) -> None:
    """Shut a new store down, with its config files and the files' times. It counts as complete when this is done.

    `config` has the names and bytes of the files under config/.
    """
    files = store.files
    store.flush()
    times, last = _times(store), max(store.log.times.values(), default=0)
    for name, raw in (config or {}).items():
        files.create((CONFIG, name), len(raw))
        files.write((CONFIG, name), 0, np.frombuffer(raw, np.uint8))
    for folder, folders, names in os.walk(files.root, topdown=False):
        inside = os.path.relpath(folder, files.root)
        for name in [*names, *folders]:
            path = tuple(os.path.normpath(os.path.join(inside, name)).split(os.sep))
            files.set_time(path, times.get(path, last))
    store.shutdown()
    files.set_time((), last)


def _times(store: WrittenStore) -> dict[FilePath, int]:
    """The time of the last write to each file, by the store timestamps of the messages in it."""
    times: dict[FilePath, int] = {(COMMIT_LOG, name): time for name, time in store.log.times.items()}
    times |= {(INDEX, file.name): file.header.end_timestamp for file in store.index.files}
    for queue in store.queues.values():
        for file in queue.files:
            unit = units_of(store.files.content(queue.path(file.name)))[file.wrote // CQ_STORE_UNIT_SIZE - 1]
            times[queue.path(file.name)] = _stored_at(store, int(unit["physicOffset"]))
    return times


def _stored_at(store: WrittenStore, offset: int) -> int:
    """CommitLog.pickupStoreTimestamp."""
    log = store.files.content(store.log.path_at(offset))
    return int(store_timestamps(log, locate(log, np.array([offset % store.settings.commit_log_size])))[0])
