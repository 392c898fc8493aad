"""Computes the changes that the broker's load and start make to a store, as ranges over its files.

Broker source (4.9.3): DefaultMessageStore.load and start. They read and dispatch one record after the other; so does this module, on the
driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.files.store_files import StoreFiles
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.store.cut_log import cut_off
from pipeline.store.filter_bit_maps import bit_map_of
from pipeline.store.message_store import store_over
from pipeline.store.store_settings import store_settings
from store_format.errors import CorruptStoreError
from store_format.files.changed_files import ChangedFiles
from store_format.files.files import FilePath
from store_format.files.mapped_files import MappedFile
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.queue.running_queue import Queue
from store_format.store.message_store import MessageStore
from store_format.store_paths import ABORT_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedStore:
    """A store after load and start.

    Attributes:
        store: the store's files with the changes.
        log_files: files of the commit log.
        queues: queues of all topics.
        notes: the changes, for people.
        lost: whole messages that load cuts off the log.
    """

    store: StoreFiles
    log_files: tuple[MappedFile, ...]
    queues: tuple[Queue, ...]
    notes: tuple[str, ...]
    lost: int


def start_store(files: StoreFiles, settings: BrokerSettings) -> StartedStore:
    """The state of the store with these files after load and start.

    Raises:
        CorruptStoreError: load fails, or start never ends.
    """
    store = store_over(files, store_settings(files, settings), bit_map_of(files, settings))
    if not store.load():
        raise CorruptStoreError(files.root, "a store that the broker loads", store.failure)
    in_load = _dispatched("load", store)
    if store.start() != "ok":
        raise CorruptStoreError(files.root, "a store that the broker starts", f"a start that never ends: {store.failure}")
    deleted = frozenset(store.files.deleted)
    # ConsumeQueue.destroy deletes the folder, too
    gone = frozenset(queue.folder for queue in store.queues.values() if not queue.has_folder and not queue.files)
    changes = store.files.joined()
    # if start's abort file is the only change, the store still counts as shut down cleanly: the file is left out
    cut, lost = _cut(files, store.log_files)
    is_clean = not deleted and not gone and changes.keys() == {(ABORT_FILE,)}
    return StartedStore(
        store=files if is_clean else files.changed(changes, deleted | gone),
        log_files=store.log_files,
        queues=tuple(store.queues.values()),
        notes=(*cut, *_deletions(files, deleted), *in_load, *_dispatched("start", store)),
        lost=lost,
    )


def _cut(files: StoreFiles, log_files: tuple[MappedFile, ...]) -> tuple[tuple[str, ...], int]:
    """A note on what load cuts off the log, if anything, and the number of whole messages in it."""
    last = log_files[-1] if log_files else None
    found = None if last is None else cut_off(files, last.from_offset + last.wrote)
    if found is None:
        return (), 0
    return (f"{found.path}, byte {found.position}: the broker's load would cut the log there, and lose {found.lost}",), found.messages


def _dispatched(when: str, store: MessageStore[ChangedFiles]) -> tuple[str, ...]:
    count, first = store.dispatcher.count, store.dispatcher.first_offset
    return (f"the broker's {when} would dispatch {counted(count, 'message')} again, from commit log offset {first} on",) if count else ()


def _deletions(files: StoreFiles, deleted: frozenset[FilePath]) -> list[str]:
    return [f"{files.path_of(*path)}: the broker's load would delete it" for path in sorted(deleted)]


def bounds(queue: Queue) -> tuple[int, int]:
    """(min offset, max offset) of a queue, in entries."""
    return queue.min_logic_offset // CQ_STORE_UNIT_SIZE, queue.max_offset
