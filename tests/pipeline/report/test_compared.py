"""A report compared with another one: groups that are new or gone, lags that one report does not know, and reports that were cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.report import compared as module
from pipeline.report.compared import Compared, ReportFileError, read_report
from pipeline.report.compared_topics import topics_question
from pipeline.report.question import Answer
from pipeline.report.scope import Filters, Scope
from pipeline.report.tone import Tone

Group = dict[str, Any]
CALM = "the lag of no group changed"


def group(name: str = "g", status: str = "OK", lag: int | None = 0, **figures: int | None) -> Group:
    others = {"retryLag": None, "dlqMessages": 0, "lagMillisMax": None, "queuesUnknown": 0}
    return {"brokerName": "b", "consumerGroup": name, "status": status, "lag": lag} | others | figures


def compare(before: Sequence[Group], now: Sequence[Group], only: Filters | None = None) -> tuple[Tone, str, Answer]:
    """Compare the groups of two reports; returns the answer's tone, its sentence without the begin, and the answer."""
    question = Compared("before.json", 0, "lake", {}, before, []).question({"groups": now})
    answer = question.answer(Scope("lake", ("b",), only or Filters()), [])
    assert isinstance(answer, Answer)
    return answer.finding.tone, answer.finding.text.striptags().split(" UTC ")[1].removesuffix("."), answer


@pytest.mark.parametrize(
    ("before", "now", "tone", "said"),
    [
        ([], [group(status="STALL", lag=10**9)], Tone.BAD, f"{CALM}; new: 1, such as g, STALL: 1,000,000,000 messages wait"),
        ([], [group(lag=3)], Tone.WARN, f"{CALM}; new: 1, such as g, OK: 3 messages wait"),
        ([], [group()], Tone.PLAIN, f"{CALM}; new: 1, such as g, OK"),
        # the one in trouble is named, not the one with most lag
        ([], [group("a", lag=9), group("z", "STOP", 1)], Tone.BAD, f"{CALM}; new: 2, such as z, STOP: 1 message waits"),
        ([group()], [], Tone.PLAIN, f"{CALM}; gone: 1, such as g"),
        ([group(status="STALL")], [group(status="REWIND")], Tone.BAD, f"{CALM}; the status of 1 became worse"),
        ([group(status="REWIND")], [group(status="STALL")], Tone.PLAIN, CALM),
        ([group(status="OK")], [group(status="UNKNOWN")], Tone.PLAIN, CALM),
        # nothing is known of the lag on one side, whatever waits for a retry
        ([group(lag=100_000)], [group(lag=None, retryLag=5)], Tone.PLAIN, CALM),
        ([group(lag=None)], [group(lag=100_000)], Tone.PLAIN, CALM),
        ([group(lag=100_000)], [group(lag=5, queuesUnknown=1)], Tone.PLAIN, CALM),
        ([group(lag=9, queuesUnknown=1)], [group(lag=5, queuesUnknown=1)], Tone.GOOD, "lag grew in 0 and fell in 1 of 1 groups"),
        # its dead letters may be old
        ([], [group(dlqMessages=9)], Tone.PLAIN, f"{CALM}; new: 1, such as g, OK"),
        ([group(dlqMessages=8)], [group(dlqMessages=9)], Tone.BAD, f"{CALM}; 1 dead letters came"),
    ],
)
def test_what_changed(before: Sequence[Group], now: Sequence[Group], tone: Tone, said: str) -> None:
    assert compare(before, now)[:2] == (tone, said)


def test_only_groups_of_both_are_compared_where_a_report_may_lack_some(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = [group("a"), group("b")], [group("b"), group("c", "STOP", 7)]
    narrowed = compare(before, now, Filters(group="c"))
    assert narrowed[:2] == (Tone.PLAIN, CALM)
    assert narrowed[2].note == "It was narrowed otherwise than this one: only groups of both are compared."
    monkeypatch.setattr(module, "_MOST", 2)
    cut = compare(before, now)
    assert cut[:2] == (Tone.PLAIN, CALM)
    assert cut[2].note.startswith("A report has at most 2 groups")


def topic(name: str = "t", messages: int = 100, size: int = 1000, **figures: float | None) -> dict[str, Any]:
    return {"brokerName": "b", "topic": name, "messages": messages, "bytes": size, "messagesPerSecond": None, "keptMillis": None} | figures


def compare_topics(before: Sequence[Group], now: Sequence[Group], only: Filters | None = None) -> tuple[str, Answer]:
    """Compare the topics of two reports; returns the answer's sentence without the begin, and the answer."""
    question = topics_question(Compared("before.json", 0, "lake", {}, [], before), {"topics": now})
    answer = question.answer(Scope("lake", ("b",), only or Filters()), [])
    assert isinstance(answer, Answer)
    assert answer.finding.tone is Tone.PLAIN
    return answer.finding.text.striptags().split(" UTC ")[1].removesuffix("."), answer


def test_what_changed_of_topics() -> None:
    before = [topic("a"), topic("b", 50, 900, messagesPerSecond=2.5, keptMillis=60_000), topic("c"), topic("same", keptMillis=5)]
    now = [topic("a", 70, 1300), topic("b", 450, 9900, messagesPerSecond=4, keptMillis=30_000), topic("d", 7), topic("same", keptMillis=9)]
    said, answer = compare_topics(before, now)
    assert said == "messages of 2 of 5 topics changed, most of b: +400 to 450; new: 1, such as d; gone: 1, such as c"
    names = ("presence", "messagesBefore", "messages", "messagesChange", "bytesChange", "rateBefore", "rate", "keptBefore", "kept")
    assert {row["topic"]: tuple(row[name] for name in names) for row in answer.rows} == {
        "b": ("", 50, 450, 400, 9000, 2.5, 4, 60_000, 30_000),
        "c": ("gone", 100, None, None, None, None, None, None, None),
        "a": ("", 100, 70, -30, 300, None, None, None, None),
        "d": ("new", None, 7, None, None, None, None, None, None),
    }
    assert [row["topic"] for row in answer.rows] == ["b", "c", "a", "d"]
    said, answer = compare_topics(now, now)
    assert (said, answer.rows, answer.note) == ("the store has the same messages of each topic", [], "")


def test_only_topics_of_both_are_compared_where_a_report_may_lack_some(monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = [topic("a"), topic("b")], [topic("b"), topic("c")]
    said, answer = compare_topics(before, now, Filters(topic="c"))
    assert said == "the store has the same messages of each topic"
    assert answer.note == "It was narrowed otherwise than this one: only topics of both are compared."
    monkeypatch.setattr(module, "_MOST", 2)
    assert compare_topics(before, now)[1].note.startswith("A report has at most 2 topics, those with most bytes: only topics of both")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"pullsimReport": 1, "lake": "l", "only": {}, "groups": [], "topics": [], "facts": {"made": float("inf")}}),
        json.dumps(
            {"pullsimReport": 1, "lake": "l", "only": {}, "groups": [], "facts": {"made": 1}}
            | {"topics": [topic(messagesPerSecond=float("nan"))]}
        ),
        "[" * 100_000,
        "[]",
        json.dumps({"pullsimReport": 1, "lake": "l", "only": {}, "groups": [group(lag=3) | {"lag": float("-inf")}], "facts": {"made": 1}}),
    ],
)
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(text, "utf-8")
    with pytest.raises(ReportFileError, match=r"^--compare .*odd\.json: expected a report that --format json wrote, found"):
        read_report(str(tmp_path / "odd.json"))
