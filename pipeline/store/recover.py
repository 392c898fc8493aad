"""Computes the state of a store after the broker's load, start and clean shutdown, in the form of golden/store/recover/*.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pipeline.files.store_files import StoreFiles, local_path
from pipeline.files.whole_file import whole_file
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings, load_catalogue
from pipeline.store.cut_log import cut_off
from pipeline.store.filter_bit_maps import bit_map_of, bloom_filter
from pipeline.store.message_store import store_over
from pipeline.store.refused_parts import refuse_parts
from pipeline.store.store_settings import store_settings
from store_format.broker_version import DEFAULT_VERSION
from store_format.errors import StoreError
from store_format.files.changed_files import ChangedFiles
from store_format.files.files import Entry, FilePath
from store_format.files.mapped_files import max_offset, min_offset
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.queue.running_queue import Queue
from store_format.store.checkpoint import CHECKPOINT, CHECKPOINT_LENGTH, OFFSETS, StoreCheckpoint, decode_checkpoint
from store_format.store.message_store import MessageStore
from store_format.store.store_settings import StoreSettings
from store_format.store_paths import ABORT_FILE, CHECKPOINT_FILE, INDEX

_SLAVE = "SLAVE"
_HASHED_AT_ONCE = 16 << 20
_NEW_INDEX_FILE = f"{INDEX}/<new>"  # the broker names it by the wall clock
_AFTER_NEW_INDEX_FILES = f"{INDEX}/3"  # a name by a clock of this millennium later than the store's
_UNDERFLOW = "exception: java.nio.BufferUnderflowException"
_CONFIG_NAMES = (
    "brokerRole",
    "offsetCheckInSlave",
    "accessMessageInMemoryMaxRatio",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    "diskFallRecorded",
    "enableConsumeQueueExt",
    "messageIndexEnable",
    "messageIndexSafe",
    "maxMsgsNumBatch",
    "defaultQueryMaxNum",
    "checkCRCOnRecover",
    "duplicationEnable",
    "messageDelayLevel",
    "enableLmq",
    "enableMultiDispatch",
    "maxLmqConsumeQueueNum",
    "maxMessageSize",
    "flushDiskType",
    "transientStorePoolEnable",
    "totalPhysicalMemorySize",
    "brokerId",
    "enableCalcFilterBitMap",
    "filterSupportRetry",
    "readable",
)
_LATER_NAMES = (
    "storeType",
    "maxFilterMessageSize",
    "travelCqFileNumWhenGetMessage",
    "commitLogRecoverMaxNum",
    "enableAcceleratedRecovery",
    "checkCommitLogOffsetOnRecover",
    "recheckReputOffsetFromCq",
    "enableBuildConsumeQueueConcurrently",
    "coldDataFlowControlEnable",
    "timerWheelEnable",
    "enabledAppendPropCRC",
)


def run_recover(store: str, *, settings: BrokerSettings) -> dict[str, Any]:
    """The recovery of a store directory, an object as in golden/store/recover/*.json; nothing is written.

    Args:
        store: the directory or its URI.
        settings: the broker's settings; file lengths that they do not have are inferred from the files.

    Raises:
        StoreError: there is no store, or its recovery cannot be computed.
    """
    files = StoreFiles(store)
    files.check_exists()
    refuse_parts(files, settings)
    bit_maps = bit_map_of(files, settings)
    message_store = store_over(files, store_settings(files, settings), bit_maps)
    told: dict[str, Any] = {"kind": "recover", "store": files.root.rstrip("/").rpartition("/")[2]}
    if settings.version != DEFAULT_VERSION:
        told["version"] = settings.version.value
    told["config"] = _config(settings, message_store.settings)
    told["before"] = _before(files, with_offsets=message_store.with_offsets)
    told["load"] = message_store.load()
    told["redispatchedInLoad"] = message_store.dispatcher.count
    told["redispatchedInLoadFrom"] = message_store.dispatcher.first_offset
    told["afterLoad"] = _state(message_store) if told["load"] else None
    if not told["load"]:
        return told
    told["start"] = message_store.start()
    told["redispatchedInStart"] = message_store.dispatcher.count
    told["redispatchedInStartFrom"] = message_store.dispatcher.first_offset
    told["afterStart"] = _state(message_store)
    if told["start"] == "ok":
        message_store.shutdown()
        told["afterShutdown"] = _after_shutdown(files, message_store, told["before"]["files"])
    return told


def summary(recovery: dict[str, Any], store: str) -> str:
    """One sentence for people about `recovery`, the result of `run_recover` for the directory or URI `store`."""
    if not recovery["load"]:
        return f"{recovery['store']}: load fails, the broker would not start"
    state = recovery["afterStart"]
    starts = "the broker would start" if recovery["start"] == "ok" else "the broker's start would never end"
    reach = f"reach from offset {state['minPhyOffset']:,} to {state['maxPhyOffset']:,}" if state["maxPhyOffset"] > 0 else "be empty"
    again = [
        f"{when} dispatches {counted(recovery[name], 'message')} again"
        for when, name in (("load", "redispatchedInLoad"), ("start", "redispatchedInStart"))
        if recovery[name]
    ]
    cut = cut_off(StoreFiles(store), state["maxPhyOffset"])
    if cut is not None:
        reach += f", and lose {cut.lost} after that offset"
    return f"{recovery['store']}: {starts}; its commit log would {reach}; {', '.join(again) or 'no message is dispatched again'}"


def write_recovery(recovery: dict[str, Any], out: str) -> None:
    """Write `recovery`, the result of `run_recover`, as JSON to the file `out`."""
    try:
        with whole_file(local_path(out)) as file:
            file.write((json.dumps(recovery, indent="\t", ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise StoreError(out, "a file that can be written", str(error.strerror or error)) from error


def _config(settings: BrokerSettings, used: StoreSettings) -> dict[str, Any]:
    bloom = bloom_filter(settings)
    rate, consumers = settings.value("maxErrorRateOfBloomFilter"), settings.value("expectConsumerNumUseFilter")
    return {
        **{name: settings.value(name) for name in (*_CONFIG_NAMES, *_LATER_NAMES) if name in load_catalogue(settings.version)},
        "mappedFileSizeCommitLog": used.commit_log_size,
        "mappedFileSizeConsumeQueue": used.consume_queue_size,
        "mappedFileSizeConsumeQueueExt": used.ext_size,
        "bitMapLengthConsumeQueueExt": settings.explicit("bitMapLengthConsumeQueueExt") or bloom.m,
        "maxHashSlotNum": used.index_sizes.hash_slot_num,
        "maxIndexNum": used.index_sizes.index_num,
        "bloom": {"errorRate": rate, "expectConsumers": consumers, "k": bloom.k, "m": bloom.m},
    }


# files --------------------------------------------------------------------------------------------------------------------------------


def _walk(files: StoreFiles, folder: FilePath = ()) -> Iterator[tuple[FilePath, int]]:
    """The path and length of every file of the store."""
    entries: list[Entry] = files.folder(*folder)
    for entry in entries:
        if entry.is_folder:
            yield from _walk(files, (*folder, entry.name))
        else:
            yield (*folder, entry.name), entry.length


def _java_order(path: str) -> bytes:
    """A sort key for the order of String.compareTo, by UTF-16 units."""
    return path.encode("utf-16-be", "surrogatepass")


def _file(changed: ChangedFiles, path: FilePath) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for piece in changed.pieces(path, _HASHED_AT_ONCE):
        digest.update(np.ascontiguousarray(piece).data)
        size += len(piece)
    return {"path": "/".join(path), "size": size, "sha256": digest.hexdigest()}


def _checkpoint(checkpoint: StoreCheckpoint, *, with_offsets: bool) -> dict[str, int]:
    times = {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
        "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp,
    }
    offsets = {
        "masterFlushedOffset": checkpoint.master_flushed_offset,
        "confirmPhyOffset": checkpoint.confirm_phy_offset,
        "logicsPhysicalOffset": checkpoint.logics_physical_offset,
    }
    return times | offsets if with_offsets else times


def _checkpoint_file(raw: bytes | None, *, with_offsets: bool) -> dict[str, int] | None:
    if raw is None:
        return None
    least = CHECKPOINT.itemsize + (OFFSETS.itemsize if with_offsets else 0)
    found = decode_checkpoint(raw, with_offsets=with_offsets)
    return _checkpoint(found, with_offsets=with_offsets) if len(raw) >= least else {"size": len(raw)}


def _before(files: StoreFiles, *, with_offsets: bool) -> dict[str, Any]:
    unchanged = ChangedFiles(files)
    listed = [_file(unchanged, path) for path, _ in _walk(files)]
    return {
        "abort": any(file["path"] == ABORT_FILE for file in listed),
        "checkpoint": _checkpoint_file(files.head(CHECKPOINT_LENGTH, CHECKPOINT_FILE), with_offsets=with_offsets),
        "files": sorted(listed, key=lambda file: _java_order(file["path"])),
    }


def _after_shutdown(files: StoreFiles, store: MessageStore[ChangedFiles], before: Sequence[dict[str, Any]]) -> dict[str, Any]:
    changed = store.files
    known = {file["path"]: file for file in before}
    listed = []
    for path, _ in _walk(files):
        if path not in changed.deleted and path not in changed.changes:
            listed.append(known["/".join(path)])
    listed += [_file(changed, path) for path in changed.changes if not _is_new_index_file(store, path)]
    listed.sort(key=lambda file: _java_order(file["path"]))
    new = [_file(changed, path) | {"path": _NEW_INDEX_FILE} for path in changed.changes if _is_new_index_file(store, path)]
    place = sum(_java_order(file["path"]) < _java_order(_AFTER_NEW_INDEX_FILES) for file in listed)
    return {
        "abort": store.is_aborted,
        "checkpoint": _checkpoint(store.checkpoint, with_offsets=store.with_offsets),
        "files": listed[:place] + new + listed[place:],
    }


def _is_new_index_file(store: MessageStore[ChangedFiles], path: FilePath) -> bool:
    return path[0] == INDEX and store.files.is_created(path)


# state --------------------------------------------------------------------------------------------------------------------------------


def _state(store: MessageStore[ChangedFiles]) -> dict[str, Any]:
    checkpoint = store.checkpoint
    queues = sorted(store.queues.values(), key=lambda queue: (_java_order(queue.topic), queue.queue_id))
    return {
        "minPhyOffset": min_offset(store.log_files),
        "maxPhyOffset": max_offset(store.log_files),
        "commitLogFiles": [file.name for file in store.log_files],
        "abort": store.is_aborted,
        "checkpointInMemory": _checkpoint(checkpoint, with_offsets=store.with_offsets)
        | {"minTimestamp": checkpoint.min_timestamp, "minTimestampIndex": checkpoint.min_timestamp_index},
        "indexFiles": [_camel_case(asdict(file.header)) for file in store.index.files],
        "queues": [_queue(store, queue) for queue in queues if queue.files or queue.has_folder],
    }


def _camel_case(fields: dict[str, int]) -> dict[str, int]:
    names = {name: name.split("_") for name in fields}
    return {first + "".join(map(str.capitalize, others)): fields[name] for name, (first, *others) in names.items()}


def _queue(store: MessageStore[ChangedFiles], queue: Queue) -> dict[str, Any]:
    last = queue.last_offset(store.files)
    row = {
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "minOffsetInQueue": queue.min_logic_offset // CQ_STORE_UNIT_SIZE,
        "maxOffsetInQueue": queue.max_offset,
        "minLogicOffset": queue.min_logic_offset,
        "maxPhysicOffset": queue.max_physic_offset,
        "lastOffset": _UNDERFLOW if last is None else last,
        "files": [file.name for file in queue.files],
    }
    if queue.extension is not None:
        row["extFiles"] = [file.name for file in queue.extension.files]
        row["extMinAddress"] = queue.extension.min_address
        row["extMaxAddress"] = queue.extension.max_address
    return row
