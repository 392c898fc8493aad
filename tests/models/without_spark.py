"""Import and replay of a store without Spark: calls the functions that tasks call, and joins their rows with dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.files.store_files import StoreFiles
from pipeline.importing.load_store import with_extension
from pipeline.importing.start_store import bounds, start_store
from pipeline.replay import replay as rp
from pipeline.replay.driver_replay import after_entries
from pipeline.replay.kernel_batches import Answering, answer_batches
from pipeline.requests.request_lines import REQUEST_ARROW
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
from udfs.pull.get_message import CommitLogFiles
from udfs.pull.pull_filter import FilterRules

Row = dict[str, Any]
# topic, queueId, (min, max) offset, files, files of the extension
Queue = tuple[str, int, tuple[int, int], tuple[MappedFile, ...], tuple[MappedFile, ...]]


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
    stored_segments: Mapping[tuple[str, int, int], Row]
    stored_properties: Mapping[tuple[str, int, int], list[Row]]
    manager: ConsumerFilterManager

    def segments(self, _keys: Set[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], Row]:
        return self.stored_segments

    def properties(self, _keys: Set[tuple[str, int, int]]) -> Mapping[tuple[str, int, int], list[Row]]:
        return self.stored_properties


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
    segments: dict[tuple[str, int, int], Row] = {}
    properties: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
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
        stored_segments=segments,
        stored_properties=properties,
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


def answers(tables: Tables, lines: list[Line], config: Mapping[str, Any]) -> list[Row]:
    """The rows that a replay gives for the requests, in their order."""
    found = [row for answering, rows in blocks_of(tables, lines, config) for row in rows_of(answer_batches(answering, iter(rows)))]
    assert sorted(row["seq"] for row in found) == list(range(len(lines)))
    return sorted(found, key=lambda row: int(row["seq"]))


def blocks_of(
    tables: Tables, lines: list[Line], config: Mapping[str, Any], *, whole_files: bool = False
) -> list[tuple[Answering, Iterator[Row]]]:
    """The packed requests, with the entries that they scan, or with the entries of their whole queue files."""
    settings = BrokerSettings.from_sources(header=dict(config)).pull_settings()
    retry = RetryRules.of(BrokerVersion(settings.rules_version))
    rules = FilterRules(manager=tables.manager, support_retry=settings.filter_support_retry, retry=retry)
    answering = Answering.of(settings, tables.store.entries_a_file, tables.store.log, with_entries=True)
    place = partial(rp.by_segment, tables.store, whole_files or tables.store.has_far_pulls(settings))
    requests = pa.Table.from_pylist([request_row(seq, line["request"]) for seq, line in enumerate(lines)], REQUEST_ARROW)
    stored: Any = tables  # has all members of StoredRows that --at snapshot uses
    return after_entries(stored, requests, answering, lambda: rules, at="snapshot", place=place, settings=settings)


def request_row(seq: int, request: Row) -> Row:
    asked = request["filter"] or {}
    return {
        "seq": seq,
        "consumerGroup": request["group"],
        "topic": request["topic"],
        "queueId": request["queueId"],
        "queueOffset": request["offset"],
        "maxMsgNums": request["maxMsgNums"],
        "filterType": asked.get("type"),
        "expression": asked.get("expression"),
        "registered": asked.get("registered"),
        "recordedMaxOffset": request.get("end"),
    }


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
    """The fields of a recorded answer that a row of answers has; those of RECORDED_LATER only if the answer has them."""
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
