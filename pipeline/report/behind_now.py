"""Which groups are behind: group_lag, those first that most waits for."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.report import forms
from pipeline.report.question import IMPORT, TOP, Answer, Column, Finding, Missing, Question, Row, Scope, Tone, with_broker


def _queries(scope: Scope) -> Sequence[str]:
    return [
        f"""\
SELECT
  brokerName, consumerGroup, groupDiff, groupRetryDiff, dlqMessages, lagBytes, lagMillisMax, queues, queuesUnknown, queuesNegative,
  count(*) OVER () AS groups,
  count_if(greatest(groupDiff, groupRetryDiff) > 0) OVER () AS groupsBehind
FROM group_lag
{scope.of_broker()}
ORDER BY greatest(groupDiff, 0) + greatest(coalesce(groupRetryDiff, 0), 0) DESC, lagMillisMax DESC NULLS LAST, brokerName, consumerGroup
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    [rows] = found
    if not rows:
        return Missing("No group has stored an offset in the lake: config/consumerOffset.json of the store has none.", [IMPORT])
    columns = with_broker(
        scope,
        Column("consumerGroup", "Group", forms.name),
        Column("groupDiff", "Messages behind", bar=True),
        Column("lagMillisMax", "Next message has waited", forms.duration),
        Column("lagBytes", "Bytes", forms.size),
        Column("groupRetryDiff", "Waiting for a retry"),
        Column("dlqMessages", "Dead letters"),
        Column("queues", "Queues"),
        Column("queuesUnknown", "of unknown lag"),
        Column("queuesNegative", "past the end"),
    )
    note = "A negative lag is an offset past the end of its queue; it lowers the sum, as in mqadmin. Queues of unknown lag are in no sum."
    return Answer(_finding(rows[0]), columns=columns, rows=rows, note=note)


def _finding(worst: Row) -> Finding:
    groups, behind = worst["groups"], worst["groupsBehind"]
    if not behind:
        return Finding(Tone.GOOD, Markup("No message waits for any of the <b>{}</b> groups.").format(forms.count(groups)))
    text = Markup("<b>{}</b> of {} groups are behind, {} the furthest: <b>{}</b> messages").format(
        forms.count(behind), forms.count(groups), forms.name(worst["consumerGroup"]), forms.count(worst["groupDiff"])
    )
    if worst["groupRetryDiff"]:
        text += Markup(" and {} that wait for a retry").format(forms.count(worst["groupRetryDiff"]))
    if worst["lagMillisMax"] is not None:
        text += Markup("; the next one has waited <b>{}</b>").format(forms.duration(worst["lagMillisMax"]))
    return Finding(Tone.WARN, text + Markup("."))


BEHIND_NOW = Question(
    "behind",
    "Which groups are behind?",
    "Messages between the offset that each group has stored and the end of its queues, as of the last message in the store.",
    _queries,
    _answer,
)
