"""Which queues get more than their share of a topic."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import IMPORT, TOP, Answer, Missing, Question, ReportColumn, ReportFinding, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone

_HOT = 1.5


def _queries(scope: Scope) -> Sequence[str]:
    return [
        f"""\
SELECT brokerName, topic, queueId, messages, bytes, messagesShare, timesFairShare, messagesPerSecond
FROM hot_queue
WHERE timesFairShare > {_HOT} AND NOT startswith(topic, '%')
  AND topic NOT IN ('SCHEDULE_TOPIC_XXXX', 'OFFSET_MOVED_EVENT') {scope.topics("AND")}
ORDER BY messages * (1 - 1 / timesFairShare) DESC, brokerName, topic, queueId
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    [rows] = found
    if not scope.imported:
        return Missing("No store was imported.", [IMPORT])
    if not rows:
        return Answer(ReportFinding(Tone.GOOD, Markup("No queue gets more than {} its share of a topic.").format(forms.times(_HOT))))
    worst = rows[0]
    text = Markup("Queue {} of {} gets <b>{}</b> its share: {}, {} of the topic.").format(
        worst["queueId"],
        forms.name(worst["topic"]),
        forms.times(worst["timesFairShare"]),
        forms.counted(worst["messages"], "message"),
        forms.share(worst["messagesShare"]),
    )
    columns = with_broker(
        scope,
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("queueId", "Queue", forms.words),
        ReportColumn("timesFairShare", "of its share", forms.times, bar=True),
        ReportColumn("messages", "Messages"),
        ReportColumn("messagesShare", "of the topic", forms.share),
        ReportColumn("bytes", "Bytes", forms.size),
        ReportColumn("messagesPerSecond", "Rate", forms.rate),
    )
    return Answer(ReportFinding(Tone.WARN, text), columns=columns, rows=rows)


HOT_QUEUES = Question(
    "hot",
    "Which queues are hot?",
    f"Queues with more than {_HOT} times as many messages as the topic's queues have on the average, the largest surplus first.",
    _queries,
    _answer,
)
