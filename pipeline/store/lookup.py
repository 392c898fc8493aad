"""`pullsim lookup`: runs the operations of golden/store/lookup/*.jsonl on a store after the broker's load and start.

Rule: modification times of queue files come from the header of the requests, or from the files if the header does not have them.
Surprise: the modification time of a queue file to which start would write is the time of the look-up, not that of the file in the store.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from pipeline.files.json_text import json_text
from pipeline.files.store_files import StoreFiles, is_uri, local_path
from pipeline.files.whole_file import whole_file
from pipeline.settings.settings import BrokerSettings
from pipeline.store.load_files import FileSizes, load_log, load_queue, queue_ids, topics
from pipeline.store.lookup_requests import LookupRequest, open_requests
from pipeline.store.message_store import store_over
from pipeline.store.refused_parts import refuse_parts
from pipeline.store.store_settings import store_settings
from store_format.errors import CorruptStoreError, NotAStoreError, StoreError
from store_format.files.changed_files import ChangedFiles
from store_format.files.files import FilePath
from store_format.files.mapped_files import MappedFile, max_offset, min_offset
from store_format.record.message import Host, Message, decode, decode_text
from store_format.store.lookup import NULL_POINTER, LoadedFiles, ThrownError
from store_format.store.lookup_by_time import LOOK_UPS, Boundary, earliest_message_time, offset_by_time
from store_format.store.message_store import MessageStore
from store_format.store.query_message import query_message
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE

UNANSWERABLE = "CORRUPT_STORE"
_JUST_WRITTEN = 2**63 - 1
# numbers of mapped files that stay open, and of files of a remote file system that stay in memory
_OPEN_FILES, _OPEN_REMOTE_FILES = 512, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupReport:
    """The number of requests of a run, and the number of unanswered requests by error code."""

    requests: int
    unanswered: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupStore:
    """A store after load and start, with the settings that look-ups need.

    Attributes:
        by_boundary: the value of LOOK_UPS in the broker's version.
        broker_is_v6: whether brokerIP1 is an IPv6 address.
    """

    store: MessageStore[ChangedFiles]
    files: LoadedFiles
    max_message_size: int
    max_msgs_num_batch: int
    by_boundary: bool
    broker_is_v6: bool


def open_store(store: str, settings: BrokerSettings, mtimes_ms: Mapping[str, int]) -> LookupStore:
    """The store in a directory after the broker's load and start; nothing is written.

    Args:
        store: directory of the store.
        settings: the broker's settings; file lengths that they do not have are inferred from the files.
        mtimes_ms: modification times of queue files in ms by path below the store; a file without one keeps its own.

    Raises:
        StoreError: there is no store, or the broker would not load or start it.
    """
    files = StoreFiles(store)
    files.check_exists()
    if not files.folder(COMMIT_LOG) and not files.folder(CONSUME_QUEUE):
        raise NotAStoreError(
            files.root, "a store with files under commitlog", "none", hint="give the directory that storePathRootDir names"
        )
    refuse_parts(files, settings)
    loaded = store_over(files, store_settings(files, settings))
    if not loaded.load():
        _refuse(files, FileSizes(commit_log=loaded.settings.commit_log_size, consume_queue=loaded.settings.consume_queue_size))
    if loaded.start() != "ok":
        raise CorruptStoreError(files.root, "a store that the broker starts on", "one on which its start never ends")
    return LookupStore(
        store=loaded,
        files=_loaded_files(loaded, mtimes_ms, _OPEN_REMOTE_FILES if is_uri(files.root) else _OPEN_FILES),
        max_message_size=settings.value("maxMessageSize"),
        max_msgs_num_batch=settings.value("maxMsgsNumBatch"),
        by_boundary=LOOK_UPS.of(settings.version).value,
        broker_is_v6=":" in (settings.value("brokerIP1") or ""),
    )


def _refuse(files: StoreFiles, sizes: FileSizes) -> NoReturn:
    """Raise the error for a store that the broker does not load; it usually names a file with a wrong length or name."""
    if files.folder(COMMIT_LOG):
        load_log(files, sizes)
    for topic in topics(files):
        for queue_id in queue_ids(files, topic):
            load_queue(files, topic, queue_id, sizes)
    raise CorruptStoreError(files.root, "a store that the broker loads", "one on whose recovery its load fails")


def _loaded_files(store: MessageStore[ChangedFiles], mtimes_ms: Mapping[str, int], open_files: int) -> LoadedFiles:
    def mtime_of(path: FilePath, file: MappedFile) -> int:
        found = _JUST_WRITTEN if path in store.files.changes else file.mtime_ms
        return mtimes_ms.get("/".join(path), found)

    return store.lookup(lru_cache(maxsize=open_files)(store.files.content), mtime_of)


def _offset_by_time(store: LookupStore, request: LookupRequest) -> dict[str, Any]:
    queue = store.files.queue(request["topic"], request["queueId"])
    timestamp, log = request["timestamp"], store.files.log
    if not store.by_boundary:
        return _or_thrown(lambda: queue.offset_by_time(timestamp, log))
    lower = _or_thrown(lambda: offset_by_time(queue, timestamp, log, Boundary.LOWER))
    upper = _or_thrown(lambda: offset_by_time(queue, timestamp, log, Boundary.UPPER))
    return lower | {f"{name}Upper": value for name, value in upper.items()}


def _message_store_time(store: LookupStore, request: LookupRequest) -> dict[str, Any]:
    queue = store.files.queue(request["topic"], request["queueId"])
    offset = request["consumeQueueOffset"]
    answer: dict[str, Any] = {"result": queue.message_store_time(offset, store.files.log)}
    try:
        return answer | {"commitLogOffsetInQueue": queue.commit_log_offset(offset)}
    except ThrownError as thrown:
        return answer | {"commitLogOffsetException": thrown.java_class}


def _earliest_message_time(store: LookupStore, request: LookupRequest) -> dict[str, Any]:
    queue = store.files.queue(request["topic"], request["queueId"])
    return {
        "result": queue.earliest_message_time(store.files.log),
        "minOffsetInQueue": queue.min_offset,
        "maxOffsetInQueue": queue.max_offset,
        "messageTotalInQueue": queue.max_offset - queue.min_offset,
    }


def _earliest_message_time_of_store(store: LookupStore, _request: LookupRequest) -> dict[str, Any]:
    log = store.files.log
    if store.by_boundary:
        return _or_thrown(lambda: earliest_message_time(log, broker_is_v6=store.broker_is_v6))
    return _or_thrown(lambda: log.earliest_message_time(store.max_message_size))


def _query_message(store: LookupStore, request: LookupRequest) -> dict[str, Any]:
    topic, key, max_num, begin, end = (request[name] for name in ("topic", "key", "maxNum", "begin", "end"))
    index, batch = store.store.index.files, store.max_msgs_num_batch
    try:
        found = query_message(index, store.files.log, topic, key, max_num, begin, end, batch=batch)
    except ThrownError as thrown:
        return {"exception": thrown.java_class}
    decoded = [decode(message.content.tobytes(), uncompress_body=False, version=store.store.settings.version) for message in found.messages]
    return {
        "indexLastUpdateTimestamp": found.index_last_update_timestamp,
        "indexLastUpdatePhyoffset": found.index_last_update_phyoffset,
        "bufferTotalSize": found.buffer_total_size,
        "phyOffsets": [None if message is None else message.physic_offset for message in decoded],
    }


def _look_message(store: LookupStore, request: LookupRequest) -> dict[str, Any]:
    log, offset = store.files.log, request["commitLogOffset"]
    answer = _or_thrown(lambda: _brief(log.look_message(offset)))
    try:
        found = log.select_one_message(offset)
    except ThrownError as thrown:
        return answer | {"selectException": thrown.java_class}
    selected = None
    if found is not None:
        selected = {"startOffset": found.start_offset, "size": len(found.content), "rawCrc32": zlib.crc32(found.content.tobytes())}
    return answer | {"selectOneMessageByOffset": selected}


def _or_thrown(result: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": result()}
    except ThrownError as thrown:
        return {"exception": thrown.java_class}


def _brief(message: Message | None) -> dict[str, Any] | None:
    if message is None:
        return None
    if not message.properties:  # MessageExt.getProperties is null; the recorded answer is the exception of reading it
        raise ThrownError(NULL_POINTER)
    properties = message.properties_map()
    return {
        "topic": decode_text(message.topic),
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physic_offset,
        "storeSize": message.store_size,
        "msgId": message.msg_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodyCRC": message.body_crc,
        "bodyLength": len(message.body) or None,
        "bornTimestamp": message.born_timestamp,
        "bornHost": java_host(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": java_host(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": {name: properties[name] for name in sorted(properties, key=lambda name: name.encode("utf-16-be", "surrogatepass"))},
    }


def java_host(host: Host) -> str:
    """InetSocketAddress.toString of an address without a name; InetAddress turns an IPv4-mapped IPv6 address into IPv4."""
    address = host.java_address
    return f"/[{address}]:{host.port}" if ":" in address else f"/{address}:{host.port}"


ANSWERS: Mapping[str, Callable[[LookupStore, LookupRequest], dict[str, Any]]] = {
    "getOffsetInQueueByTime": _offset_by_time,
    "getMessageStoreTimeStamp": _message_store_time,
    "getEarliestMessageTime": _earliest_message_time,
    "getEarliestMessageTimeOfStore": _earliest_message_time_of_store,
    "queryMessage": _query_message,
    "lookMessageByOffset": _look_message,
}


def run_lookup(
    store: str, requests: str, out: str, *, settings_of: Callable[[dict[str, Any] | None], BrokerSettings], progress: Callable[[str], None]
) -> LookupReport:
    """Answer a file of look-ups: write each line with its answer, in the order of the file.

    Args:
        store: directory of the store.
        requests: file of look-ups, a JSON object a line, with or without a header line.
        out: file for the answers; it appears only when it is complete.
        settings_of: header line, or None without one -> the broker's settings.
        progress: called with a line for each step.

    Raises:
        StoreError: the store cannot be used, or `out` cannot be written.
        RequestError: a line is no look-up.
    """
    with open_requests(requests) as (header, lines):
        progress(f"loading {store}")
        settings = settings_of(header.line if header else None)
        progress(settings.told_version)
        opened = open_store(store, settings, header.mtimes_ms if header else {})
        counted, unanswered = Counter[str](), Counter[str]()

        def answered() -> Iterator[dict[str, Any]]:
            if header is not None:
                log = opened.store.log_files
                yield header.line | {"minPhyOffset": min_offset(log), "maxPhyOffset": max_offset(log)}
            for request in lines:
                counted["requests"] += 1
                try:
                    answer = ANSWERS[request.operation](opened, request)
                except CorruptStoreError as error:
                    answer = {"error": UNANSWERABLE, "message": str(error)}
                    unanswered[UNANSWERABLE] += 1
                yield request.without_answers() | answer

        write_lines(answered(), out)
    return LookupReport(requests=counted["requests"], unanswered=dict(unanswered))


def write_lines(lines: Iterator[dict[str, Any]], out: str) -> None:
    """Write JSON lines to the file `out`, which appears only when it is complete."""
    try:
        with whole_file(local_path(out)) as file:
            for line in lines:
                file.write(json_text(line, separators=(",", ":")).encode() + b"\n")
    except OSError as error:
        raise StoreError(out, "a file that can be written", str(error.strerror or error)) from error
