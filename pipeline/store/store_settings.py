"""The settings and file lengths that load, start and recovery of a store depend on; unknown lengths are inferred from the files."""

from __future__ import annotations

from pipeline.files.store_files import StoreFiles
from pipeline.settings.settings import BrokerSettings
from pipeline.store.load_files import file_sizes
from store_format.files.files import FilePath
from store_format.files.mapped_files import file_size_of
from store_format.index.index_file import DEFAULT_INDEX_SIZES, IndexSizes
from store_format.index.index_service import is_index_file_name
from store_format.index.index_sizes import infer_index_sizes
from store_format.queue.consume_queue_ext import DEFAULT_EXT_FILE_SIZE
from store_format.store.store_settings import StoreSettings
from store_format.store_paths import CONSUME_QUEUE_EXT, INDEX
from udfs.broker.schedule import DelayLevelError, parse_delay_level

_SLAVE, _SYNC_FLUSH = "SLAVE", "SYNC_FLUSH"


def store_settings(files: StoreFiles, settings: BrokerSettings) -> StoreSettings:
    """The StoreSettings of the broker's settings; file lengths that they do not have are inferred from the files."""
    explicit = {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")}
    sizes = file_sizes(files, explicit)
    value = settings.value
    try:
        delays = parse_delay_level(value("messageDelayLevel"))
    except DelayLevelError:
        delays = None
    return StoreSettings(
        commit_log_size=sizes.commit_log,
        consume_queue_size=sizes.consume_queue,
        ext_size=ext_size(files, settings),
        index_sizes=index_sizes(files, settings),
        delays=delays,
        is_slave=value("brokerRole") == _SLAVE,
        is_master=value("brokerId") == 0,
        check_crc_on_recover=value("checkCRCOnRecover"),
        message_index_enable=value("messageIndexEnable"),
        message_index_safe=value("messageIndexSafe"),
        enable_consume_queue_ext=value("enableConsumeQueueExt"),
        enable_multi_dispatch=value("enableMultiDispatch"),
        enable_lmq=value("enableLmq"),
        duplication_enable=value("duplicationEnable"),
        is_sync_flush=value("flushDiskType") == _SYNC_FLUSH,
        commit_log_recover_max_num=value("commitLogRecoverMaxNum"),
        version=settings.version,
    )


def ext_size(files: StoreFiles, settings: BrokerSettings) -> int:
    """The length of the extensions' files: from the settings, else the commonest length, else 4.9.3's default."""
    given: int | None = settings.explicit("mappedFileSizeConsumeQueueExt")
    folders: list[FilePath] = [(CONSUME_QUEUE_EXT,)]
    for _ in ("topic", "queueId"):
        folders = [(*folder, entry.name) for folder in folders for entry in files.folder(*folder)]
    lengths = (entry.length for folder in folders for entry in files.folder(*folder) if entry.length and not entry.is_folder)
    return given or file_size_of(lengths, DEFAULT_EXT_FILE_SIZE)


def index_sizes(files: StoreFiles, settings: BrokerSettings) -> IndexSizes:
    """The sizes of the index files: from the settings, else inferred from the chains in the files.

    Raises:
        CorruptStoreError: the chains agree with no sizes, or with several.
    """
    slots, entries = settings.explicit("maxHashSlotNum"), settings.explicit("maxIndexNum")
    if slots is None and entries is None:
        names = [entry.name for entry in files.folder(INDEX) if not entry.is_folder and is_index_file_name(entry.name)]
        return infer_index_sizes([(name, files.content(INDEX, name)) for name in names]) or DEFAULT_INDEX_SIZES
    return IndexSizes(
        hash_slot_num=DEFAULT_INDEX_SIZES.hash_slot_num if slots is None else slots,
        index_num=DEFAULT_INDEX_SIZES.index_num if entries is None else entries,
    )
