"""Parts of a store of broker 5.x that are not modelled: queues and config in RocksDB, tiered storage, compaction, batch queues.

Broker source (5.5.0): StorePathConfigHelper, RocksDBConsumeQueueStore, ConfigStorage, DefaultMetadataStore (tieredstore), CompactionStore,
BatchConsumeQueue, TopicAttributes.
Rule: each part has a folder or file of its own, or its topics have an attribute.
Surprise: `rocksdbstore` and `compaction/position-checkpoint` are made on default settings too, and mean nothing to a pull.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from store_format.files.files import FilePath
from store_format.store_paths import CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a store that is not modelled.

    Attributes:
        folders: folders that have files only if the store has the part.
        files: files that exist only if the store has the part.
        attribute: name and value of the attribute of a topic that has the part; None if there is none.
        what: the part in words, after "found".
        hint: what to do.
    """

    folders: tuple[FilePath, ...] = ()
    files: tuple[FilePath, ...] = ()
    attribute: tuple[str, str] | None = None
    what: str
    hint: str


ROCKSDB_QUEUES: Final = Part(
    folders=(("consumequeue_rocksdb",),),
    what="queues in RocksDB (storeType=defaultRocksDB)",
    hint="import a copy that has commitlog alone: its queues are rebuilt, right where the log has every message of a queue, and offsets of "
    "groups are unknown; where config/consumerOffset.json is there, copy config too",
)
# v1 keeps one RocksDB in `metadata` or one in each of three folders, v2 (configManagerVersion) one in `rdb`
ROCKSDB_CONFIG: Final = Part(
    folders=tuple((CONFIG, name) for name in ("metadata", "topics", "subscriptionGroups", "consumerOffsets", "rdb")),
    what="config in RocksDB",
    hint="write it as JSON with mqadmin rocksDBConfigToJson, and import a copy of the store with these files under config",
)
TIERED_STORAGE: Final = Part(
    files=((CONFIG, "tieredStoreMetadata.json"),),
    what="tiered storage (TieredMessageStore)",
    hint="pulls below the local log are answered from the other tier; import a copy without this file to ask the local files alone",
)
COMPACTION: Final = Part(
    folders=(("compaction", "compactionLog"), ("compaction", "compactionCq")),
    attribute=("cleanup.policy", "COMPACTION"),
    what="a compaction topic",
    hint="its pulls are answered from compaction/compactionLog; import a copy without the topic and this folder to ask the others",
)
BATCH_QUEUES: Final = Part(
    folders=(("batchconsumequeue",),),
    attribute=("queue.type", "BatchCQ"),
    what="batch consume queues (queue.type=BatchCQ)",
    hint="import a copy without such topics to ask the others",
)
PARTS: Final = (ROCKSDB_QUEUES, ROCKSDB_CONFIG, TIERED_STORAGE, COMPACTION, BATCH_QUEUES)
