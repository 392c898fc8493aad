"""The report's question on filters: how many of the entries that the broker scans for a group match the group's filter."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import (
    REPLAY,
    TOP,
    Answer,
    Missing,
    Question,
    ReportColumn,
    ReportFinding,
    no_pulls,
    with_broker,
)
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone

_POOR = 0.5


def _queries(scope: Scope) -> Sequence[str]:
    if scope.source is None:
        return []
    return [
        f"""\
{_passed(scope)}
SELECT
  brokerName, consumerGroup, topic, expressionType, expression, pulls, pullsForNothing, pullsForNothing / pulls AS shareForNothing,
  offsetsPassed, messageCount, efficiency
FROM passed
WHERE expression <> '*' OR expression IS NULL AND pullsForNothing > 0
ORDER BY pullsForNothing DESC, efficiency NULLS LAST, brokerName, consumerGroup, topic
LIMIT {TOP}"""
    ]


def _passed(scope: Scope) -> str:
    """Return SQL for what passed each group's filter: the view's rows, or, as the view has no times, the same sums over a span of time."""
    source = "REPLAYED" if scope.replayed else "CAPTURED"
    if not scope.only.is_timed:
        return f"WITH passed AS (SELECT * FROM filter_efficiency WHERE source = '{source}' {scope.rows('AND')})"
    return f"""\
WITH looked AS (
  SELECT
    brokerName, consumerGroup, topic, count(*) AS pulls, count_if(outcome = 'NO_MATCHED_MESSAGE') AS pullsForNothing,
    sum(nextBeginOffset - queueOffset) AS offsetsPassed,
    CASE WHEN count_if(messageCount IS NULL AND outcome = 'FOUND') = 0 THEN coalesce(sum(messageCount), 0L) END AS messageCount
  FROM pull_outcome
  WHERE source = '{source}' AND outcome IN ('FOUND', 'NO_MATCHED_MESSAGE') {scope.rows("AND", micros="arrivalMicros")}
  GROUP BY brokerName, consumerGroup, topic
), passed AS (
  SELECT *, try_divide(messageCount, offsetsPassed) AS efficiency
  FROM looked
  LEFT JOIN group_filter USING (brokerName, consumerGroup, topic)
)"""


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    if not found:
        return no_pulls(scope)
    [rows] = found
    if not rows:
        return Answer(ReportFinding(Tone.GOOD, Markup("No group pulled with a filter that leaves messages out.")))
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("expression", "Filter", forms.name),
        ReportColumn("pulls", "Pulls"),
        ReportColumn("pullsForNothing", "let nothing pass", bar=True),
        ReportColumn("shareForNothing", "of its pulls", forms.share),
        ReportColumn("offsetsPassed", "Messages looked at"),
        ReportColumn("messageCount", "given"),
        ReportColumn("efficiency", "Passed", forms.share),
    )
    note = ""
    if not scope.replayed:
        command = REPLAY.format(lake=scope.lake)
        note = f"On the wire it does not show how many messages an answer has. A replay of the capture tells: {command}"
    return Answer(_finding(rows[0]), columns=columns, rows=rows, note=note)


def _finding(worst: Row) -> ReportFinding:
    part = worst["pullsForNothing"] / worst["pulls"]
    text = Markup("The filter of {} on {} let nothing pass in <b>{}</b> of its {} pulls").format(
        forms.name(worst["consumerGroup"]), forms.name(worst["topic"]), forms.share(part), forms.count(worst["pulls"])
    )
    if worst["efficiency"] is not None:
        text += Markup("; of the messages looked at {} passed").format(forms.share(worst["efficiency"]))
    return ReportFinding(Tone.WARN if part > _POOR else Tone.PLAIN, text + Markup("."))


FILTERS = Question(
    "filters",
    "Do filters cost pulls?",
    "Pulls whose filter let nothing pass of what the broker looked at, and how much passed in all. A group that takes all messages is not "
    "listed.",
    _queries,
    _answer,
)
