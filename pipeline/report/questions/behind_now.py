"""Which groups have consumer lag: consume_lag summed by group, the group with most waiting messages first.

Rule: a group has lag if any of its queues has, as in the chart of lag over time. Surprise: a sum of lags hides some, because a negative lag
of one queue (an offset past the end) cancels the lag of another.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import (
    TOP,
    Answer,
    Missing,
    Question,
    ReportColumn,
    ReportFinding,
    no_offsets,
    waiting,
    with_broker,
)
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone


def _queries(scope: Scope) -> Sequence[str]:
    waits = waiting("lag")
    return [
        f"""\
WITH lags AS (
  SELECT
    brokerName, consumerGroup,
    try_sum({waits}) FILTER (WHERE NOT startswith(topic, '%RETRY%')) AS messagesBehind,
    try_sum({waits}) FILTER (WHERE startswith(topic, '%RETRY%')) AS retriesBehind,
    sum(CAST({waits} AS DOUBLE)) AS inAll,
    try_sum(lagBytes) AS lagBytes,
    max(lagMillis) AS lagMillisMax,
    count(*) AS queues,
    count_if(lag > 0) AS queuesBehind,
    count_if(lag IS NULL) AS queuesUnknown,
    count_if(lag < 0) AS queuesNegative
  FROM consume_lag
  {scope.rows()}
  GROUP BY brokerName, consumerGroup
), dead AS (
  SELECT brokerName, substring(topic, 6) AS consumerGroup, sum(maxOffset - minOffset) AS dlqMessages
  FROM queue
  WHERE startswith(topic, '%DLQ%') {scope.of_broker("AND")}
  GROUP BY brokerName, topic
)
SELECT
  brokerName, consumerGroup, messagesBehind, retriesBehind, coalesce(dlqMessages, 0L) AS dlqMessages, lagBytes, lagMillisMax,
  queues, queuesUnknown, queuesNegative,
  count(*) OVER () AS groups,
  count_if(queuesBehind > 0) OVER () AS groupsBehind,
  sum(queuesUnknown) OVER () AS queuesUnknownInAll
FROM lags
LEFT JOIN dead USING (brokerName, consumerGroup)
ORDER BY inAll DESC NULLS LAST, lagMillisMax DESC NULLS LAST, brokerName, consumerGroup
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    [rows] = found
    if not rows:
        return no_offsets(scope)
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("messagesBehind", "Messages behind", bar=True),
        ReportColumn("lagMillisMax", "Next message has waited", forms.duration),
        ReportColumn("lagBytes", "Bytes", forms.size),
        ReportColumn("retriesBehind", "In the retry topic"),
        ReportColumn("dlqMessages", "Dead letters"),
        ReportColumn("queues", "Queues"),
        ReportColumn("queuesUnknown", "of unknown lag"),
        ReportColumn("queuesNegative", "past the end"),
    )
    note = (
        "Offsets past the end count as no lag; mqadmin, and groupDiff of the view group_lag, subtract them. Queues of unknown lag are in "
        "no sum: reason in consume_lag says why."
    )
    return Answer(_finding(rows[0]), columns=columns, rows=rows, note=note)


def _finding(worst: Row) -> ReportFinding:
    groups, behind, unknown = worst["groups"], worst["groupsBehind"], worst["queuesUnknownInAll"]
    if not behind and unknown:
        text = Markup("No message is known to wait for any of the <b>{}</b> groups, but of <b>{}</b> of their queues the lag is unknown.")
        return ReportFinding(Tone.PLAIN, text.format(forms.count(groups), forms.count(unknown)))
    if not behind:
        return ReportFinding(Tone.GOOD, Markup("No message waits for any of the <b>{}</b> groups.").format(forms.count(groups)))
    many = Markup("<b>{}</b> of {} groups are behind, {} the furthest").format(
        forms.count(behind), forms.count(groups), forms.name(worst["consumerGroup"])
    )
    who = many if groups > 1 else Markup("{} is behind").format(forms.name(worst["consumerGroup"]))
    text = Markup("{}: <b>{}</b>").format(who, forms.counted(worst["messagesBehind"], "message"))
    if worst["retriesBehind"]:
        text += Markup(" and {} that wait for a retry").format(forms.count(worst["retriesBehind"]))
    if worst["lagMillisMax"] is not None:
        text += Markup("; the next one has waited <b>{}</b>").format(forms.duration(worst["lagMillisMax"]))
    if unknown:
        text += Markup("; of <b>{}</b> queues the lag is unknown").format(forms.count(unknown))
    return ReportFinding(Tone.WARN, text + Markup("."))


BEHIND_NOW = Question(
    "behind",
    "Which groups are behind?",
    "Messages between the offset that each group has stored and the end of its queues, as of the last message in the store.",
    _queries,
    _answer,
)
