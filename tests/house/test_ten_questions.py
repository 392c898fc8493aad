"""Ten questions of an operator on captured traffic: the commands of docs/questions.md, against the broker's own files and log.

The expected answers are computed from the capture with struct and json alone (operator_answers.py, store_lag.py), so that an error of the
page or of the project is noticed.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.models.operator_answers import CORRECTIONS, HEART_BEAT, CapturedAnswers, outcome
from tests.runs.doc_commands import commands, placed
from tests.runs.in_session import NotHeard, Pullsim, pullsim_in
from tests.runs.sampling import slow_proof
from tests.truth.captured import config, exchanges, unpack
from tests.truth.golden import needs_golden
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_golden, slow_proof]
BROKER = "broker-a"
UPDATE_CONSUMER_OFFSET = 15
PULL_OFFSET_MOVED = 21
Rows = list[dict[str, Any]]
PAGE = PROJECT / "docs" / "questions.md"
SHOWN: dict[str, list[tuple[str, ...]]] = defaultdict(list)
for _one in commands(PAGE):
    SHOWN[_one.heading].append(_one.words)
SET_UP = SHOWN.pop("How-tos by question")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> CapturedAnswers:
    return CapturedAnswers(unpack("json", tmp_path_factory.mktemp("ten"), store=True))


@pytest.fixture(scope="module")
def taken(spark: SparkSession, answers: CapturedAnswers) -> CapturedAnswers:
    """The capture, whose lake was made by the commands at the head of the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(answers.folder)
        pullsim = pullsim_in(spark, patch, NotHeard())
        done = [pullsim(*placed(words, answers.folder))[0] for words in SET_UP]
    assert done == [0, 0, 0]
    assert [words[0] for words in SET_UP] == ["import", "capture", "report"]
    assert "</html>" in (answers.folder / "report.html").read_text("utf-8")
    return answers


@pytest.fixture
def asked(spark: SparkSession, taken: CapturedAnswers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    monkeypatch.chdir(taken.folder)
    capsys.readouterr()
    return pullsim_in(spark, monkeypatch, capsys)


def rows(asked: Pullsim, heading: str) -> Rows:
    """The rows that the command under a heading gives."""
    [words] = SHOWN[heading]
    code, out, err = asked(*words, "--format", "json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_the_page_asks_these() -> None:
    assert [heading for heading in SHOWN if heading in QUESTIONS] == list(QUESTIONS)
    assert len(QUESTIONS) >= 10


def groups_behind(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    wanted: dict[str, dict[str, int | None]] = {}
    for (_, group, topic, _), row in answers.lag.rows(BROKER).items():
        sums = wanted.setdefault(group, {"lag": None, "retryLag": None, "lagMillisMax": None})
        name = "retryLag" if topic.startswith("%RETRY%") else "lag"
        if row["lag"] is not None:
            sums[name] = (sums[name] or 0) + max(row["lag"], 0)  # an offset past the end counts as no lag
        if row["lagMillis"] is not None:
            sums["lagMillisMax"] = max(sums["lagMillisMax"] or 0, row["lagMillis"])
    for group, sums in wanted.items():
        dead = [queue for (topic, _), queue in answers.lag.queues.items() if topic == f"%DLQ%{group}"]
        sums["dlqMessages"] = sum(queue.maximum - queue.minimum for queue in dead)
    names = ("lag", "retryLag", "lagMillisMax", "dlqMessages")
    found = {row["consumerGroup"]: {name: row[name] for name in names} for row in rows(asked, heading)}
    assert {group: row for group, row in found.items() if group in wanted} == wanted
    never = [row for group, row in found.items() if group not in wanted]  # groups that have stored no offset
    assert never
    assert all(row == dict.fromkeys(names) | {"dlqMessages": 0} for row in never)
    lags = [row["lag"] for row in found.values() if row["lag"] is not None]
    assert lags == sorted(lags, reverse=True)


def one_group_queue_by_queue(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    [words] = SHOWN[heading]
    code, out, _ = asked(*words)
    assert code == 0
    group = words[words.index("--group") + 1]
    lines = [line.split() for line in out.splitlines()[1:] if line.startswith(group)]
    found = {(line[1], int(line[3])): line[4:7] for line in lines}
    of_group = {key: row for key, row in answers.lag.rows(BROKER).items() if key[1] == group}
    wanted = {
        (topic, queue): ["NULL" if row[name] is None else str(row[name]) for name in ("brokerOffset", "consumerOffset", "lag")]
        for (_, _, topic, queue), row in of_group.items()
    }
    assert found == wanted
    assert len(found) > 4
    assert f"Diff Total: {sum(row['lag'] or 0 for row in of_group.values())}" in out


def what_the_group_wants(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    filters = answers.filters()
    found = rows(asked, heading)
    assert found
    for row in found:
        offset = answers.lag.offsets["g-tag", row["topic"]].get(row["queueId"])
        if row["topic"].startswith("%RETRY%"):
            continue  # no heartbeat or pull has a filter for it: clients take all messages
        kind, expression = filters["g-tag", row["topic"]]
        assert row["expression"] == expression
        if offset is not None:
            matched, _, waited = answers.matched(row["topic"], row["queueId"], offset, kind, expression)
            assert (row["lagMatched"], row["lagMatchedMillis"]) == (matched, waited)


def moved_offsets(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    wanted: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for one in answers.pulls:
        if outcome(one) not in CORRECTIONS:
            continue
        asked_for, told = one["request"]["ext"], one["response"]["ext"]
        offset, given, maximum = int(asked_for["queueOffset"]), int(told["nextBeginOffset"]), int(told["maxOffset"])
        if given != offset:
            sums = wanted[asked_for["consumerGroup"], asked_for["topic"], outcome(one)]
            sums += Counter(pulls=1, skipped=max(given - max(offset, 0), 0), readAgain=max(min(offset, maximum) - given, 0))
    found = {
        (row["consumerGroup"], row["topic"], row["status"]): Counter({name: row[name] for name in ("pulls", "skipped", "readAgain")})
        for row in rows(asked, heading)
    }
    assert found == wanted
    assert len({status for _, _, status in wanted}) > 1


def sent_elsewhere(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    begin = int(dt.datetime(2026, 11, 21, 10, 35, tzinfo=dt.UTC).timestamp()) * 1_000_000
    wanted = Counter(
        (one["request"]["ext"]["topic"], int(one["request"]["ext"]["queueOffset"]), int(one["response"]["ext"]["nextBeginOffset"]))
        for one in answers.pulls
        if one["request"]["ext"]["consumerGroup"] == "g-probe"
        and (one["response"] or {}).get("code") == PULL_OFFSET_MOVED
        and begin <= one["t_arrive_us"] < begin + 60_000_000
    )
    found = rows(asked, heading)
    assert Counter((row["topic"], row["queueOffset"], row["nextBeginOffset"]) for row in found) == wanted
    assert wanted


def nothing_found(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    ended = Counter(
        (one["request"]["ext"]["topic"], outcome(one)) for one in answers.pulls if one["request"]["ext"]["consumerGroup"] == "g-sql"
    )
    found = rows(asked, heading)
    assert {(row["topic"], row["outcome"]): row["pulls"] for row in found} == {
        key: count for key, count in ended.items() if key[1] != "FOUND"
    }
    assert all(row["why"] for row in found)
    assert found


def consumers_that_disagree(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    told: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for one in answers.pulls:
        ext = one["request"]["ext"]
        if "subscription" in ext:
            told[ext["consumerGroup"], ext["topic"]].add((ext.get("expressionType") or "TAG", ext["subscription"]))
    for group, sub in subscriptions(answers.folder):
        told[group, sub["topic"]].add((sub["expressionType"], sub["subString"]))
    for topic, of_topic in config(answers.folder, "consumerFilter.json")["filterDataByTopic"].items():
        for group, data in of_topic["groupFilterData"].items():
            told[group, topic].add((data["expressionType"], data["expression"]))
    wanted = {(*key, len(filters)) for key, filters in told.items() if len(filters) > 1}
    assert {(row["consumerGroup"], row["topic"], row["filters"]) for row in rows(asked, heading)} == wanted
    assert wanted


def subscriptions(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """(group, subscription) of each heartbeat."""
    import base64

    beats = (one["request"]["body_b64"] for one in exchanges(folder) if one["request"]["code"] == HEART_BEAT)
    groups = (group for beat in beats for group in json.loads(base64.b64decode(beat))["consumerDataSet"])
    return [(group["groupName"], sub) for group in groups for sub in group["subscriptionDataSet"]]


def last_commits(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    commits = [one for one in exchanges(answers.folder) if one["request"]["code"] == UPDATE_CONSUMER_OFFSET]
    wanted = Counter(one["request"]["ext"]["consumerGroup"] for one in commits)
    found = rows(asked, heading)
    assert {row["consumerGroup"]: row["commits"] for row in found} == wanted
    for row in found:
        last = max(one["t_arrive_us"] for one in commits if one["request"]["ext"]["consumerGroup"] == row["consumerGroup"])
        assert abs(row["lastMicros"] - last) < 200_000, "the wire and the broker's process have one clock"


def where_is_it(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    wanted = sorted(
        (one.topic, one.queue_id, one.queue_offset, one.store_timestamp, one.properties.get("TAGS"))
        for one in answers.records.values()
        if "main2-335" in one.properties.get("KEYS", "").split()
    )
    found = [tuple(row[name] for name in ("topic", "queueId", "queueOffset", "storeTimestamp", "tags")) for row in rows(asked, heading)]
    assert sorted(found) == wanted
    assert wanted


def large_topics(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    wanted: dict[str, list[int]] = {}
    for (topic, _), queue in answers.lag.queues.items():
        kept = [size for number, (at, size) in queue.entries.items() if number >= queue.minimum and at in answers.records]
        sums = wanted.setdefault(topic, [0, 0, 0])
        wanted[topic] = [sums[0] + 1, sums[1] + len(kept), sums[2] + sum(kept)]
    found = rows(asked, heading)
    assert {row["topic"]: [row["queues"], row["messages"], row["bytes"]] for row in found if row["queues"]} == wanted
    assert {(row["messages"], row["bytes"]) for row in found if not row["queues"]} == {(0, 0)}
    assert [row["bytes"] for row in found] == sorted((row["bytes"] for row in found), reverse=True)


def as_the_broker_did(asked: Pullsim, answers: CapturedAnswers, heading: str) -> None:
    [words] = SHOWN[heading]
    _, out, _ = asked(*words)
    compared, _, differ, _ = out.splitlines()[-1].split()
    answered = sum(one["response"] is not None for one in answers.pulls)
    # a message may arrive while the broker answers a pull, so that the answer differs; each capture has such an answer
    assert int(differ) <= 2
    assert answered * 0.95 < int(compared.replace(",", "")) <= answered


QUESTIONS: dict[str, Callable[[Pullsim, CapturedAnswers, str], None]] = {
    "Which groups lag?": groups_behind,
    "How large is the lag of one group, queue by queue?": one_group_queue_by_queue,
    "How much of what waits does the group want?": what_the_group_wants,
    "What moved a group's offset, and what did that cost?": moved_offsets,
    "Why did a pull at 10:35 get PULL_OFFSET_MOVED?": sent_elsewhere,
    "Why do its pulls find nothing?": nothing_found,
    "Do its consumers agree on what they want?": consumers_that_disagree,
    "When did each group commit its offsets last?": last_commits,
    "Where is this message?": where_is_it,
    "Which topics are large?": large_topics,
    "Would the simulator have answered as the broker did?": as_the_broker_did,
}


@pytest.mark.parametrize("heading", QUESTIONS)
def test_the_command_on_the_page_gives_the_answer(asked: Pullsim, taken: CapturedAnswers, heading: str) -> None:
    QUESTIONS[heading](asked, taken, heading)
