"""Lists without Spark, over a few rows worked out by hand: their order, limit and form, bad names and options, and lag as an alert."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.commands.cli import SECTIONS, cli
from pipeline.commands.engine import Engine
from pipeline.listings.listing import Kind, Shown, Verdict
from pipeline.listings.operator_lists import GROUP_LIST
from pipeline.listings.table import WIDTH, fitted, value_text, verdict_text
from pipeline.main import run
from tests.makers.plain_lakes import plain_lake
from tests.runs.verdicts import on_one_line

END = 1_795_257_353_846  # 2026-11-21 10:35:53 UTC
SECOND = 1000
# group -> offset of queue 0 of orders, which has 1000 messages; queue 1 has 10
OFFSETS = {"even": 1000, "slow": 400, "slower": 100, "ahead": 1600}
# topic -> storeTimestamp of each of its messages, before END: two of one moment, ten in a second less 1 ms, three in two seconds
STORED = {"pair": [3, 1], "brief": [*range(999, 99, -100), 0], "steady": [2000, 1000, 0]}
# requestId -> (group, topic, queue, offset, ms before END, code, remark, next offset)
PULLS = {
    "f1-1.1.1.1:10911-9.9.9.9:501-1-70-8": ("slow", "orders", 0, 400, 5000, 0, "FOUND", 432),
    "f1-1.1.1.1:10911-9.9.9.9:502-1-70-8": ("slow", "orders", 1, 99, 4000, 21, "OFFSET_OVERFLOW_BADLY", 10),
    "f1-1.1.1.1:10911-9.9.9.9:502-1-90-9": ("ahead", "orders", 0, 1600, 3000, 21, "OFFSET_OVERFLOW_BADLY", 0),
    "f1-1.1.1.1:10911-9.9.9.9:502-1-99-10": ("ahead", "orders", 0, 0, 2000, 25, "the subscription is old", None),
    "f1-1.1.1.1:10911-9.9.9.9:502-1-120-11": ("ahead", "pair", 0, 2, 1000, None, None, None),
}
BODIES = {"a": b"two\nlines", "b": b"\x1b[31mred", "c": b"\xff\xfe", "d": b"a long text " * 30}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    queue = {"brokerName": "b", "topic": "orders"}
    dead = {"brokerName": "b", "topic": "%DLQ%slow", "queueId": 0}
    half = {"brokerName": "b", "topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": 0}
    ops = {"brokerName": "b", "topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "queueId": 0, "tags": "d", "body": b"3,5"}
    offsets = [{**queue, "queueId": 0, "consumerGroup": group, "consumerOffset": offset} for group, offset in OFFSETS.items()]
    offsets += [{**queue, "queueId": 1, "consumerGroup": "ahead", "consumerOffset": 3}]
    offsets += [{**half, "consumerGroup": "CID_RMQ_SYS_TRANS", "consumerOffset": 2}]
    letters = [
        {**dead, "queueOffset": number, "storeTimestamp": END - number * SECOND, "storeSize": 100, "body": b""} for number in range(3)
    ]
    checked = {4: {"TRANSACTION_CHECK_TIMES": "4"}}
    halves = [
        {**half, "queueOffset": number, "bornTimestamp": END - 60 * SECOND + number}
        | {"properties": list({"REAL_TOPIC": "pay", "UNIQ_KEY": f"k{number}", **checked.get(number, {})}.items())}
        for number in range(6)
    ]
    given_up = {
        **half,
        "topic": "TRANS_CHECK_MAX_TIME_TOPIC",
        "queueOffset": 0,
        "bornTimestamp": END,
        "properties": [("REAL_TOPIC", "pay")],
    }
    bodies = [
        {**queue, "queueId": 0, "queueOffset": number, "physicOffset": number, "storeTimestamp": END + number}
        | {"keys": key, "body": body, "sysFlag": 0}
        for number, (key, body) in enumerate(BODIES.items())
    ]
    stored = [
        {"brokerName": "b", "topic": topic, "queueId": 0, "queueOffset": number, "size": 100, "storeTimestamp": END - before}
        for topic, times in STORED.items()
        for number, before in enumerate(times)
    ]
    return plain_lake(
        tmp_path_factory.mktemp("lists") / "lake",
        {
            "broker": [{"brokerName": "b", "maxStoreTimestamp": END, "minPhyOffset": 0, "properties": [("transactionCheckMax", "5")]}],
            "queue": [
                {**queue, "queueId": 0, "minOffset": 0, "maxOffset": 1000},
                {**queue, "queueId": 1, "minOffset": 0, "maxOffset": 10},
                {**dead, "minOffset": 1, "maxOffset": 3},
                {**half, "minOffset": 0, "maxOffset": 6},
                *({**queue, "topic": topic, "queueId": 0, "minOffset": 0, "maxOffset": len(times)} for topic, times in STORED.items()),
            ],
            "consume_queue": stored,
            "consumer_offset": offsets,
            "commit_log": [*letters, *halves, given_up, *bodies, {**ops, "queueOffset": 0}],
        },
    )


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with captured pulls."""
    asked = (
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "arrivalMicros",
        "recordedCode",
        "recordedRemark",
        "recordedNextBeginOffset",
    )
    pulls = [
        {"brokerName": "b", "requestId": name, **dict(zip(asked, values, strict=True))}
        | {
            "client": "9.9.9.9:502",
            "arrivalMicros": (END - values[4]) * 1000,
            "held": values[5] in {0, None},
            "answerMicros": (END - 1500) * 1000 if values[5] == 0 else None,
        }
        for name, values in PULLS.items()
    ]
    queue = {"brokerName": "b", "minOffset": 0, "maxOffset": 10}
    return plain_lake(
        tmp_path_factory.mktemp("pulls") / "lake",
        {
            "broker": [{"brokerName": "b", "maxStoreTimestamp": END, "minPhyOffset": 0, "properties": []}],
            "queue": [{**queue, "topic": topic, "queueId": number} for topic, number in (("orders", 0), ("orders", 1), ("pair", 0))],
            "pull_request": pulls,
        },
    )


@pytest.fixture
def pullsim(capsys: pytest.CaptureFixture[str], lake: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    def no_spark(*_: Any, **__: Any) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(Engine, "session", no_spark)

    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in (*words, *(() if "--lake" in words else ("--lake", lake)))])
        return code, *capsys.readouterr()

    return call


def firsts(out: str) -> list[str]:
    """The first word of each row of a table."""
    return [line.split()[0] for line in out.split("\n\n", 1)[0].splitlines()[1:]]


def test_groups_come_with_the_greatest_lag_first_or_as_asked(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    assert firsts(pullsim("groups")[1])[:3] == ["slower", "slow", "ahead"]
    assert firsts(pullsim("groups", "--sort", "group:desc")[1])[:2] == ["slower", "slow"]
    assert firsts(pullsim("groups", "--sort", "consumerGroup")[1])[:3] == ["CID_RMQ_SYS_TRANS", "ahead", "even"]
    assert firsts(pullsim("groups", "--sort", "dead", "--limit", 1)[1]) == ["slow"]
    assert "1 of 5 rows; --limit 0 shows all" in pullsim("groups", "--limit", 1)[1]


def test_a_queue_past_its_end_hides_nothing(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    """Group ahead: 600 past the end of queue 0, 7 behind in queue 1."""
    for words in (("groups",), ("lag", "--by", "group")):
        out = pullsim(*words, "--group", "ahead")[1]
        assert re.search(r"^ahead .* 7 ", out, re.MULTILINE)
        told = on_one_line(out.split("\n\n")[-1])
        assert "7 messages wait in 1 group" in told
        assert "1 queue with an offset past the end counts as 0" in told
    [row] = map(json.loads, pullsim("lag", "--by", "group", "--group", "ahead", "--format", "json")[1].splitlines())
    assert (row["groupDiff"], row["waiting"], row["queuesNegative"]) == (7 - 600, 7, 1)  # mqadmin's sum, and what waits
    [row] = map(json.loads, pullsim("topics", "--topic", "orders", "--format", "json")[1].splitlines())
    assert (row["lag"], row["queuesNegative"]) == (600 + 900 + 7, 1)


def test_a_command_that_is_told_takes_a_name_as_one_word() -> None:
    """People paste the command into a shell, and the name comes from a store."""
    seen = {"groups": 1, "waiting": 0, "behind": 0, "deleted": 0, "unknown": 0, "negative": 0, "dead": 0, "skippers": 0, "clientless": 0}
    seen |= {"unknownQueues": 0, "queuesInTrouble": 1, "queuesJudged": 1}
    told = str(GROUP_LIST.verdict(seen | {"worst": 2, "first": "a;reboot"}))
    assert "it has stopped on a topic (pullsim groups --queues --group 'a;reboot' tells why)" in told
    told = str(GROUP_LIST.verdict(seen | {"groups": 2, "trouble": 1, "inTrouble": "a;reboot", "slow": 0, "unjudged": 0}))
    assert "(pullsim groups --queues --group 'a;reboot' tells why)" in told


def test_what_is_not_known_is_no_all_clear(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = pullsim("groups", "--group", "even")
    assert code == 0
    assert re.search(r"^even +UNKNOWN +0 ", out, re.MULTILINE)
    told = on_one_line(out.split("\n\n")[-1])
    why = "that takes 50 s of captured traffic of a group, or pullsim lag --record after each of ten imports"
    assert f"whether it has stopped or is slow is not known: {why} (pullsim groups --queues --group even tells why)" in told
    out = pullsim("clients")[1]
    assert out.splitlines()[0] == "(0 rows)"
    assert "pullsim capture" in out


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Brokers a and b with a queue of orders each; groups that only a capture has; an offset on a deleted topic."""
    brokers, held = ("a", "b"), {"topic": "orders", "queueId": 0}
    sent = {"source": "s", "sourceDigest": "d", "connection": "c", "client": "10.0.0.1:5"}
    pull = {**held, **sent, "requestId": "p", "arrivalMicros": 1, "opaque": 1, "queueOffset": 0, "maxMsgNums": 32}
    commit = {**held, **sent, "requestId": "m", "micros": 2, "sequence": 1, "origin": "UPDATE_CONSUMER_OFFSET", "consumerOffset": 3}
    retry = {"topic": "%RETRY%g", "queueId": 0}
    return plain_lake(
        tmp_path_factory.mktemp("two") / "lake",
        {
            "broker": [{"brokerName": name, "maxStoreTimestamp": END, "minPhyOffset": 0} for name in brokers],
            "queue": [{"brokerName": name, **held, "minOffset": 0, "maxOffset": 10} for name in brokers]
            + [{"brokerName": "a", **retry, "minOffset": 0, "maxOffset": 5}],
            "consumer_offset": [{"brokerName": name, **held, "consumerGroup": "g", "consumerOffset": 6} for name in brokers]
            + [{"brokerName": "a", **retry, "consumerGroup": "g", "consumerOffset": 4}]
            + [{"brokerName": "a", **held, "topic": "gone", "consumerGroup": "lost", "consumerOffset": 6}],
            "pull_request": [{"brokerName": "a", "consumerGroup": "only-pulls", **pull}]
            + [{"brokerName": name, "consumerGroup": "g", **pull, "requestId": f"g{name}"} for name in brokers],
            "offset_history": [{"brokerName": "a", "consumerGroup": "only-commits", **commit}],
        },
    )


def test_what_two_brokers_have_is_counted_once_and_their_names_are_shown(
    two_brokers: Path, pullsim: Callable[..., tuple[int, str, str]]
) -> None:
    def shown(*words: str) -> tuple[str, str]:
        code, out, err = pullsim(*words, "--lake", two_brokers)
        assert code == 0, err
        return out.splitlines()[0], on_one_line(out.split("\n\n")[-1])

    header, told = shown("groups")
    assert "Broker" in header
    assert told == (
        # 4 on each broker and 1 to try again; the two that only a capture has are known to wait for nothing or not at all
        "4 groups: 9 messages wait in 1 group; of 3 it is not known whether they stopped or are slow: that takes 50 s of captured traffic "
        "of a group, or pullsim lag --record after each of ten imports; the lag of 2 groups is not known; "
        "1 queue with an offset past the end counts as 0; "
        "pullsim retention tells when the next message is lost"
    )
    assert "4 groups: " not in shown("groups", "--broker", "b")[1]
    header, told = shown("topics")
    assert "Broker" in header
    assert told.startswith("2 topics: ")
    header, told = shown("clients")
    assert "Broker" in header
    assert told == (
        "1 client of 2 groups in the captured traffic: at its end 0 were connected; "
        "of 1 it is not known, for it pulled and sent no heartbeat"
    )
    assert "Broker" in shown("lag", "--by", "group")[0]
    assert "Broker" not in shown("groups", "--broker", "a")[0]


def test_moves_of_all_groups_are_listed_and_name_them(two_brokers: Path, pullsim: Callable[..., tuple[int, str, str]]) -> None:
    header, row, _, told = pullsim("offsets", "--lake", two_brokers)[1].splitlines()
    assert (header.split()[2:4], row.split()[2:4]) == (["Group", "Topic"], ["only-commits", "orders"])
    assert told == "1 move in 1 queue by 1 client: none went back"
    assert "Group" not in pullsim("offsets", "--lake", two_brokers, "--group", "only-commits")[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("groups", "--group", "slwo"), "the lake knows no consumer group 'slwo'; the nearest known: 'slow'"),
        (("offsets", "--group", "slow", "--topic", "order"), "the lake knows no topic 'order'; the nearest known: 'orders'"),
        (("lag", "--topic", "order", "--engine", "spark"), "the nearest known: 'orders'"),
        (("groups", "--group", "evn", "--engine", "spark"), "the nearest known: 'even'"),
        (("export", "out", "--topic", "orders", "--topic", "order"), "the nearest known: 'orders'"),
        (("topics", "--broker", "c"), "expected broker 'c', found 'b'"),
        (("topics", "--sort", "sise"), "--sort: expected a column"),
        (("topics", "--sort", "size:down"), "found 'size:down'"),
        (("message",), "expected one of --key, --id, --tag, --text and --topic"),
        (("pulls", "--outcome", "OFSET_MOVED"), "found 'OFSET_MOVED'; the nearest: PULL_OFFSET_MOVED"),
        (("pulls", "--outcome", "²"), "expected a status of the store"),
        (("pulls", "--queue", "1"), "--queue cannot be used without --topic"),
        (("pulls", "--from", END, "--to", END), "--from: expected a time before that of --to, found 2026-11-21 10:35:53"),
        (("topics", "--sort", "rat"), "the nearest: Rate, "),
        (("lag", "--keep", "3"), "--keep cannot be used without --record: nothing is recorded without it; give --record too"),
        (("lag", "--record", "--by", "group", "--now"), "--record cannot be combined with --by and --now: "),
        (("lag", "--metrics", "m", "--topic", "orders"), "--metrics cannot be combined with --topic: "),
        (("retention", "--disk-used", "3"), "--disk-used cannot be used without --disk-size"),
        (("explain", "--request", "x", "--queue", "0", "--at", "5"), "--request cannot be combined with --queue and --at: "),
        (("explain", "--group", "slow", "--queue", "0"), "found no --topic and --offset; for a captured pull give --request"),
        *(((name, "--limit", 2**31), "is not in the range 0<=x<=2147483647") for name in ("topics", "lag", "retention")),
        (("whatif",), "expected a setting to change, found none; give --set NAME=VALUE"),
        (("pulls", "--group", "slwo"), "the nearest known: 'slow'"),
        (("lag", "--by", "group", "--now"), "--now cannot be combined with --by group"),
        (("lag", "--by", "group", "--topic", "orders"), "--topic cannot be combined with --by group"),
    ],
)
def test_bad_names_and_options_end_with_2_before_spark_starts(
    pullsim: Callable[..., tuple[int, str, str]], words: tuple[object, ...], told: str
) -> None:
    code, out, err = pullsim(*words)
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize("name", ["topics", "lag"])
def test_the_greatest_limit_shows_all(pullsim: Callable[..., tuple[int, str, str]], name: str) -> None:
    code, out, err = pullsim(name, "--format", "json", "--limit", 2**31 - 1)
    assert code == 0, err
    assert out == pullsim(name, "--format", "json")[1] != ""


@pytest.mark.parametrize(
    ("words", "code", "groups"),
    [
        (("--behind",), 0, ["slower", "slow", "ahead"]),  # 900, 600; 7 of queue 1, though the sum is -593
        (("--min-lag", "601"), 1, ["slower"]),
        (("--min-lag", "600"), 1, ["slower", "slow"]),
        (("--min-lag", "901"), 0, []),
        (("--min-lag", "7", "--by", "topic"), 1, ["slower", "slow", "ahead"]),
        (("--min-lag", "7", "--by", "queue", "--sort", "diff"), 1, ["slower", "slow", "ahead"]),
        (("--min-lag", "8", "--group", "ahead"), 0, []),
        (("--min-lag", "600", "--limit", "1"), 1, ["slower"]),
    ],
)
def test_lag_alerts_by_its_exit_code(
    pullsim: Callable[..., tuple[int, str, str]], words: tuple[str, ...], code: int, groups: list[str]
) -> None:
    found, out, _ = pullsim("lag", *words)
    of_groups = firsts(out)
    assert (found, [group for group in of_groups if group in OFFSETS]) == (code, groups)
    if "queue" not in words and not groups:
        assert out.splitlines()[0] == "(0 rows)"
        assert "not counted" in out
    found, out, _ = pullsim("lag", *words, "--format", "json")
    assert (found, [group for line in out.splitlines() if (group := json.loads(line)["consumerGroup"]) in OFFSETS]) == (code, groups)


def test_a_rate_needs_a_second(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    """Two messages 2 ms apart, or ten within a second, would be the topics with the highest rate."""
    out = pullsim("topics", "--sort", "rate", "--format", "json")[1]
    rates = {row["topic"]: row["messagesPerSecond"] for row in map(json.loads, out.splitlines())}
    assert next(iter(rates.items())) == ("steady", 1.0)
    assert (rates["pair"], rates["brief"]) == (None, None)
    assert "a dash where less than a second" in pullsim("topics", "--help")[1].replace("\n ", "")


@pytest.mark.parametrize(
    ("words", "requests"),
    [
        ((), ["502-1-120-11", "502-1-99-10", "502-1-90-9", "502-1-70-8", "501-1-70-8"]),
        (("--group", "slow"), ["502-1-70-8", "501-1-70-8"]),
        (("--outcome", "PULL_OFFSET_MOVED"), ["502-1-90-9", "502-1-70-8"]),
        (("--outcome", "offset_overflow_badly"), ["502-1-90-9", "502-1-70-8"]),
        (("--outcome", "25"), ["502-1-99-10"]),
        (("--outcome", "no_answer"), ["502-1-120-11"]),
        (("--topic", "orders", "--queue", "1"), ["502-1-70-8"]),
        (("--from", "2026-11-21T10:35:49.846", "--to", END - 2000), ["502-1-90-9", "502-1-70-8"]),
        (("--outcome", "FOUND", "--group", "ahead"), []),
    ],
)
def test_pulls_are_found_by_what_became_of_them(
    pullsim: Callable[..., tuple[int, str, str]], pulled: Path, words: tuple[object, ...], requests: list[str]
) -> None:
    rows = [json.loads(line) for line in pullsim("pulls", "--lake", pulled, *words, "--format", "json")[1].splitlines()]
    assert [row["request"] for row in rows] == requests
    assert all(row["requestId"].endswith(f":{row['request']}") for row in rows)
    code, out, _ = pullsim("pulls", "--lake", pulled, *words)
    assert code == 0
    if len(requests) > 1:
        assert [line.split()[-1] for line in out.split("\n\n")[0].splitlines()[1:]] == requests
        assert ("Group" in out.splitlines()[0], "Topic" in out.splitlines()[0]) == ("--group" not in words, "--topic" not in words)


def test_a_verdict_that_is_longer_than_a_line_has_a_line_for_each_note() -> None:
    short = Verdict("4 groups", ("2 stopped", "1 slow"))
    assert verdict_text(short) == str(short) == "4 groups: 2 stopped; 1 slow"
    long = Verdict("4 groups", ("2 stopped" * 6, f"1 slow {'x ' * 50}", "\x1b[31m"))
    lines = verdict_text(long).splitlines()
    assert [lines[0], lines[1], lines[-1]] == ["4 groups:", f"- {'2 stopped' * 6}", "- \\x1b[31m"]
    assert lines[3].startswith("  x ")
    assert max(map(len, lines)) <= WIDTH
    assert verdict_text(Verdict("", ("a" * 60, "b" * 60))) == f"- {'a' * 60}\n- {'b' * 60}"
    assert verdict_text(Verdict("all is well")) == "all is well"


def test_pulls_are_counted_by_what_they_mean(pullsim: Callable[..., tuple[int, str, str]], pulled: Path) -> None:
    told = on_one_line(pullsim("pulls", "--lake", pulled)[1].split("\n\n")[-1])
    assert told == (
        "5 pulls of 2 groups: 1 found messages; 2 sent to another offset (PULL_OFFSET_MOVED); 1 refused; 1 without a captured answer; "
        "the broker held 2 (long polling): 1 ended by a message, 1 without a captured answer; "
        "pullsim explain --request REQUEST explains one"
    )
    rows = map(json.loads, pullsim("pulls", "--lake", pulled, "--format", "json")[1].splitlines())
    assert [row["holdEnding"] for row in rows] == ["NO_ANSWER", None, None, None, "MESSAGE"]
    assert re.search(r"^Held for +3 s\nHold ended by +MESSAGE$", pullsim("pulls", "--lake", pulled, "--outcome", "0")[1], re.MULTILINE)
    [whole] = [line for line in pullsim("pulls", "--lake", pulled, "--outcome", "25")[1].splitlines() if line.startswith("Request in full")]
    assert whole.split()[-1] == "f1-1.1.1.1:10911-9.9.9.9:502-1-99-10"
    of_one = pullsim("pulls", "--lake", pulled, "--outcome", "25")[1]
    assert re.search(r"^Client +9\.9\.9\.9:502$", of_one, re.MULTILINE)
    assert re.search(r"^Remark +the subscription is old$", of_one, re.MULTILINE)
    assert of_one.endswith("\n\npullsim explain --request 502-1-99-10 explains it\n")
    one_of_two = pullsim("pulls", "--lake", pulled, "--outcome", "21", "--limit", "1")[1]
    assert "\n1 of 2 rows; --limit 0 shows all\n" in one_of_two
    assert "Remark" not in one_of_two
    # both moved pulls asked for more than offset 0; of the capture of a real broker the test of the views counts them
    assert "offset 0 or less" not in told
    assert pullsim("pulls")[1] == "(0 rows)\nno captured pull matches, or none was captured (pullsim capture reads traffic)\n"


def test_queues_tell_why_their_status_is_as_it_is(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    """Nothing observed these groups: each queue with an offset says so."""
    rows = [json.loads(line) for line in pullsim("groups", "--queues", "--group", "slow", "--format", "json")[1].splitlines()]
    assert [(row["topic"], row["queueId"], row["status"], row["why"]) for row in rows if row["why"] != "NO_OFFSET"] == [
        ("orders", 0, "UNKNOWN", "NOT_OBSERVED")
    ]
    out = pullsim("groups", "--queues")[1]
    assert out.splitlines()[0].split()[:5] == ["Group", "Topic", "QID", "Status", "Why"]
    assert " not known: that takes 50 s of captured traffic of a group, or" in " ".join(out.split())


@pytest.fixture(scope="module")
def cut_queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queue 0 of orders begins at 50 and ends at 100; queue 1 has ten messages. Ten looks showed dead at one offset, slow at others."""
    queue = {"brokerName": "b", "topic": "orders"}
    offsets = {("dead", 0): 20, ("dead", 1): 3, ("slow", 0): 59, ("past", 0): 120, ("before", 0): -5, ("young", 0): 60}
    looks = [
        {**queue, "queueId": queue_id, "consumerGroup": group, "observedAt": number * SECOND, "minOffset": 50, "lakeVersion": 1}
        | {"consumerOffset": offset, "brokerOffset": 100 + 2 * number, "lag": 100 + 2 * number - offset}
        for number in range(10)
        for (group, queue_id), offset in ({("dead", 0): 20} | {("slow", 0): 50 + number}).items()
    ]
    return plain_lake(
        tmp_path_factory.mktemp("cut") / "lake",
        {
            "broker": [{"brokerName": "b", "maxStoreTimestamp": END, "minPhyOffset": 0, "properties": []}],
            "queue": [{**queue, "queueId": 0, "minOffset": 50, "maxOffset": 100}, {**queue, "queueId": 1, "minOffset": 0, "maxOffset": 10}],
            "consumer_offset": [
                {**queue, "queueId": queue_id, "consumerGroup": group, "consumerOffset": offset}
                for (group, queue_id), offset in offsets.items()
            ],
            "lag_history": looks,
        },
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        # 80 and 7 of group dead, 41 of slow, 105 of before, 40 of young; 30 and 50 of these are deleted
        (
            ("groups",),
            "273 messages wait in 4 groups; 80 of them are deleted already, and Waited leaves their queues out (pullsim retention)",
        ),
        (
            ("groups",),
            "1 stopped, stalled or went back, in 1 of 2 queues (pullsim groups --queues --group dead tells why); 1 slow: the lag does not",
        ),
        (
            ("groups", "--group", "dead"),
            "it has stopped on a topic; 1 of 2 queues stopped, stalled or went back (pullsim groups --queues --group dead tells why)",
        ),
        # queue 1 of slow, before, young and past
        (("groups",), "the lag of 4 more queues is in no sum: it is not known"),
        (("groups", "--group", "slow"), "it is slow: it commits, and its lag does not become less (pullsim groups --queues --group slow"),
        (("groups", "--group", "young"), "whether it has stopped or is slow is not known"),
        (("groups", "--group", "dead"), "; pullsim retention tells when the next message is lost"),
        (("lag", "--by", "group"), "273 messages wait in 4 groups: 80 of them are deleted already"),
        (("lag", "--behind", "--topic", "orders", "--group", "dead"), "87 messages wait in 1 group: 30 of them are deleted already"),
        (("lag", "--group", "dead"), "Diff Total: 87 (30 of them deleted before they were consumed, see pullsim retention)"),
        (("lag", "--group", "before"), "Diff Total: 105 (50 of them deleted before they were consumed"),
        (("lag", "--group", "slow"), "Diff Total: 41"),
    ],
)
def test_lists_say_who_stopped_or_is_slow_and_what_is_deleted(
    pullsim: Callable[..., tuple[int, str, str]], cut_queues: Path, words: tuple[str, ...], told: str
) -> None:
    out = on_one_line(pullsim(*words, "--lake", cut_queues)[1].split("\n\n")[-1])
    assert told in out
    assert ("deleted" in out) == (words[-1] not in {"slow", "young"})


def test_what_was_deleted_is_not_consumed_again(tmp_path: Path, pullsim: Callable[..., tuple[int, str, str]]) -> None:
    """A group at 300 goes back to 200, and at 300 again to 0, after an answer to another group told that the queue begins at 208."""
    queue = {"brokerName": "b", "topic": "orders", "queueId": 0}
    sent = {**queue, "source": "s", "sourceDigest": "d", "connection": "c", "client": "10.0.0.1:5"}
    commits = {1: 300, 2: 200, 4: 300, 5: 0}
    answer = {"arrivalMicros": 3, "answerMicros": 3, "opaque": 1, "queueOffset": 0, "maxMsgNums": 32, "recordedMinOffset": 208}
    lake = plain_lake(
        tmp_path / "lake",
        {
            "queue": [{**queue, "minOffset": 250, "maxOffset": 1000}],
            "pull_request": [{"consumerGroup": "other", "requestId": "p", **sent, **answer}],
            "offset_history": [
                {"consumerGroup": "g", "requestId": f"m{at}", "micros": at, "sequence": at, "consumerOffset": offset, **sent}
                | {"origin": "UPDATE_CONSUMER_OFFSET"}
                for at, offset in commits.items()
            ],
        },
    )
    rows = [json.loads(line) for line in pullsim("offsets", "--lake", lake, "--back", "--format", "json")[1].splitlines()]
    assert [(row["fromOffset"], row["toOffset"], row["readAgain"]) for row in rows] == [(300, 0, 92), (300, 200, 100)]


def test_dead_letters_below_the_minimum_are_gone(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    [row] = map(json.loads, pullsim("dlq", "--format", "json")[1].splitlines())
    assert (row["consumerGroup"], row["messages"], row["bytes"], row["oldestMillis"], row["readers"]) == ("slow", 2, 200, 2 * SECOND, 0)
    told = on_one_line(pullsim("dlq")[1])
    assert "2 dead letters of 1 group, the oldest 2 s old: nobody consumes those of 1 group" in told


def test_a_transaction_is_open_from_the_committed_offset_on_unless_an_op_names_it(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    rows = [json.loads(line) for line in pullsim("transactions", "--format", "json")[1].splitlines()]
    assert [(row["state"], row["uniqKey"], row["checks"], row["checksMax"]) for row in rows] == [
        ("PENDING", "k2", 0, 5),
        ("PENDING", "k4", 4, 5),
        ("DISCARDED", None, 0, 5),
    ]
    assert rows[0]["ageMillis"] == 60 * SECOND - 2
    _, verdict = pullsim("transactions")[1].split("\n\n")
    assert max(map(len, verdict.splitlines())) <= WIDTH
    assert on_one_line(verdict) == (
        "3 open transactions: 2 pending, the oldest 59 s old; the broker gave up 1: its producers never answered"
    )


def test_bodies_of_any_kind_keep_the_table_in_shape(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = pullsim("message", "--topic", "orders", "--sort", "queueOffset:asc")
    assert code == 0
    lines = out.split("\n\n")[0].splitlines()
    assert len(lines) == 1 + len(BODIES)
    assert max(map(len, lines)) == WIDTH
    assert "\x1b" not in out
    ends = [line[lines[0].index("Body") :].strip() for line in lines[1:]]
    assert ends[0] == "two lines"
    assert ends[2] == "-"
    assert ends[3].startswith("a long text a long text")
    assert ends[3].endswith("…")
    whole = pullsim("message", "--key", "a")[1]
    assert "Body          two\nlines\n" in whole
    assert pullsim("message", "--key", "c")[1].count("NOT_UTF8") == 1


def test_texts_in_quotes_and_patterns_are_found_as_they_are(pullsim: Callable[..., tuple[int, str, str]]) -> None:
    for text in ("'", "%", "\\", "' OR true --"):
        code, out, err = pullsim("message", "--text", text, "--key", text, "--tag", text)
        assert (code, out.splitlines()[0], err) == (0, "(0 rows)", "")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.COUNT, 1234567, "1,234,567"),
        (Kind.MILLIS, END, "2026-11-21 10:35:53"),
        (Kind.MICROS, END * 1000, "2026-11-21 10:35:53"),
        (Kind.MILLIS, 2**62, str(2**62)),
        (Kind.DURATION, 3 * 86_400_000 + 3_600_000, "3 d 1 h"),
        (Kind.SIZE, 1536, "1.5 KiB"),
        (Kind.RATE, 0.01, "< 0.1/s"),
        (Kind.TEXT, None, "-"),
    ],
)
def test_values_read_as_people_write_them(kind: Kind, value: Any, text: str) -> None:
    assert value_text(kind, value) == text


def test_long_names_lose_their_middle_and_numbers_nothing() -> None:
    columns = (Shown("a", "A"), Shown("n", "N", Kind.COUNT), Shown("b", "B"))
    [[first, number, second]] = fitted(columns, [["x" * 90 + "-one", "1,234", "订单" * 30]])
    assert len(first) < 94
    assert first.endswith("-one")
    assert number == "1,234"
    from rich.cells import cell_len

    assert sum(map(cell_len, (first, number, second))) + 4 <= WIDTH
    typed = "1.2.3.4:5678-1-70-8" * 6
    assert fitted((Shown("a", "A"), Shown("i", "I", Kind.ID)), [["x" * 30, typed]]) == [["xxx…xx", typed]]
    assert fitted((Shown("i", "I", Kind.ID),), [[typed]]) == [[typed]]


def test_names_are_shortened_on_a_terminal_only(
    cut_queues: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = (Shown("a", "A"), Shown("p", "P", Kind.PROSE))
    [[name, prose]] = fitted(columns, [["x" * 120, "words " * 20]], is_read=False)
    assert (name, len(prose)) == ("x" * 120, 24)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    shown = {}
    for is_read in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_read=is_read: is_read)
        assert run(["lag", "--lake", str(cut_queues), "--engine", "duckdb"]) == 0
        shown[is_read] = capsys.readouterr().out
    piped, read = shown[False].splitlines(), shown[True].splitlines()
    assert len(piped[0].rstrip()) > WIDTH >= max(map(len, read))
    assert "#Broker Name" in piped[0]
    assert [line.split()[:3] for line in read[:2]] == [["#Group", "#Topic", "#QID"], ["Offset", "Offset", "Seconds"]]
    assert sorted({line.split()[0] for line in read[2:] if " orders " in line}) == ["before", "dead", "past", "slow", "young"]
    assert "left out, so that the table is at most 100 wide: #Broker Name" in shown[True]


def test_every_command_has_a_heading_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(cli.commands)
    assert run(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for name in named:
        assert f"{name} {' '.join((cli.commands[name].help or '').partition(chr(10) * 2)[0].split())}" in told, "sentences are whole"
    assert "More:" not in told


def test_options_of_spark_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["groups", "--help"]) == 0
    parts = capsys.readouterr().out.partition("Options of Spark:")
    own, of_spark = (set(re.findall(r"^  (--\w+)", part, re.MULTILINE)) for part in (parts[0], parts[2]))
    assert of_spark == {"--master", "--conf", "--verbose"}
    assert {"--lake", "--group", "--sort", "--limit", "--format", "--engine"} <= own
    assert not own & of_spark


@pytest.mark.parametrize("name", ["recover", "lookup", "generate", "frames", "pace"])
def test_commands_without_spark_show_no_options_of_spark_and_take_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert not re.search(r"--master|--conf|--verbose|Options of Spark", capsys.readouterr().out)
    known = {option for parameter in cli.commands[name].params for option in parameter.opts}
    assert {"--master", "--conf", "--verbose"} <= known
