"""Long polling in `pullsim replay`: pulls that wait are answered as of when they are woken."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lake.lake import Lake
from pipeline.replay.held_pulls import Polling, Waking
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings
from tests.makers.held_store import CASES, MESSAGES, NEVER_SWEPT, START, held_store, pull
from tests.makers.lakes import import_as
from tests.runs.in_session import ON_SPARK, Pullsim, pullsim_in
from tests.runs.replaying import write_lines
from tests.runs.sampling import slow_proof
from tests.truth.golden_holds import store_of
from udfs.filters.bloom_filter import BloomFilter
from udfs.filters.consumer_filter_manager import ConsumerFilterManager
from udfs.pull.pull_filter import FilterRules
from udfs.pull.pull_request_hold import NEVER

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


# the driver answers; Spark answers with the options ON_SPARK
in_both_ways = pytest.mark.parametrize("engine", [(), ON_SPARK], ids=["driver", "Spark"])


def answered_by(err: str, engine: tuple[str, ...]) -> bool:
    """Whether that engine answered, according to stderr with --verbose."""
    return ("the driver answers" in err) == (engine == ())


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held")
    import_as(spark, folder / "lake", held_store(folder / "store"))
    return folder / "lake"


def responses(spark: SparkSession, lake: Path, out: str) -> list[Row]:
    """Rows of pull_response of the last run, by line."""
    run = re.search(r"run (\w+)", out)
    assert run is not None, out
    table = Lake(spark, str(lake)).table(t.PULL_RESPONSE).where(f"runId = '{run[1]}'")
    return sorted(table.collect(), key=lambda row: int(row["requestId"].rpartition("-")[2]))


def told(row: Row) -> tuple[Any, ...]:
    woken = None if row["wokenMillis"] is None else row["wokenMillis"] - START
    return woken, row["status"], row["nextBeginOffset"], row["messageCount"]


@in_both_ways
def test_pulls_wait_for_messages_the_sweep_and_their_patience(
    spark: SparkSession, lake: Path, pullsim: Pullsim, tmp_path: Path, engine: tuple[str, ...]
) -> None:
    file = write_lines(tmp_path / "pulls.jsonl", [*(case[0] for case in CASES), NEVER_SWEPT])
    code, out, err = pullsim("replay", "--lake", lake, "--requests", file, "--at", "request-time", "--hold", "--verbose", *engine)
    assert (code, answered_by(err, engine)) == (0, True), err
    *rows, never = responses(spark, lake, out)
    assert [told(row) for row in rows] == [case[1:] for case in CASES]
    held_at = [case[0]["request"]["timestamp"] if case[1] is not None else None for case in CASES]
    assert [row["heldMillis"] for row in rows] == held_at
    assert (never["error"], never["status"], never["heldMillis"]) == ("NEVER_WOKEN", None, START + 2000)


@pytest.mark.parametrize("engine", [(), pytest.param(ON_SPARK, marks=slow_proof)], ids=["driver", "Spark"])
def test_a_message_of_a_retry_topic_wakes_pulls_with_a_tag_where_filters_support_retry(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, engine: tuple[str, ...]
) -> None:
    topic = "%RETRY%g"
    sent = [(START + time, topic, 0, tag, {"RETRY_TOPIC": "t"}) for time, tag in MESSAGES]
    import_as(spark, tmp_path / "lake", store_of(tmp_path / "store", sent))
    cases = [case for case in CASES if (case[0]["request"]["filter"] or {}).get("type") == "TAG"]
    pulls = [{"request": line["request"] | {"topic": topic}} for line, *_ in cases]
    command = ("replay", "--lake", tmp_path / "lake", "--requests", write_lines(tmp_path / "pulls.jsonl", pulls), "--at", "request-time")
    code, out, err = pullsim(*command, "--hold", "--set", "filterSupportRetry=true", "--verbose", *engine)
    assert (code, answered_by(err, engine)) == (0, True), err
    # the group has no expression for the original topic: each message matches on its properties
    assert [told(row) for row in responses(spark, tmp_path / "lake", out)] == [case[1:] for case in cases]


@in_both_ways
def test_what_cannot_wait_is_said(lake: Path, pullsim: Pullsim, tmp_path: Path, engine: tuple[str, ...]) -> None:
    file = write_lines(tmp_path / "pulls.jsonl", [pull(1, 2000), pull(1, 2000, timeout=None)])
    command = ("replay", "--lake", lake, "--requests", file, "--hold", "--at")
    code, _, err = pullsim(*command, "request-time", *engine)
    assert (code, f'{file}, line 2: expected a "suspendTimeoutMillis" in the request' in err) == (2, True), err
    code, _, err = pullsim(*command, "snapshot")
    assert (code, "--hold: expected --at request-time, found --at snapshot" in err) == (2, True), err
    code, _, err = pullsim(*command[:3], "--hold", "--at", "request-time")
    assert (code, "expected files in --requests, found the table of captured pulls; leave --hold out" in err) == (2, True), err


RULES = FilterRules(manager=ConsumerFilterManager(BloomFilter.create_by_fn(20, 32)), support_retry=False)


@pytest.mark.parametrize(("version", "wake"), [("4.9.3", False), ("4.9.8", False), ("5.5.0", True)])
def test_arrivals_wake_pulls_of_a_slave_from_5_5_0_on(version: str, wake: bool) -> None:
    assert Polling.of(BrokerSettings({"brokerRole": "SLAVE", "rulesVersion": version})).arrivals_wake is wake
    assert Polling.of(BrokerSettings({"rulesVersion": version})).arrivals_wake


def moment(line: dict[str, Any], messages: tuple[tuple[int, str], ...], first: int = 0, **settings: Any) -> int:
    """The ms after START at which a pull is woken, by a run of messages from offset `first` on."""
    polling = Polling.of(BrokerSettings(settings))
    asked = line["request"]
    wanted = asked["filter"] or {"type": None, "expression": None}
    row = {
        "topic": asked["topic"],
        "consumerGroup": "g",
        "queueOffset": asked["offset"],
        "timestamp": asked["timestamp"],
        "suspendTimeoutMillis": asked["suspendTimeoutMillis"],
        "filterType": wanted["type"],
        "expression": wanted["expression"],
        "registered": None,
        "firstQueueOffset": first,
        "entryCount": len(messages),
        "entries": b"".join(struct.pack(">qiq", 0, 100, ord(tag)) for _, tag in messages) or None,
        "storeTimestamps": b"".join(struct.pack("<q", START + time) for time, _ in messages),
        "extUnits": None,
        "lengths": None,
    }
    found = Waking(RULES, polling, with_extension=False).moment(row)
    return found if found == NEVER else found - START


def test_arrivals_wake_nobody_on_a_slave_or_without_long_polling() -> None:
    assert moment(pull(1, 2000), MESSAGES) == 7000
    assert moment(pull(1, 2000), MESSAGES, brokerRole="SLAVE") == 10_000
    # the broker's own second instead of the 15 of the pull, and a sweep a second
    assert moment(pull(1, 2100), MESSAGES, longPollingEnable=False) == 4000
    assert moment(pull(1, 2100), MESSAGES, longPollingEnable=False, shortPollingTimeMills=7000) == 9100 // 7000 * 7000 + first_sweep(7000)


def first_sweep(interval: int) -> int:
    """The ms from START to the next sweep; 0 if START is one."""
    return -START % interval


@given(st.lists(st.tuples(st.integers(0, 40_000), st.sampled_from("ab")), max_size=8), st.data())
def test_the_least_moment_of_all_runs_is_that_of_the_whole_queue(found: list[tuple[int, str]], data: st.DataObject) -> None:
    messages = tuple(sorted(found))
    cut = data.draw(st.integers(0, len(messages)))
    time = data.draw(st.integers(0, 40_000))
    offset = sum(stamp <= time for stamp, _ in messages)  # what finds nothing
    line = pull(offset, time, tag=data.draw(st.sampled_from([None, "a", "c"])), timeout=data.draw(st.integers(0, 20_000)))
    runs = min(moment(line, messages[:cut]), moment(line, messages[cut:], cut))
    assert runs == moment(line, messages) == moment_by_hand(line, messages)


def moment_by_hand(line: dict[str, Any], messages: tuple[tuple[int, str], ...]) -> int:
    """The moment at which the broker wakes a pull, found step by step: each message, then the sweep."""
    asked = line["request"]
    tag = None if asked["filter"] is None else asked["filter"]["expression"]
    held = asked["timestamp"] - START
    until = held + asked["suspendTimeoutMillis"]
    sweeps = range(-(-held // 5000) * 5000, until + 5001, 5000)
    moments: set[int] = {*sweeps, *(time for time, _ in messages if time > held)}
    for now in sorted(moments):
        come = [(number, one) for number, (time, one) in enumerate(messages) if held < time <= now]
        for number, one in come:
            if messages[number][0] == now and (now >= until or (number >= asked["offset"] and tag in (None, one))):
                return now
        if now in sweeps and (now >= until or come):
            return now
    raise AssertionError
