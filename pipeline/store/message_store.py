"""A broker's store over files that are only read: the changes of load, start and shutdown stay in memory."""

from __future__ import annotations

from pipeline.files.store_files import StoreFiles
from store_format.files.changed_files import ChangedFiles
from store_format.index.index_dispatch import BUILD_INDEX, RunningIndex
from store_format.store.dispatcher import BitMapOf
from store_format.store.message_store import MessageStore
from store_format.store.store_settings import StoreSettings
from udfs.broker.schedule import deliver_timestamp_of


def store_over(files: StoreFiles, settings: StoreSettings, bit_map_of: BitMapOf | None = None) -> MessageStore[ChangedFiles]:
    """The message store over files that are only read, not loaded yet; `bit_map_of` as for Dispatcher."""
    changed = ChangedFiles(files)
    return MessageStore(
        files=changed,
        settings=settings,
        index=RunningIndex(store=changed, sizes=settings.index_sizes, with_tags=BUILD_INDEX.of(settings.version).value),
        deliver_timestamp=deliver_timestamp_of(settings.delays),
        bit_map_of=bit_map_of,
    )
