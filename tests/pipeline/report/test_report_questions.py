"""The findings of the report on given rows, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.embedded.database import EmbeddedLake
from pipeline.report.question import Answer, Missing
from pipeline.report.questions.behind_now import BEHIND_NOW
from pipeline.report.questions.clients import CLIENTS
from pipeline.report.questions.failed import FAILED
from pipeline.report.scope import Filters, Scope
from pipeline.report.tone import Tone
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import SUBSCRIPTION
from tests.makers.report_lakes import report_lake

SCOPE = Scope("lake", ("b",), imported=True)
GROUP = {
    **dict.fromkeys(
        ("messagesBehind", "dlqMessages", "lagBytes", "queuesUnknown", "queuesNegative", "groupsBehind", "queuesUnknownInAll"), 0
    ),
    **dict.fromkeys(("retriesBehind", "lagMillisMax")),
    "brokerName": "b",
    "consumerGroup": "g",
    "queues": 2,
    "groups": 1,
}


@pytest.mark.parametrize(
    ("found", "tone", "said"),
    [
        ({}, Tone.GOOD, "No message waits for any of the 1 groups."),
        (
            {"messagesBehind": None, "queuesUnknown": 2, "queuesUnknownInAll": 2},
            Tone.PLAIN,
            "No message is known to wait for any of the 1 groups, but of 2 of their queues the lag is unknown.",
        ),
        # another group than the worst may be the one that has them
        ({"groups": 2, "queuesUnknownInAll": 1}, Tone.PLAIN, "any of the 2 groups, but of 1 of their queues the lag is unknown."),
        (
            {"messagesBehind": 100, "queuesNegative": 1, "groupsBehind": 1},
            Tone.WARN,
            "<bdi>g</bdi> is behind: 100 messages.",
        ),
        ({"retriesBehind": 3, "groupsBehind": 1}, Tone.WARN, "0 messages and 3 that wait for a retry."),
        ({"messagesBehind": 5, "groupsBehind": 1, "queuesUnknownInAll": 4}, Tone.WARN, "5 messages; of 4 queues the lag is unknown."),
    ],
)
def test_no_group_is_called_well_while_a_message_waits_or_a_lag_is_unknown(found: dict[str, int | None], tone: Tone, said: str) -> None:
    answer = BEHIND_NOW.answer(SCOPE, [[GROUP | found]])
    assert isinstance(answer, Answer)
    assert answer.finding.tone is tone
    assert str(answer.finding.text).replace("<b>", "").replace("</b>", "").endswith(said)


def queue(topic: str, end: int) -> dict[str, Any]:
    return {"topic": topic, "queueId": 0, "minOffset": 0, "maxOffset": end}


def offset(group: str, topic: str, at: int) -> dict[str, Any]:
    return {"consumerGroup": group, "topic": topic, "queueId": 0, "consumerOffset": at}


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedLake:
    """Group pop has retry topics of both forms, and dead letters from topic t; pop_t is another group."""
    ends = {"t": 9, "u": 9, "%RETRY%pop_u": 4, "%RETRY%pop+t": 2, "%RETRY%pop_t": 7, "%RETRY%gone": 1, "%DLQ%pop": 3, "%DLQ%pop_t": 1}
    letters = [("%DLQ%pop", "t", 0), ("%DLQ%pop", "t", 1), ("%DLQ%pop", "u", 2), ("%DLQ%pop_t", "v", 0)]
    rows = {
        t.BROKER: [{"maxStoreTimestamp": 100, "minPhyOffset": 0}],
        t.QUEUE: [queue(topic, end) for topic, end in ends.items()],
        t.CONSUMER_OFFSET: [
            *(offset("pop", topic, at) for topic, at in (("t", 9), ("u", 9), ("%RETRY%pop_u", 1), ("%RETRY%pop+t", 1))),
            *(offset("pop_t", topic, at) for topic, at in (("v", 0), ("%RETRY%pop_t", 7))),
        ],
        t.COMMIT_LOG: [
            {"topic": topic, "queueId": 0, "queueOffset": at, "storeTimestamp": 10, "storeSize": 9, "properties": [("RETRY_TOPIC", origin)]}
            for topic, origin, at in letters
        ],
    }
    return EmbeddedLake(str(report_lake(tmp_path_factory.mktemp("failing") / "lake", rows, broker="b")))


def failed(lake: EmbeddedLake, **only: Any) -> tuple[dict[str, tuple[int, int | None, int]], Answer]:
    """(messages sent back, those that wait, dead letters) of each group, and the answer."""
    scope = Scope("lake", ("b",), Filters(**only), imported=True)
    answer = FAILED.answer(scope, [list(found) for found in lake.asked(FAILED.queries(scope))])
    assert isinstance(answer, Answer)
    return {row["consumerGroup"]: (row["sentBack"], row["retriesBehind"], row["dead"]) for row in answer.rows}, answer


def test_a_retry_topic_of_pop_belongs_to_its_group(failing: EmbeddedLake) -> None:
    assert failed(failing)[0] == {"pop": (6, 4, 3), "pop_t": (7, 0, 1), "gone": (1, None, 0)}
    assert failed(failing, group="pop")[0] == {"pop": (6, 4, 3)}


def test_what_failed_is_narrowed_to_the_topic_that_it_came_from(failing: EmbeddedLake) -> None:
    found, answer = failed(failing, topic="t")
    assert found == {"pop": (6, 4, 2)}
    assert answer.finding.text.striptags().startswith("2 dead letters of 1 group")
    assert answer.note.startswith("Tries that were sent back are those of all topics of a group")
    # no group has an offset there
    none, nothing = failed(failing, topic="w", since=5)
    assert (none, nothing.finding.tone) == ({}, Tone.GOOD)
    assert "all times" in nothing.note


def test_a_client_that_only_sent_heartbeats_is_one(tmp_path: Path) -> None:
    beat = {"source": "s", "sourceDigest": "d", "sequence": 1, "connection": "c", "client": "10.0.0.1:5", "event": "HEART_BEAT"}
    rows = {SUBSCRIPTION: [{"consumerGroup": "g", "topic": "t", "clientId": "one", "micros": 5_000_000, **beat}]}
    lake = EmbeddedLake(str(report_lake(tmp_path / "lake", rows, broker="b")))

    def answer(**only: Any) -> Answer | Missing:
        scope = Scope("lake", ("b",), Filters(**only))
        return CLIENTS.answer(scope, [list(found) for found in lake.asked(CLIENTS.queries(scope))])

    found = answer(since=9_000)
    assert isinstance(found, Answer)
    assert [(row["consumerGroup"], row["clients"], row["connected"], row["pulls"]) for row in found.rows] == [("g", 1, 1, 0)]
    assert found.note.endswith("whatever the chosen time.")
    assert isinstance(answer(group="other"), Missing)
