"""The report's question on filters: how many of the entries that the broker scans for a group match the group's filter."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import (
    NO_PULLS,
    REPLAY,
    TOP,
    Answer,
    Missing,
    Question,
    ReportColumn,
    ReportFinding,
    Scope,
    Tone,
    with_broker,
)

_POOR = 0.5


def _queries(scope: Scope) -> Sequence[str]:
    if scope.source is None:
        return []
    return [
        f"""\
SELECT
  brokerName, consumerGroup, topic, expressionType, expression, pulls, pullsForNothing, pullsForNothing / pulls AS shareForNothing,
  offsetsPassed, messageCount, efficiency
FROM filter_efficiency
WHERE source = '{"REPLAYED" if scope.replayed else "CAPTURED"}' {scope.of_broker("AND")}
  AND (expression <> '*' OR expression IS NULL AND pullsForNothing > 0)
ORDER BY pullsForNothing DESC, efficiency NULLS LAST, brokerName, consumerGroup, topic
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    if not found:
        return NO_PULLS
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
