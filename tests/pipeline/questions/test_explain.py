"""`pullsim explain`: its text on pulls that a real broker answered, and on messages that the broker sends and the client drops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.makers.made_store import Record, make_store
from tests.runs.in_session import ON_SPARK, Pullsim, pullsim_in
from tests.runs.replaying import DEMO_TRACE, Line, all_lines, demo_data, lake_of
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

RECORDED = (
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
T0 = 1_650_000_000_000
# the driver explains; Spark explains with the options ON_SPARK
ENGINES = [pytest.param([], id="driver"), pytest.param(ON_SPARK, id="Spark", marks=slow_proof)]


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """Recorded pulls, after the header that has the configuration."""
    return all_lines(demo_data(tmp_path_factory) / DEMO_TRACE)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(spark, demo_data(tmp_path_factory) / "cleaned", tmp_path_factory)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Twelve messages, a second apart; "Aa" and "BB" have the same hash code."""
    records = [Record(tag=tag, stamp=T0 + 1000 * number) for number, tag in enumerate(["Aa", "BB", "c", None] * 3)]
    store = make_store(tmp_path_factory.mktemp("made") / "collisions", records, log_file=1 << 16, queue_file=2000)
    return lake_of(spark, store.path, tmp_path_factory)


def asked(request: dict[str, Any], config: dict[str, Any]) -> list[str]:
    """A recorded request and its configuration as options of the command."""
    options = {"group": request["group"], "topic": request["topic"], "queue": request["queueId"], "offset": request["offset"]}
    options["max-msg-nums"] = request["maxMsgNums"]
    wanted = request["filter"] or {}
    if wanted:
        options |= {"filter-type": wanted["type"], "expression": wanted["expression"]}
    given = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items() if name != "bloom"]
    registered = ["--registered"] if wanted.get("registered") else []
    return [*[f"--{name}={value}" for name, value in options.items()], *[f"--set={one}" for one in given], *registered]


def one_of_each(lines: list[Line]) -> list[Line]:
    """Recorded pulls: one that found messages for each kind of filter, one with MESSAGE_WAS_REMOVING, one that threw."""
    found: dict[tuple[Any, Any], Line] = {}
    for line in lines:
        status = line["response"].get("status", "exception")
        if status in {"FOUND", "MESSAGE_WAS_REMOVING", "exception"}:
            kind = (line["request"]["filter"] or {}).get("type") if status == "FOUND" else None
            found.setdefault((status, kind), line)
    return list(found.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_recorded_pulls_are_explained_to_their_answers(engine: list[str], pullsim: Pullsim, lake: Lake, lines: list[Line]) -> None:
    header, *pulls = lines
    chosen = one_of_each(pulls)
    assert len(chosen) > 4
    for line in chosen:
        code, out, err = pullsim("explain", "--lake", lake.root, "--format", "json", *asked(line["request"], header["config"]), *engine)
        assert code == 0, err
        told, response = json.loads(out), line["response"]
        if "exception" in response:
            assert told["answer"] == {"exception": response["exception"]}
            continue
        assert told["answer"] == {name: response[name] for name in RECORDED}
        taken = [entry for entry in told["entries"] if entry["outcome"] == "TAKEN"]
        assert [entry["physicOffset"] for entry in taken] == [message["startOffset"] for message in response["messages"]]
        assert [entry["message"]["msgId"] for entry in taken] == [message["msgId"] for message in response["messages"]]


def test_messages_that_the_client_drops_are_told(pullsim: Pullsim, made: Lake) -> None:
    pull = ("--lake", made.root, "--group", "g", "--topic", "T", "--queue", 0, "--offset", 0, "--expression", "Aa || x")
    code, out, _ = pullsim("explain", *pull, "--format", "json")
    told = json.loads(out)
    assert code == 0
    assert told["droppedByClient"] == [1, 5, 9]
    assert {entry["clientDrops"] for entry in told["entries"]} == {None, "hash collision"}
    assert told["outcomes"] == {"TAKEN": 6, "NOT_BY_TAGS_CODE": 6}
    assert (told["scan"]["end"], told["answer"]["nextBeginOffset"]) == ("END_OF_QUEUE", 12)
    _, text, _ = pullsim("explain", *pull)
    assert "dropped by the client: 3 of 6 messages given" in text
    assert "tagsCode wanted        'Aa' = 2112, 'x' = 120" in text
    assert "answer: FOUND, next offset 12" in text


@pytest.mark.parametrize("engine", ENGINES)
def test_the_properties_that_a_filter_looks_at_are_told(engine: list[str], pullsim: Pullsim, made: Lake) -> None:
    pull = (*engine, "--lake", made.root, "--group", "g", "--topic", "T", "--queue", 0, "--offset", 0)
    filtered = (*pull, "--filter-type", "SQL92", "--expression", "price > 5 AND TAGS = 'x'")
    entries = json.loads(pullsim("explain", *filtered, "--format", "json")[1])["entries"]
    assert {entry["outcome"] for entry in entries} == {"NOT_BY_COMMIT_LOG"}
    assert all(entry["message"]["properties"] == {"TAGS": entry["message"]["tags"], "price": None} for entry in entries)
    tag = next(entry["message"]["tags"] for entry in entries if entry["message"]["tags"])
    assert f"not matched by commit log (TAGS={tag!r}, no price)" in pullsim("explain", *filtered, "--all")[1]
    by_tag = json.loads(pullsim("explain", *pull, "--expression", "x", "--format", "json")[1])["entries"]
    assert not any("properties" in entry["message"] for entry in by_tag)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_moment_of_the_past_is_seen_as_it_was(engine: list[str], pullsim: Pullsim, made: Lake) -> None:
    pull = (*engine, "--lake", made.root, "--group", "g", "--topic", "T", "--queue", 0, "--offset", 4)
    _, out, _ = pullsim("explain", *pull, "--format", "json", "--at", T0 + 3000)
    assert json.loads(out)["answer"]["status"] == "OFFSET_OVERFLOW_ONE"
    _, text, _ = pullsim("explain", *pull, "--at", "2022-04-15T05:20:05")
    assert "the store as of 2022-04-15 05:20:05.000 UTC" in text
    assert "offset = maxOffset     no" in text
    assert "ended: the queue ends, at 6" in text


def test_what_the_store_does_not_have_is_explained(pullsim: Pullsim, made: Lake) -> None:
    code, text, _ = pullsim("explain", "--lake", made.root, "--group", "g", "--topic", "Nothing", "--queue", 0, "--offset", 5)
    assert code == 0
    assert "findConsumeQueue makes an empty one" in text
    assert "TOPIC_NOT_EXIST before it asks the store" in text
    assert "checks:" not in text
    assert "the store, which is not asked, would answer NO_MESSAGE_IN_QUEUE, next offset 0" in text
    refusal = "the broker answers 17 TOPIC_NOT_EXIST, and does not ask the store: 'topic[Nothing] not exist, apply first please!'"
    assert text.splitlines()[-1] == refusal


def test_a_registered_filter_is_taken_from_what_the_group_registered(
    pullsim: Pullsim, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = demo_data(tmp_path_factory) / "broker-a"
    registered = json.loads((store / "config" / "consumerFilter.json").read_text())["filterDataByTopic"]
    topic, by_group = next((topic, data["groupFilterData"]) for topic, data in registered.items() if data["groupFilterData"])
    group, data = next(iter(by_group.items()))
    pull = ("--lake", lake_of(spark, store, tmp_path_factory).root, "--topic", topic, "--queue", 0, "--offset", 0, "--registered")
    code, out, err = pullsim("explain", *pull, "--group", group, "--format", "json")
    assert code == 0, err
    told = json.loads(out)
    assert told["request"]["filter"] == {"type": "SQL92", "expression": data["expression"], "registered": True}
    assert "status" in told["answer"]
    code, _, err = pullsim("explain", *pull, "--group", "nobody")
    assert code == 2
    assert f"expected a filter of group 'nobody' for topic {topic!r}, found none" in err


# asked of the brokers
@pytest.mark.parametrize(
    ("group", "rules", "code"), [("g.1", "4.9.8", None), ("g.1", "5.5.0", 26), ("g-1", "5.5.0", None), ("g" * 121, "5.5.0", 26)]
)
def test_a_group_that_the_broker_does_not_create_is_told(group: str, rules: str, code: int | None, pullsim: Pullsim, made: Lake) -> None:
    pull = ["--group", group, "--topic", "t", "--queue", "0", "--offset", "0"]
    exit_code, told, _ = pullsim("explain", "--lake", made.root, *pull, "--rules", rules)
    assert exit_code == 0
    assert ("the broker answers 26 SUBSCRIPTION_GROUP_NOT_EXIST" in told) is (code == 26)
    assert ("the broker creates only groups whose names have at most 120" in told) is (code == 26)


def test_light_queues_past_their_limit_get_null(pullsim: Pullsim, made: Lake) -> None:
    light = [f"--set={one}" for one in ("enableLmq=true", "enableMultiDispatch=true", "maxLmqConsumeQueueNum=-1")]
    _, text, _ = pullsim("explain", "--lake", made.root, "--group", "g", "--topic", "%LMQ%a", "--queue", 0, "--offset", 0, *light)
    assert "answer: null" in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "maxTransferCountOnMessageInMemroy=1"], "the nearest known name is maxTransferCountOnMessageInMemory"),
        (["--at", "yesterday"], "expected ms since 1970 or a time such as"),
        (["--max-msg-nums", "2147483648"], "--max-msg-nums"),
        (["--broker", "broker-z"], "expected broker 'broker-z', found 'broker-a'"),
        (["--topic", "\udcff"], "expected arguments in UTF-8, found '\\udcff'"),
    ],
)
def test_bad_options_end_with_2_and_say_why(options: list[str], told: str, pullsim: Pullsim, made: Lake, tmp_path: Path) -> None:
    pull = ("--lake", made.root, "--group", "g", "--topic", "T", "--queue", 0, "--offset", 0)
    code, out, err = pullsim("explain", *pull, *options)
    assert (code, out) == (2, "")
    assert told in err
