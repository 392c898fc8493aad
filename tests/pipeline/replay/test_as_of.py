"""Pulls as of their own time, and cut at a recorded maxOffset, compared with getMessage in plain Python; store times have any order."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.makers.made_store import MadeStore, make_store
from tests.makers.wild_requests import CAPS, pulls, raw, settings_of, times, wild_records
from tests.models.slow_broker import Bounds, SlowBroker, bounds_of
from tests.runs.replaying import DEMO_TRACE, Line, all_lines, answers_of, demo_data, differences, lake_of
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.truth.golden import golden, needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake
    from pipeline.schema.tables import Layout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    # files of 20,000 entries: three segments each
    return make_store(tmp_path_factory.mktemp("made") / "wild", wild_records(26_000), log_file=1 << 20, queue_file=400_000)


def expect_time(broker: SlowBroker, line: Line, whole: Bounds) -> Line:
    request = line["request"]
    bounds = broker.as_of(request["topic"], request["queueId"], whole, request["timestamp"])
    return line | {"response": broker.get_message(request, bounds)}


def expect_cut(broker: SlowBroker, line: Line, whole: Bounds) -> Line:
    recorded = line["response"]["maxOffset"] if "response" in line else whole.max_offset
    return line | {"response": broker.get_message(line["request"], whole._replace(max_offset=min(recorded, whole.max_offset)))}


@pytest.mark.parametrize("layout", ["partitioned", pytest.param("clustered", marks=slow_proof)])
def test_a_pull_sees_its_queue_as_of_its_time(
    made: MadeStore,
    layout: Layout,
    spark: SparkSession,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digits = random.Random(f"time {layout}")
    broker = SlowBroker(made.path, settings_of(CAPS) | made.sizes, made.log_end)
    stamps = [stamp for _, stamp in broker.records if stamp < 2**62]
    asked = []
    for request, time in zip(pulls(digits, made, 400), times(digits, stamps), strict=False):
        whole = made.queues[request["topic"], request["queueId"]]
        end = broker.as_of(request["topic"], request["queueId"], whole, time).max_offset
        near_end = {"offset": end + digits.choice([-900, -33, -2, -1, 0, 1])} if digits.random() < 0.5 else {}
        asked.append({"request": request | {"timestamp": time} | near_end})
    expected = [expect_time(broker, line, made.queues[line["request"]["topic"], line["request"]["queueId"]]) for line in asked]
    # the times differ in what they show
    assert len({line["response"].get("maxOffset") for line in expected}) > 100
    lake = lake_of(spark, made.path, tmp_path_factory, layout=layout)
    for by_spark in (False, True):
        assert differences(expected, raw(answers_of(lake, asked, tmp_path, at="request-time", settings=CAPS, by_spark=by_spark))) == []

    if not ALL:
        return
    # of a large store, only the parts of the log from the least to the greatest time are read; this log has many parts
    monkeypatch.setattr(importlib.import_module("pipeline.replay.replay"), "_MANY_ENTRIES", 0)
    monkeypatch.setattr(importlib.import_module("pipeline.replay.as_of"), "PART_BYTES", made.log_end // 40)
    first, last = (sorted(stamps)[len(stamps) * part // 10] for part in (4, 6))
    some = [line for line in expected if first <= line["request"]["timestamp"] <= last]
    assert len(some) > 40
    assert differences(some, raw(answers_of(lake, some, tmp_path, at="request-time", settings=CAPS))) == []


@slow_proof
def test_a_pull_is_cut_at_the_max_offset_that_was_recorded(
    made: MadeStore, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    digits = random.Random("cut")
    broker = SlowBroker(made.path, settings_of(CAPS) | made.sizes, made.log_end)
    asked: list[Line] = []
    for request in pulls(digits, made, 300):
        near = max(request["offset"], 0) + digits.choice([-1, 0, 1, 5, 31, 32, 33, 850])
        recorded = digits.choice([near, near, near, 0, 8192, 2**40])
        asked.append({"request": request} | ({"response": {"maxOffset": recorded}} if digits.random() < 0.9 else {}))
    expected = [expect_cut(broker, line, made.queues[line["request"]["topic"], line["request"]["queueId"]]) for line in asked]
    lake = lake_of(spark, made.path, tmp_path_factory, layout="partitioned")
    assert differences(expected, raw(answers_of(lake, asked, tmp_path, at="recorded-max", settings=CAPS))) == []


def check_recorded_pulls_as_of_times(lake: Lake, store: Path, trace: Path, folder: Path) -> None:
    """Check the pulls of a trace on a real store, as of times around the store timestamps of its messages."""
    header, *lines = all_lines(trace)
    broker = SlowBroker(store, header["config"], header["maxPhyOffset"])
    digits = random.Random(store.name)
    when = times(digits, [stamp for _, stamp in broker.records])
    asked, expected = [], []
    for line in lines:
        asked.append({"request": line["request"] | {"timestamp": next(when)}})
        expected.append(expect_time(broker, asked[-1], bounds_of(line, lines, broker.log_end)))
    assert differences(expected, raw(answers_of(lake, asked, folder, at="request-time"))) == []


@slow_proof
def test_a_cleaned_store_is_seen_as_of_a_time(spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = demo_data(tmp_path_factory) / "cleaned"
    lake = lake_of(spark, store, tmp_path_factory)
    check_recorded_pulls_as_of_times(lake, store, demo_data(tmp_path_factory) / DEMO_TRACE, tmp_path)


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", sampled(["holes", "preblank0", "preblank1"], 1))
def test_holes_and_blanks_are_seen_as_of_a_time(
    name: str, stores: Path, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, stores / name, tmp_path_factory)
    check_recorded_pulls_as_of_times(lake, stores / name, golden("store", "traces", f"{name}-default.jsonl"), tmp_path)
