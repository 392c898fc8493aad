"""The table of `pullsim retention`: queues of a topic in one row, at most 100 characters wide, and a verdict without a false all-clear."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.listings import table
from pipeline.listings.retention_list import by_topic, show_retention, verdict

DAY = 86_400_000
COLUMNS = ("lostMessages", "deletedAt", "lossAt", "lossMessages", "neededReservedHours", "reason")


def row(group: str, topic: str, queue: int, **known: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "brokerName": "b", "consumerGroup": group, "topic": topic, "queueId": queue, **known}


LOSES = row("g", "t", 0, lostMessages=2, deletedAt=DAY, lossAt=3 * DAY, lossMessages=1_500, neededReservedHours=80)
LOSES_FIRST = row("g", "t", 1, lostMessages=1, deletedAt=2 * DAY, lossAt=2 * DAY, lossMessages=7, neededReservedHours=79)
NO_RATE = row("h", "t", 0, lostMessages=0, deletedAt=DAY, reason="NO_RATE")
NO_OFFSET = row("h", "t", 1, reason="NO_OFFSET")
DONE = row("i", "t", 0, lostMessages=0, reason="NOTHING_WAITS")


def test_queues_of_a_topic_are_one_row_with_sums_first_times_and_what_helps_all() -> None:
    folded = by_topic([NO_RATE, LOSES, NO_OFFSET, LOSES_FIRST])
    assert [[one["consumerGroup"], *(one[name] for name in COLUMNS)] for one in folded] == [
        ["h", 0, DAY, None, None, None, "NO_RATE, NO_OFFSET"],
        ["g", 3, DAY, 2 * DAY, 1_507, 80, None],
    ]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "no group has an offset here: nothing is known"),
        ([DONE], "no loss is foreseen"),
        ([NO_OFFSET], "of 1 queue the next message is not known"),
        (
            [LOSES, LOSES_FIRST, DONE],
            "1 group loses messages; the first is g: 7 at 1970-01-03 00:00:00 UTC; lost already: 3 messages, which the lag counts",
        ),
        (
            [row("g", "t", 0, lossAt=DAY, lossMessages=4)],
            "the first is g: 4 at 1970-01-02 00:00:00 UTC; no fileReservedTime keeps them, as these groups consume nothing",
        ),
        (
            [LOSES_FIRST, row("a", "t", 0, lossAt=2 * DAY, lossMessages=3), row("b", "t", 0, lossAt=2 * DAY, lossMessages=9)],
            "3 groups lose messages; the first is b: 9 at 1970-01-03 00:00:00 UTC, and 2 more then",
        ),
        (
            [NO_RATE, DONE],
            "how fast 1 group consumes is not known, for captured commits show minutes and not days: --rate 0 assumes none, and",
        ),
        (
            [NO_RATE, row("a", "t", 0, deletedAt=DAY, reason="NO_RATE"), row("b", "t", 0, deletedAt=2 * DAY, reason="NO_RATE")],
            "the next file with messages that wait goes at 1970-01-02 00:00:00 UTC: what a and 1 more did not consume then is lost",
        ),
        ([NO_RATE, DONE], "finds rates; of 1 other queue no loss is foreseen"),
    ],
)
def test_the_line_below_says_what_is_lost_and_what_is_not_known(rows: list[dict[str, Any]], told: str) -> None:
    assert told in str(verdict(rows))
    assert (str(verdict(rows)) == "no loss is foreseen") == (rows == [DONE])


def test_what_was_skipped_before_is_no_all_clear() -> None:
    told = "captured pulls were sent past 699 deleted messages, which no lag counts (pullsim pulls --outcome 21 tells when)"
    assert str(verdict([DONE], 699)) == f"{told}; of 1 other queue no loss is foreseen"


def test_a_table_is_narrow_and_cut_where_there_is_much(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    known = {"lostMessages": 12_345, "deletedAt": DAY, "lossAt": DAY, "lossMessages": 10}
    many = [row("a-group-of-a-very-long-name" * 3, "and-a-topic-too" * 3, queue, **known) for queue in range(51)]
    show_retention(many, by_broker=False, by_queue=True, limit=None, skipped={}, rules=())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 100
    assert lines[0].split()[:4] == ["Group", "Topic", "QID", "Lost"]
    assert lines[52] == "50 of 51 rows; --limit 0 shows all"
    show_retention(many, by_broker=False, by_queue=False, limit=None, skipped={}, rules=())
    assert f"{51 * 12_345:,}" in capsys.readouterr().out
    show_retention([], by_broker=False, by_queue=False, limit=0, skipped={}, rules=())
    assert capsys.readouterr().out == "(0 rows)\nno group has an offset here: nothing is known\n"


def test_what_pulls_were_sent_past_stands_beside_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = {("b", "g", "t", 0): 5, ("b", "g", "t", 1): 1000, ("b", "g", "other", 0): 2}  # a queue without a row counts below the table
    show_retention([LOSES, LOSES_FIRST, DONE], by_broker=False, by_queue=False, limit=None, skipped=skipped, rules=("the rule",))
    table_, told = capsys.readouterr().out.split("\n\n")
    header, *lines = (line.split() for line in table_.splitlines())
    assert header[:4] == ["Group", "Topic", "Skipped", "Lost"]
    assert [line[:4] for line in lines] == [["g", "t", "1,005", "3"], ["i", "t", "0", "0"]]
    assert "captured pulls were sent past 1,007 deleted messages" in " ".join(told.split())
    assert told.splitlines()[-1] == "- the rule"
