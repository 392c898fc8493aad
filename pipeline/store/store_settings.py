"""The settings for load, start and recovery of a store, with file lengths that are inferred from the files.

Broker source (4.9.3): MessageStoreConfig, BrokerConfig.
Surprise: a broker does not infer lengths. If its settings have other lengths than the store's files, it refuses the store or truncates it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.files.store_files import StoreFiles
from pipeline.settings.settings import BrokerSettings
from pipeline.store.load_files import file_sizes
from store_format.files.changed_files import FilePath
from store_format.files.mapped_files import file_size_of
from store_format.index.index_file import DEFAULT_INDEX_SIZES, IndexSizes
from store_format.index.index_service import is_index_file_name
from store_format.index.index_sizes import infer_index_sizes
from store_format.queue.consume_queue_ext import DEFAULT_EXT_FILE_SIZE
from store_format.store_paths import CONSUME_QUEUE_EXT, INDEX
from udfs.broker.schedule import DelayLevelError, parse_delay_level

_SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The settings for recovery: lengths of files in bytes, and the broker's settings by their names in snake case.

    Attributes:
        delays: delays of messageDelayLevel in ms, level 1 first; None where the broker cannot read the setting, and load fails.
    """

    commit_log_size: int
    consume_queue_size: int
    ext_size: int
    index_sizes: IndexSizes
    delays: tuple[int, ...] | None
    is_slave: bool = False
    is_master: bool = True
    check_crc_on_recover: bool = True
    message_index_enable: bool = True
    message_index_safe: bool = False
    enable_consume_queue_ext: bool = False
    enable_multi_dispatch: bool = False
    enable_lmq: bool = False
    duplication_enable: bool = False


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
    )


def ext_size(files: StoreFiles, settings: BrokerSettings) -> int:
    """The length of the extensions' files: by the settings, else the commonest length, else 4.9.3's default."""
    given: int | None = settings.explicit("mappedFileSizeConsumeQueueExt")
    folders: list[FilePath] = [(CONSUME_QUEUE_EXT,)]
    for _ in ("topic", "queueId"):
        folders = [(*folder, entry.name) for folder in folders for entry in files.folder(*folder)]
    lengths = (entry.length for folder in folders for entry in files.folder(*folder) if entry.length and not entry.is_folder)
    return given or file_size_of(lengths, DEFAULT_EXT_FILE_SIZE)


def index_sizes(files: StoreFiles, settings: BrokerSettings) -> IndexSizes:
    """The sizes of the index files: by the settings, else inferred from the chains in the files.

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
