"""What the report says of rows, without Spark."""

from __future__ import annotations

import pytest

from pipeline.report.behind_now import BEHIND_NOW
from pipeline.report.question import Answer
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone

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
            "1 of 1 groups are behind, <bdi>g</bdi> the furthest: 100 messages.",
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
