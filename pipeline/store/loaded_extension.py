"""Recovers the extension of a consume queue as the broker's load does.

Broker source (4.9.3): ConsumeQueue.load, recover and correctMinOffset, as far as they call ConsumeQueueExt.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.files.store_files import StoreFiles
from pipeline.store.load_files import FileSizes, LogBounds, load_files, load_queue
from store_format.errors import CorruptStoreError
from store_format.files.changed_files import ChangedFiles
from store_format.files.mapped_files import MappedFile
from store_format.queue.consume_queue_ext import UnitUnderflowError
from store_format.queue.extension_dispatch import Extension
from store_format.queue.running_queue import Queue
from store_format.store_paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExtension:
    """The files of one queue's extension after load; `deleted` is the number of files that load deletes."""

    files: tuple[MappedFile, ...] = ()
    deleted: int = 0


def recover_extension(store: StoreFiles, topic: str, queue_id: int, sizes: FileSizes, log: LogBounds) -> LoadedExtension:
    """The extension of a queue after load.

    Raises:
        CorruptStoreError: the broker does not load the extension.
    """
    folder = (CONSUME_QUEUE_EXT, topic, str(queue_id))
    if sizes.extension is None:
        return LoadedExtension()
    extension = Extension(folder=folder, file_size=sizes.extension, files=load_files(store, sizes.extension, *folder))
    queue = Queue(
        topic=topic,
        queue_id=queue_id,
        folder=(CONSUME_QUEUE, topic, str(queue_id)),
        file_size=sizes.consume_queue,
        files=load_queue(store, topic, queue_id, sizes),
        extension=extension,
        min_by_search=log.min_by_search,
    )
    loaded = len(extension.files)
    changed = ChangedFiles(store)
    try:
        queue.recover(changed)
    except UnitUnderflowError as error:
        hint = "the broker does not load such a store"
        raise CorruptStoreError(store.path_of(*folder), "a unit for the last entry that has one", str(error), hint=hint) from error
    if log.truncates_queues:
        queue.truncate_dirty_logic_files(changed, log.max_offset)
    queue.correct_min_offset(changed, log.min_offset)
    return LoadedExtension(files=extension.files, deleted=loaded - len(extension.files))


def has_extension(store: StoreFiles) -> bool:
    """Whether the store has a file of a queue's extension."""
    return any(
        store.folder(CONSUME_QUEUE_EXT, topic.name, queue.name)
        for topic in store.folder(CONSUME_QUEUE_EXT)
        for queue in store.folder(CONSUME_QUEUE_EXT, topic.name)
    )
