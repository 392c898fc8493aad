"""Import and replay of a store without Spark: the functions that tasks call, with the joins between them done by dictionaries."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import with_extension
from pipeline.importing.start_store import bounds, start_store
from pipeline.replay import expression_filters as ef
from pipeline.replay import replay as rp
from pipeline.replay.kernel_batches import ENTRIES_KEY, Answering, answer_batches
from pipeline.requests.packing import pack
from pipeline.rows import queue_batches as qb
from pipeline.rows.property_batches import property_batches
from pipeline.settings.settings import BrokerSettings
from pipeline.store import load_files as lf
from pipeline.store.loaded_extension import recover_extension
from pipeline.store.store_settings import ext_size
from store_format.broker_version import BrokerVersion
from store_format.config.config_files import decode_consumer_filters
from store_format.files.mapped_files import MappedFile
from tests.runs.replaying import Line
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager
from udfs.filters.retry_rules import RetryRules
from udfs.pull.batch_caps import scan_window_entries
from udfs.pull.get_message import CommitLogFiles
from udfs.pull.pull_filter import FilterRules
from udfs.pull.scan_settings import queue_files, window_bytes

Row = dict[str, Any]
# topic, queueId, (min, max) offset, files, files of the extension
Queue = tuple[str, int, tuple[int, int], tuple[MappedFile, ...], tuple[MappedFile, ...]]
REQUESTS = pa.schema(
    {
        "seq": pa.int64(),
        "consumerGroup": pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "maxMsgNums": pa.int32(),
        "expression": pa.string(),
        "timestamp": pa.int64(),
        "recordedMaxOffset": pa.int64(),
    }
)


def manager_of(store: Path, error_rate: int = 20, consumers: int = 32) -> ConsumerFilterManager:
    """The filters that the broker loads from the store's consumerFilter.json."""
    manager = ConsumerFilterManager(BloomFilter.create_by_fn(error_rate, consumers))
    file = store / "config" / "consumerFilter.json"
    if file.exists():
        manager.load(decode_consumer_filters(file.read_bytes(), str(file)), 0)
    return manager


@dataclass(frozen=True)
class Tables:
    """The tables of an imported store that a replay with --at snapshot reads."""

    store: rp.BrokerStore
    bounds: Mapping[tuple[str, int], tuple[int, int]]
    segments: Mapping[tuple[str, int, int], Row]
    properties: Mapping[tuple[str, int, int], list[Row]]
    manager: ConsumerFilterManager


def tables_of(path: Path, options: Sequence[str] | None = None) -> Tables:
    """The tables of a store that was shut down cleanly, with its extension if it has one; with `options`, as load and start leave it."""
    store = StoreFiles(str(path))
    settings = with_extension(BrokerSettings.from_sources(options=options or ()), store)
    sizes = lf.file_sizes(store, {name: settings.explicit(name) for name in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue")})
    if options is None:
        log = lf.recover_log(store, lf.load_log(store, sizes), check_crc=True).files
        queues = _loaded(store, replace(sizes, extension=ext_size(store, settings)), log)
    else:
        started = start_store(store, settings)
        store, log = started.store, started.log_files
        queues = [
            (queue.topic, queue.queue_id, bounds(queue), queue.files, queue.extension.files if queue.extension else ())
            for queue in started.queues
        ]
    reader = qb.QueueReader(store, "b", qb.LogIndex(files=log, walked=tuple(file.wrote for file in log)), settings.version)
    segments, properties = {}, defaultdict(list)
    for topic, queue_id, _, files, extension in queues:
        for file in files:
            queue_file = qb.QueueFile(topic=topic, queue_id=queue_id, file=file, extension=extension)
            segments.update({(topic, queue_id, row["segment"]): row for row in rows_of(reader.segments(queue_file))})
            for row in rows_of(property_batches(reader, queue_file)):
                properties[topic, queue_id, row["segment"]].append(row)
    starts, wrote = (np.array([getattr(file, name) for file in log], np.int64) for name in ("from_offset", "wrote"))
    broker_store = rp.BrokerStore(
        log_end=log[-1].from_offset + log[-1].wrote if log else 0,
        entries=sum(end - first for _, _, (first, end), _, _ in queues),
        max_offset=max((end for _, _, (_, end), _, _ in queues), default=0),
        entries_a_file=sizes.consume_queue // 20,
        log=CommitLogFiles(starts, wrote, sizes.commit_log),
    )
    return Tables(
        store=broker_store,
        bounds={(topic, queue_id): both for topic, queue_id, both, _, _ in queues},
        segments=segments,
        properties=properties,
        manager=manager_of(path),
    )


def _loaded(store: StoreFiles, sizes: lf.FileSizes, log: tuple[MappedFile, ...]) -> list[Queue]:
    log_bounds = lf.LogBounds(min_offset=log[0].from_offset, max_offset=log[-1].from_offset + log[-1].wrote, truncates_queues=True)
    found = []
    for topic in lf.topics(store):
        for queue_id in lf.queue_ids(store, topic):
            queue = lf.recover_queue(store, topic, queue_id, sizes, log_bounds)
            extension = recover_extension(store, topic, queue_id, sizes, log_bounds).files
            found.append((topic, queue_id, (queue.min_offset, queue.max_offset), queue.files, extension))
    return found


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in batches for row in batch.to_pylist()]


def batch_of(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist(rows)


def answers(tables: Tables, lines: list[Line], config: Mapping[str, Any]) -> list[Row]:
    """The rows that a replay gives for the requests, in their order."""
    found = [row for answering, rows in blocks_of(tables, lines, config) for row in rows_of(answer_batches(answering, batches(rows)))]
    assert sorted(row["seq"] for row in found) == list(range(len(lines)))
    return sorted(found, key=lambda row: int(row["seq"]))


def blocks_of(
    tables: Tables, lines: list[Line], config: Mapping[str, Any], *, whole_files: bool = False
) -> list[tuple[Answering, list[Row]]]:
    """The packed requests, with the entries that they scan, or with the entries of their whole queue files."""
    settings = BrokerSettings.from_sources(header=dict(config)).pull_settings()
    retry = RetryRules.of(BrokerVersion(settings.rules_version))
    rules = FilterRules(manager=tables.manager, support_retry=settings.filter_support_retry, retry=retry)
    answering = Answering.of(settings, tables.store.entries_a_file, tables.store.log, with_entries=True)
    files = min(queue_files(settings), tables.store.max_offset // tables.store.entries_a_file + 1)
    whole_files = whole_files or files > 1 or scan_window_entries(0, window_bytes(settings)) > qb.SCAN_ENTRIES
    by_tag, others = [], []
    for seq, line in enumerate(lines):
        row = request_row(seq, line["request"])
        asked = line["request"]["filter"]
        retry = settings.filter_support_retry and row["topic"].startswith("%RETRY%")
        if asked is None or (asked["type"] == "TAG" and not retry):
            by_tag.append(row)
        else:
            others.append(row | {"expression": filter_text(line["request"])})
    found = []
    if by_tag:
        found.append((answering, with_blocks(tables, placed(tables, by_tag, whole_files=whole_files), files)))
    if others:
        split = rows_of(ef.split_by_condition(rules, batch_of(placed(tables, others, whole_files=whole_files))))
        judged = [row | {"verdicts": verdicts(tables, rules, row, files)} for row in split]
        found.append((replace(answering, rules=rules), with_blocks(tables, judged, files)))
    return found


def request_row(seq: int, request: Row) -> Row:
    return {
        "seq": seq,
        "consumerGroup": request["group"],
        "topic": request["topic"],
        "queueId": request["queueId"],
        "queueOffset": request["offset"],
        "maxMsgNums": request["maxMsgNums"],
        "expression": None if request["filter"] is None else request["filter"]["expression"],
        "recordedMaxOffset": request.get("end"),
    }


def filter_text(request: Row) -> str:
    asked = request["filter"]
    fields = {"filterType": asked["type"], "expression": asked["expression"]}
    return json.dumps(fields | ({"registeredBy": request["group"]} if asked.get("registered") else {}))


def placed(tables: Tables, requests: list[Row], *, whole_files: bool) -> list[Row]:
    place = partial(rp.by_segment, tables.store, whole_files)
    rows = rows_of(pack(place, iter([pa.RecordBatch.from_pylist(requests, schema=REQUESTS)])))
    for row in rows:
        row["minOffset"], row["maxOffset"] = tables.bounds.get((row["topic"], row["queueId"]), (None, None))
        row["logEnd"] = tables.store.log_end
    return rows


def segment_keys(tables: Tables, row: Row, files: int = 1) -> list[tuple[str, int, int]]:
    queue, store = (row["topic"], row["queueId"]), tables.store
    if not row["wide"] or row["key"] < 0:
        return [(*queue, row["key"])]
    first = row["key"] // store.entries_a_file * store.segments_a_file
    return [(*queue, first + number) for number in range(store.segments_a_file * max(files, 1))]


def verdicts(tables: Tables, rules: FilterRules, row: Row, files: int = 1) -> list[Row] | None:
    if row["condition"] is None:
        return None
    stored = [
        one | {"conditions": [row["condition"]]} for key in segment_keys(tables, row, files) for one in tables.properties.get(key, [])
    ]
    more = {name: row[name] for name in ("wide", "key")}
    return rows_of(ef.judge(rules, batch_of([one | more for one in stored]))) if stored else None


def with_blocks(tables: Tables, rows: list[Row], files: int = 1) -> list[Row]:
    """The rows, each after a row with its entries, if it has entries."""
    found = []
    for row in rows:
        blocks = [tables.segments[key] for key in segment_keys(tables, row, files) if key in tables.segments]
        at = {name: row[name] for name in ENTRIES_KEY}
        found += [*([at | {"requests": None, "blocks": blocks}] if blocks else []), row]
    return found


def batches(rows: list[Row]) -> Iterator[Any]:
    """One batch for each row, because types differ from row to row."""
    for row in rows:
        yield RowBatch([row])


class RowBatch(list[Row]):
    """Rows in the form of a batch."""

    def to_pylist(self) -> list[Row]:
        return list(self)


NUMBERS = (
    "status",
    "nextBeginOffset",
    "minOffset",
    "maxOffset",
    "messageCount",
    "bufferTotalSize",
    "suggestPullingFromSlave",
    "msgCount4Commercial",
    "diskFallBehind",
)


def told(response: Any) -> Any:
    """The fields of a recorded answer that a row of answers has; messageQueueOffset where the version records it."""
    if response is None or "exception" in response:
        return response and response["exception"]
    more = [response[name] for name in RECORDED_LATER if name in response]
    return [response[name] for name in NUMBERS], [message["storeSize"] for message in response["messages"]], more


RECORDED_LATER = ("messageQueueOffset", "filterMessageCount")


def told_by(row: Row, *, later: bool) -> Any:
    assert row["error"] is None
    if row["exception"] is not None or row["status"] is None:
        return row["exception"]
    more = [[entry["queueOffset"] for entry in row["entries"]], row["filterMessageCount"]] if later else []
    return [row[name] for name in NUMBERS], [entry["size"] for entry in row["entries"]], more


def unequal(lines: list[Line], rows: list[Row]) -> list[str]:
    found = []
    for line, row in zip(lines, rows, strict=True):
        recorded = told(line["response"])
        ours = told_by(row, later=RECORDED_LATER[0] in (line["response"] or {}))
        if recorded != ours:
            found.append(f"{line['request']}\n recorded {recorded}\n ours {ours}")
    return found
