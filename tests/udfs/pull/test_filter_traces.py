"""Recorded pulls with filters: which of the scanned entries the broker delivered, over stores with extension, bit maps and retries."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from store_format.config.config_files import decode_consumer_filters
from store_format.record.message import decode, decode_properties
from store_format.record.record_columns import Slices
from tests.truth.golden import golden_lines, needs_golden
from udfs.filters import message_filter as mf
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager, build, is_tag_type
from udfs.filters.sql92 import compile_expression
from udfs.filters.sql92_columns import columns_of_records

TRACES = [
    "basic-default",
    "basic-bigcaps",
    "basic-retryfilter",
    "window-default",
    "window-bigcaps",
    "ext-default",
    "ext-disabled",
    "ext-slave",
]
SCANNED = {"FOUND", "NO_MATCHED_MESSAGE"}
EXT_MAX_ADDRESS = -(2**31) - 1  # ConsumeQueueExt.MAX_ADDR
NOW = 2**41


class Unit(NamedTuple):
    tags_code: int
    msg_store_time: int
    bit_map: bytes | None


@cache
def joined(folder: Path) -> tuple[int, bytes]:
    """The offset at which the first file of a folder begins, and the bytes of all files."""
    files = sorted(folder.glob("[0-9]*"))
    return int(files[0].name), b"".join(file.read_bytes() for file in files)


def ext_unit(store: Path, topic: str, queue_id: int, tags_code: int) -> Unit:
    _, raw = joined(store / "consumequeue_ext" / topic / str(queue_id))
    at = tags_code + 2**63
    _, code, store_time, size = struct.unpack_from(">hqqh", raw, at)
    return Unit(code, store_time, raw[at + 20 : at + 20 + size] if size > 0 else None)


class Entry(NamedTuple):
    physic_offset: int
    tags_code: int | None
    ext_unit: Unit | None
    record: bytes


def entries(store: Path, request: Mapping[str, Any], end: int, *, with_ext: bool) -> Iterator[Entry]:
    """The entries of a queue that a pull scanned."""
    topic, queue_id = request["topic"], request["queueId"]
    first, units = joined(store / "consumequeue" / topic / str(queue_id))
    log_start, log = joined(store / "commitlog")
    for offset in range(request["offset"], end):
        physic_offset, size, tags_code = struct.unpack_from(">qiq", units, offset * 20 - first)
        code: int | None = tags_code
        unit = None
        if tags_code <= EXT_MAX_ADDRESS:
            unit = ext_unit(store, topic, queue_id, tags_code) if with_ext else None
            code = unit.tags_code if unit else None
        at = physic_offset - log_start
        yield Entry(physic_offset, code, unit, log[at : at + size])


def properties_of(record: bytes) -> dict[str, str] | None:
    message = decode(record)
    assert message is not None
    return decode_properties(message.properties) if message.properties else None


def filter_of(request: Mapping[str, Any], config: Mapping[str, Any], manager: ConsumerFilterManager) -> mf.ExpressionMessageFilter:
    wanted, topic, group = request["filter"], request["topic"], request["group"]
    subscription = mf.TopicSubscription.build(topic, wanted["expression"], wanted["type"])
    data = None
    if not is_tag_type(wanted["type"]):
        registered = wanted.get("registered")
        data = manager.get(topic, group) if registered else build(topic, group, wanted["expression"], wanted["type"], 1, NOW)
    if config["filterSupportRetry"]:
        return mf.ExpressionForRetryMessageFilter(subscription, data, manager.bloom_filter, manager)
    return mf.ExpressionMessageFilter(subscription, data, manager.bloom_filter)


def manager_of(store: Path, config: Mapping[str, Any]) -> ConsumerFilterManager:
    manager = ConsumerFilterManager(BloomFilter.create_by_fn(config["bloom"]["errorRate"], config["bloom"]["expectConsumers"]))
    assert (manager.bloom_filter.k, manager.bloom_filter.m) == (config["bloom"]["k"], config["bloom"]["m"])
    file = store / "config" / "consumerFilter.json"
    if file.exists():
        manager.load(decode_consumer_filters(file.read_bytes(), str(file)), NOW)
    return manager


def given(wanted: mf.ExpressionMessageFilter, looked_at: Iterable[Entry]) -> list[int]:
    """Physical offsets of the entries that match."""
    units = (one for one in looked_at if wanted.is_matched_by_consume_queue(one.tags_code, one.ext_unit))
    return [one.physic_offset for one in units if wanted.is_matched_by_commit_log(properties_of(one.record))]


@needs_golden
@pytest.mark.parametrize("trace", TRACES)
def test_the_filter_gives_the_entries_that_the_broker_gave(trace: str, stores: Path) -> None:
    header, *pulls = golden_lines("store", "traces", f"{trace}.jsonl")
    store, config = stores / header["store"], header["config"]
    manager, seen, judged = manager_of(store, config), 0, 0
    for pull in pulls:
        request, response = pull["request"], pull["response"]
        if not request["filter"] or not response or response.get("status") not in SCANNED:
            continue
        looked_at = list(entries(store, request, response["nextBeginOffset"], with_ext=config["enableConsumeQueueExt"]))
        wanted = filter_of(request, config, manager)
        found = given(wanted, looked_at)
        judged += sum(one.ext_unit is not None and not wanted.is_matched_by_consume_queue(one.tags_code, one.ext_unit) for one in looked_at)
        assert found == [message["startOffset"] for message in response["messages"]], json.dumps(request)
        seen += 1
    assert seen > 20
    assert judged > 0 or "ext-default" not in trace


@needs_golden
def test_a_retry_message_that_does_not_say_its_topic_throws_as_it_did(stores: Path) -> None:
    header, *pulls = golden_lines("store", "traces", "basic-retryfilter.jsonl")
    store, config, thrown = stores / header["store"], header["config"], 0
    manager = manager_of(store, config)
    for pull in pulls:
        request, response = pull["request"], pull["response"] or {}
        if request["filter"] and response.get("exception") == "java.lang.NullPointerException":
            looked_at = entries(store, request, request["offset"] + 800, with_ext=False)
            with pytest.raises(mf.RetryTopicMissingError):
                given(filter_of(request, config, manager), looked_at)
            thrown += 1
    assert thrown > 0


@needs_golden
def test_columns_of_a_log_match_as_its_messages_do(stores: Path) -> None:
    header, *pulls = golden_lines("store", "traces", "basic-default.jsonl")
    expressions = {pull["request"]["filter"]["expression"] for pull in pulls if (pull["request"]["filter"] or {}).get("type") == "SQL92"}
    records = []
    for pull in pulls:
        if (pull["response"] or {}).get("status") == "FOUND":
            records += [
                one.record
                for one in entries(stores / header["store"], pull["request"], pull["response"]["nextBeginOffset"], with_ext=False)
            ]
    raw = [message.properties for message in map(decode, records[:3000]) if message is not None]
    lengths = np.array([len(one) for one in raw], np.int64)
    slices = Slices((np.cumsum(lengths) - lengths).astype(np.int64), lengths)
    for text in expressions:
        compiled = compile_expression(text)
        assert not isinstance(compiled, Exception)
        columns = columns_of_records(np.frombuffer(b"".join(raw), np.uint8), slices, compiled.properties)
        codes = compiled.matches_many(columns, len(raw))
        data = build("T", "G", text, "SQL92", 1, NOW)
        assert (codes == 1).tolist() == [mf.is_true(data, decode_properties(one)) for one in raw]
    assert len(expressions) > 5
