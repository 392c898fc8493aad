"""The lengths of files and the settings of the broker that a store depends on.

Broker source (4.9.3): MessageStoreConfig, BrokerConfig.
Surprise: a broker does not learn the lengths from the files. If its lengths are not those of the store, it refuses the store or cuts it.
"""

from __future__ import annotations

from dataclasses import dataclass

from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.errors import StoreError
from store_format.index.index_file import IndexSizes
from store_format.layout import CQ_STORE_UNIT_SIZE

MIN_LOG_FILE = 9  # a BLANK and one byte more
MIN_EXT_FILE = 32  # a unit without a bit map, and the end of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """The lengths of files in bytes, and the settings under their own names, that recovery depends on.

    `delays` are those of messageDelayLevel in ms, level 1 first; None if the broker cannot read it, and load fails.
    `version` is the version of the broker whose rules hold.
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
    is_sync_flush: bool = False
    commit_log_recover_max_num: int = 10
    version: BrokerVersion = DEFAULT_VERSION


def check_sizes(settings: StoreSettings) -> None:
    """Raise if a broker cannot write a store with these settings.

    Raises:
        StoreError: names the setting: a size that is out of range, or messageDelayLevel.
    """
    sizes = {
        "mappedFileSizeCommitLog": (settings.commit_log_size, MIN_LOG_FILE),
        "mappedFileSizeConsumeQueue": (settings.consume_queue_size, CQ_STORE_UNIT_SIZE),
    }
    if settings.enable_consume_queue_ext:
        sizes["mappedFileSizeConsumeQueueExt"] = (settings.ext_size, MIN_EXT_FILE)
    for name, (size, least) in sizes.items():
        if not least <= size < 2**31 or (name == "mappedFileSizeConsumeQueue" and size % CQ_STORE_UNIT_SIZE):
            raise StoreError(name, f"{least} bytes or more, below 2 GiB, whole entries in a queue", str(size))
    if not settings.index_sizes.are_usable:
        raise StoreError("maxHashSlotNum and maxIndexNum", "1 or more and 2 or more, in a file below 2 GiB", str(settings.index_sizes))
    if settings.delays is None:
        raise StoreError("messageDelayLevel", "levels that the broker can read", "others")
