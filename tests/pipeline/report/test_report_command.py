"""`pullsim report` without Spark: narrowed to a group, a topic or a time, as json, and compared with an earlier report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.commands.engine import Engine
from pipeline.main import run
from pipeline.report.build import QUESTIONS
from pipeline.report.compared import read_report
from pipeline.report.question import Answer
from pipeline.report.scope import Filters, Scope
from pipeline.schema import tables as t
from tests.makers.report_lakes import BROKER, HOSTILE, START, TOPIC, hostile_rows, report_lake

Report = dict[str, Any]
SECOND = 1000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of hostile names, with a retry topic, dead letters and a second topic of the first group."""
    return report_lake(tmp_path_factory.mktemp("narrowed") / "lake", rows())


def rows() -> dict[t.Table, list[dict[str, Any]]]:
    found = hostile_rows()
    group = HOSTILE[0]
    retry, dead, other = (f"%RETRY%{group}", f"%DLQ%{group}", "other")
    ends = {retry: 9, dead: 4, other: 3}
    found[t.QUEUE] += [{"topic": topic, "queueId": 0, "minOffset": 0, "maxOffset": end} for topic, end in ends.items()]
    found[t.CONSUMER_OFFSET] += [
        {"consumerGroup": group, "topic": topic, "queueId": 0, "consumerOffset": offset} for topic, offset in ((retry, 7), (other, 1))
    ]
    letters = [{"topic": dead, "queueId": 0, "queueOffset": number, "storeTimestamp": START, "storeSize": 10} for number in range(4)]
    found[t.COMMIT_LOG] = [{**letter, "properties": [("RETRY_TOPIC", TOPIC)]} for letter in letters]
    return found


@pytest.fixture
def report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: Path
) -> Callable[..., tuple[int, Report, str]]:
    monkeypatch.setattr(Engine, "session", lambda *_, **__: pytest.fail("Spark was started"))

    def call(*words: object) -> tuple[int, Report, str]:
        out = tmp_path / "report.json"
        code = run(["report", "--lake", str(lake), "--out", str(out), "--format", "json", *map(str, words)])
        return code, json.loads(out.read_text("utf-8")) if out.exists() else {}, capsys.readouterr().err

    return call


@pytest.fixture(scope="module")
def whole(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the report about all of the lake."""
    out = tmp_path_factory.mktemp("whole") / "whole.json"
    assert run(["report", "--lake", str(lake), "--out", str(out), "--format", "json"]) == 0
    return out


def asked(found: Report) -> dict[str, Report]:
    return {question["id"]: question for question in found["questions"]}


def test_the_json_has_the_sentences_rows_and_figures_of_the_page(whole: Path) -> None:
    found = json.loads(whole.read_text("utf-8"))
    assert list(asked(found)) == [question.anchor for question in QUESTIONS]
    assert found["only"] == {}
    assert (found["facts"]["brokers"], found["facts"]["lakeVersion"]) == ([BROKER], 1)
    behind = asked(found)["behind"]
    assert behind["tone"] == "warn"
    assert behind["finding"].startswith(f"8 of 8 groups are behind, {HOSTILE[0]} the furthest: 202 messages and 2 that wait for a retry")
    assert behind["rows"][0]["consumerGroup"] == HOSTILE[0]
    chart = asked(found)["throughput"]["chart"]
    assert (chart["unit"], chart["start"]) == ("Messages stored", START)
    assert [sum(one["values"]) for one in chart["series"]] == [220]
    assert {row["consumerGroup"]: row["lag"] for row in found["groups"]}[HOSTILE[0]] == 202
    assert {row["topic"] for row in found["topics"]} == {TOPIC, "other", f"%RETRY%{HOSTILE[0]}", f"%DLQ%{HOSTILE[0]}"}


def test_what_failed_and_who_consumes(whole: Path) -> None:
    found = asked(json.loads(whole.read_text("utf-8")))
    [failed] = found["failed"]["rows"]
    assert failed == {"consumerGroup": HOSTILE[0], "dead": 4, "everDead": 4, "oldestMillis": 19_900, "originTopic": TOPIC, "readers": 0} | {
        "sentBack": 9,
        "retriesBehind": 2,
    }
    assert found["failed"]["tone"] == "bad"
    assert [(row["clients"], row["seen"], row["pulls"]) for row in found["clients"]["rows"]] == [(1, 1, 20)] * len(HOSTILE)


def test_a_report_is_narrowed_to_a_group_and_a_topic(report: Callable[..., tuple[int, Report, str]]) -> None:
    code, found, err = report("--group", HOSTILE[3])
    assert code == 0, err
    assert found["only"] == {"group": HOSTILE[3]}
    for question in found["questions"]:
        assert {row["consumerGroup"] for row in question.get("rows", []) if "consumerGroup" in row} <= {HOSTILE[3]}
    assert asked(found)["statuses"]["finding"].startswith("20 pulls were captured")
    assert asked(found)["failed"]["finding"] == "No message was sent back, and there is no dead letter."
    assert [row["topic"] for row in found["topics"]] == [TOPIC]


def test_what_the_report_leaves_out_is_no_all_clear(report: Callable[..., tuple[int, Report, str]]) -> None:
    """Topic other has an offset of the first group, but no captured pull and no stored message."""
    found = asked(report("--topic", "other")[1])
    [row] = found["behind"]["rows"]
    assert (row["consumerGroup"], row["messagesBehind"], row["retriesBehind"]) == (HOSTILE[0], 2, None)
    for name in ("statuses", "nothing", "filters", "corrections", "throughput"):
        assert "missing" in found[name], name
        assert "tone" not in found[name], name
    assert found["statuses"]["missing"] == "No pulls of what the report is narrowed to were captured or replayed."


def test_a_report_is_narrowed_to_a_time(report: Callable[..., tuple[int, Report, str]]) -> None:
    """In each second each group pulls once: of four pulls one finds messages, one is sent to another offset, two find nothing."""
    since, until = START + 4 * SECOND, START + 7 * SECOND
    code, found, err = report("--from", since, "--to", until)
    assert code == 0, err
    questions = asked(found)
    assert questions["statuses"]["finding"].startswith(f"{3 * len(HOSTILE)} pulls were captured: 33 % brought messages")
    nothing = {(row["outcome"], row["pulls"], round(row["share"], 3), row["held"]) for row in questions["nothing"]["rows"]}
    assert nothing == {("OFFSET_TOO_SMALL", 1, 0.333, 0), ("NO_MATCHED_MESSAGE", 1, 0.333, 0)}
    assert questions["corrections"]["finding"].startswith(f"{len(HOSTILE)} pulls were sent")
    assert questions["throughput"]["rows"][0]["messages"] == 30, "a message every 100 ms; queue 1 got all of its before"
    assert questions["lag"]["chart"]["start"] >= since
    assert {(row["pulls"], row["pullsForNothing"]) for row in questions["filters"]["rows"]} == {(2, 1)}
    # what waits is that of the store's end in any case
    assert questions["behind"]["finding"].startswith("8 of 8 groups are behind")


def test_two_reports_are_compared(report: Callable[..., tuple[int, Report, str]], whole: Path, tmp_path: Path) -> None:
    earlier = json.loads(whole.read_text("utf-8"))
    groups = {row["consumerGroup"]: row for row in earlier["groups"]}
    dead, fallen, grown, new = HOSTILE[:4]
    groups[dead]["dlqMessages"] = 1
    groups[fallen] |= {"lag": 330, "status": "STOP"}
    groups[grown] |= {"lag": 160, "retryLag": None, "lagMillisMax": 1}
    gone = groups.pop(new) | {"consumerGroup": "gone one"}
    topics = {row["topic"]: row for row in earlier["topics"]}
    # of the queue of 200 messages the store has those from 5 on, and 15 of the other one; the first came at START
    assert [topics[TOPIC][name] for name in ("messages", "bytes", "keptMillis")] == [210, 21_000, 19_400]
    topics[TOPIC] |= {"messages": 10, "bytes": 1000, "messagesPerSecond": 0.5, "keptMillis": 100}
    topics.pop("other")
    [letters] = [row for name, row in topics.items() if name.startswith("%DLQ%")]
    del letters["keptMillis"], letters["messagesPerSecond"]  # as in a report of an earlier version
    before = earlier | {"groups": [*groups.values(), gone], "topics": list(topics.values())}
    (tmp_path / "before.json").write_text(json.dumps(before), "utf-8")
    code, found, err = report("--compare", tmp_path / "before.json")
    assert code == 0, err
    changed = asked(found)["changed"]
    assert found["questions"][0]["id"] == "changed"
    lags = {row["consumerGroup"]: (row["lagBefore"], row["lag"], row["lagChange"], row["deadChange"]) for row in changed["rows"]}
    # what waits on the retry topic counts; of 200 messages group n has consumed 10 n
    assert lags == {
        fallen: (330, 190, -140, 0),
        grown: (160, 180, 20, 0),
        dead: (204, 204, 0, 3),
        "gone one": (170, None, None, None),
        new: (None, 170, None, None),
    }
    statuses = {row["consumerGroup"]: (row["statusBefore"], row["status"]) for row in changed["rows"]}
    assert (statuses["gone one"][1], statuses[new][0], statuses[fallen][0]) == ("gone", "new", "STOP")
    assert changed["tone"] == "bad"
    assert f"lag grew in 1 and fell in 1 of 9 groups; most of {grown}: +20 to 180" in changed["finding"]
    assert changed["finding"].endswith("3 dead letters came.")
    assert "note" not in changed
    changed = asked(found)["changed-topics"]
    assert changed["finding"].endswith(f"messages of 1 of 4 topics changed, most of {TOPIC}: +200 to 210; new: 1, such as other.")
    rows = {row["topic"]: (row["messagesBefore"], row["messages"], row["rateBefore"], row["keptBefore"]) for row in changed["rows"]}
    assert rows == {TOPIC: (10, 210, 0.5, 100), "other": (None, 0, None, None)}, "its queue has no entry"


def test_a_report_is_no_change_from_itself(whole: Path) -> None:
    before, state = read_report(str(whole)), json.loads(whole.read_text("utf-8"))
    answer = before.question(state).answer(Scope(state["lake"], (BROKER,), Filters(topic="other")), [])
    assert isinstance(answer, Answer)
    assert answer.finding.text.striptags().endswith("the lag of no group changed.")
    assert not answer.rows
    assert answer.note.startswith("It was narrowed otherwise than this one")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--group", "javascript:alert(1)//"), "the lake knows no consumer group"),
        (("--topic", "othr"), "the nearest known: 'other'"),
        (("--broker", "c"), "expected broker 'c'"),
        (("--from", "yesterday"), "expected ms since 1970 or a time such as"),
        (("--from", "-1"), "--from: expected a time from 1970 to the year 9999, found -1 ms since 1970; leave --from out for no limit"),
        (("--to", "1969-12-31T23:59:59"), "--to: expected a time from 1970 to the year 9999, found -1000 ms"),
        (("--to", str(2**62)), "expected a time from 1970 to the year 9999"),
        (("--from", "2000", "--to", "2000"), "--from: expected a time before that of --to, found 1970-01-01 00:00:02.000 UTC"),
        (("--compare", "none.json"), "--compare none.json: expected a report that --format json wrote"),
        (("--compare", "odd.json"), "--compare odd.json: expected a report that --format json wrote, found other json"),
        (("--compare", "newer.json"), "expected a report of form 1, found one of form 2"),
    ],
)
def test_what_cannot_be_reported_ends_with_2(
    report: Callable[..., tuple[int, Report, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.json").write_text('{"pullsimReport": 1, "groups": [{}]}', "utf-8")
    (tmp_path / "newer.json").write_text('{"pullsimReport": 2}', "utf-8")
    code, found, err = report(*words)
    assert (code, found) == (2, {})
    assert told in err
