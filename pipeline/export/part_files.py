"""Writes the files of a part of a store that are neither commit log nor queues: index, checkpoint, lock and config.

Broker source (4.9.3): IndexService.buildIndex, StoreCheckpoint, ConsumerOffsetManager, ScheduleMessageService.
Rule: the index is built from the messages in their order, as a broker would. The config files lose only the offsets in queues that are not
in the part.
Surprise: delayOffset.json has offsets in the queues of SCHEDULE_TOPIC_XXXX. In a part without these queues, these offsets would delay the
first new messages of their levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from pipeline.export.part_plan import LogPlan
from pipeline.export.store_folder import OpenFiles, StoreFolder
from pipeline.generate.written_files import WrittenFiles
from pipeline.generate.written_index import WrittenIndex
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.rows.log_batches import walks
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import BrokerSettings
from store_format.broker_version import BrokerVersion
from store_format.config import config_files as cf
from store_format.config.fastjson_writer import TO_JSON
from store_format.errors import StoreError
from store_format.files.mapped_files import offset_to_file_name
from store_format.index.index_dispatch import BUILD_INDEX
from store_format.index.index_file import DEFAULT_INDEX_SIZES, IndexSizes
from store_format.log.commit_log import WalkEnd
from store_format.log.dispatch_request import SCHEDULE_TOPIC, read_requests
from store_format.store.checkpoint import CHECKPOINT_LENGTH, StoreCheckpoint, encode_checkpoint
from store_format.store_paths import CHECKPOINT_FILE, COMMIT_LOG, CONFIG, LOCK, LOCK_FILE

_DELAYS = f"{CONFIG}/delayOffset.json"
_INDEX_DDL = "files INT, indexMsgTimestamp BIGINT"
_INDEX_ARROW = arrow_of(_INDEX_DDL)


def _settings(broker: OpenedBroker) -> BrokerSettings:
    return BrokerSettings.from_sources(stored=broker.properties())


def write_index(broker: OpenedBroker, folder: StoreFolder, plan: LogPlan, sizes: dict[str, Any]) -> tuple[int, int]:
    """Write the index files of the written log; returns their number and the checkpoint's indexMsgTimestamp.

    Raises:
        StoreError: the log on disk is not the planned one.
    """
    settings = _settings(broker)
    if not settings.value("messageIndexEnable"):
        return 0, 0
    with_tags: bool = BUILD_INDEX.of(settings.version).value
    index_sizes = IndexSizes(
        hash_slot_num=sizes.get("maxHashSlotNum") or DEFAULT_INDEX_SIZES.hash_slot_num,
        index_num=sizes.get("maxIndexNum") or DEFAULT_INDEX_SIZES.index_num,
    )
    # one task: each entry needs the last entry before it in its slot
    built = (
        broker.lake.spark.range(0, 1, 1, 1)
        .mapInArrow(partial(_build_index, folder, plan, index_sizes, with_tags, settings.version), _INDEX_DDL)
        .head()
    )
    return (0, 0) if built is None else (built["files"], built["indexMsgTimestamp"])


def _build_index(
    folder: StoreFolder, plan: LogPlan, sizes: IndexSizes, with_tags: bool, version: BrokerVersion, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        files = WrittenFiles(folder.root)
        index = WrittenIndex(files, sizes, with_tags=with_tags)
        for offset in plan.files:
            _index_file(files, index, offset, plan, version)
        index.settle()
        row = {"files": len(index.files), "indexMsgTimestamp": index.index_msg_timestamp}
        yield pa.RecordBatch.from_pylist([row], schema=_INDEX_ARROW)


def _index_file(files: WrittenFiles, index: WrittenIndex, offset: int, plan: LogPlan, version: BrokerVersion) -> None:
    path = (COMMIT_LOG, offset_to_file_name(offset))
    content = files.content(path)
    end = min(plan.end - offset, plan.file_size)
    for part in walks(content, end, version=version):
        requests = read_requests(content, part.positions, None)
        if len(requests) < len(part.positions):
            bad = int(part.positions[len(requests)])
            raise StoreError(files.path_of(path), "a message whose delay level is a number", "one that no broker reads", position=bad)
        index.build_index(requests)
        if part.ended is not None and part.ended is not WalkEnd.BLANK and part.end != end:
            raise StoreError(files.path_of(path), f"messages up to byte {end}", f"none at {part.end}", position=part.end)


def write_checkpoint(folder: StoreFolder, newest: int, index_msg_timestamp: int) -> None:
    """Write the checkpoint and the lock file; `newest` is the storeTimestamp of the last message, ms."""
    checkpoint = StoreCheckpoint(physic_msg_timestamp=newest, logics_msg_timestamp=newest, index_msg_timestamp=index_msg_timestamp)
    _write(folder, CHECKPOINT_FILE, encode_checkpoint(checkpoint)[:CHECKPOINT_LENGTH])
    _write(folder, LOCK_FILE, LOCK)


def _write(folder: StoreFolder, path: str, content: bytes) -> None:
    folder.create(path, len(content), 0)
    with OpenFiles(folder) as files:
        files.write(path, 0, content)


def write_config(broker: OpenedBroker, folder: StoreFolder, topics: tuple[str, ...]) -> int:
    """Write the config files without offsets in queues of topics other than `topics`; returns their number."""
    found = _config(broker)
    if topics:
        settings = _settings(broker)
        files = {enable_lmq: cf.offsets_file(enable_lmq=enable_lmq) for enable_lmq in (False, True)}
        left_out = {f"{CONFIG}/{name}{more}" for name, _ in files.values() for more in ("", ".bak")}
        left_out |= set() if SCHEDULE_TOPIC.decode() in topics else {_DELAYS, f"{_DELAYS}.bak"}
        name, decode = files[settings.value("enableLmq")]
        path = f"{CONFIG}/{name}"
        offsets = cf.load(found.get(path), found.get(f"{path}.bak"), path, decode).table
        found = {path: content for path, content in found.items() if path not in left_out}
        if offsets.offsetTable or offsets.pullOffsetTable or offsets.lmqOffsetTable:
            found[path] = cf.encode_consumer_offsets(offsets.of_topics(topics), TO_JSON.of(settings.version).value)
    for path, content in found.items():
        _write(folder, path, content)
    return len(found)


def _config(broker: OpenedBroker) -> dict[str, bytes]:
    """The bytes of each file below config/."""
    is_config = F.col("kind") == CONFIG
    files = broker.table(t.STORE_FILE).select("kind", "path", "length").where(is_config).collect()
    found = {row["path"]: np.zeros(row["length"], np.uint8) for row in files}
    for row in broker.table(t.STORE_FILE_RANGE).select("kind", "path", "position", "bytes").where(is_config).toLocalIterator():
        found[row["path"]][row["position"] : row["position"] + len(row["bytes"])] = np.frombuffer(row["bytes"], np.uint8)
    return {path: content.tobytes() for path, content in found.items()}
