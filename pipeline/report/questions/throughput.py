"""How many messages came to each topic, over time and in all."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.charts import Chart, Series, Shape
from pipeline.report.question import IMPORT, SERIES, TOP, Answer, Missing, Question, ReportColumn, ReportFinding, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone
from pipeline.report.window import Window


def _queries(scope: Scope) -> Sequence[str]:
    if scope.stored is None:
        return []
    window = scope.stored
    came = f"""\
WITH came AS (
  SELECT brokerName, topic, (storeTimestamp - {window.start}) DIV {window.width} AS bin, count(*) AS messages, sum(size) AS bytes
  FROM consume_queue
  WHERE storeTimestamp > 0 {scope.topics("AND", millis="storeTimestamp")}
  GROUP BY ALL
)"""
    per_second = f"max(messages) * 1000D / {window.width}"
    return [
        f"""\
{came}
SELECT
  brokerName, topic, sum(messages) AS messages, sum(bytes) AS bytes, try_divide(sum(bytes), sum(messages)) AS bytesPerMessage,
  sum(messages) * 1000D / {window.end - window.start} AS rate, {per_second} AS peakRate,
  max_by(bin, struct(messages, -bin)) * {window.width} + {window.start} AS peakAt,
  sum(sum(messages)) OVER () AS messagesInAll, sum(sum(bytes)) OVER () AS bytesInAll, count(*) OVER () AS topics
FROM came
GROUP BY brokerName, topic
ORDER BY messages DESC, brokerName, topic
LIMIT {TOP}""",
        f"""\
-- messages in each of {window.bins} bins of {window.width} ms, of the topics with most
{came}, placed AS (
  SELECT *, dense_rank() OVER (ORDER BY whole DESC, brokerName, topic) AS place
  FROM (SELECT *, sum(messages) OVER (PARTITION BY brokerName, topic) AS whole FROM came)
)
SELECT brokerName, topic, bin, messages
FROM placed
WHERE place <= {SERIES}
ORDER BY place, bin""",
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    if scope.stored is None or not found[0]:
        return Missing("The lake has no stored message of what the report covers.", [] if scope.imported else [IMPORT])
    rows, over_time = found
    window = scope.stored
    by_topic: dict[str, dict[int, int]] = {}
    for row in over_time:
        by_topic.setdefault(scope.label(row, "topic"), {})[row["bin"]] = row["messages"]
    series = [Series(label, tuple(bins.get(number, 0) for number in range(window.bins))) for label, bins in by_topic.items()]
    columns = with_broker(
        scope,
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("messages", "Messages", bar=True),
        ReportColumn("bytes", "Bytes", forms.size),
        ReportColumn("bytesPerMessage", "a message", forms.size),
        ReportColumn("rate", "Rate", forms.rate),
        ReportColumn("peakRate", "Greatest rate", forms.rate),
        ReportColumn("peakAt", "from (UTC)", forms.moment),
    )
    note = f"Rates are those of the {forms.duration(window.end - window.start)} shown; the greatest that of one bar of the picture."
    return Answer(_finding(rows, window), Chart(Shape.STACKED, "Messages stored", window, series), columns, rows, note)


def _finding(rows: Sequence[Row], window: Window) -> ReportFinding:
    first = rows[0]
    text = Markup("<b>{}</b> messages ({}) of {} topics came within {}; most to {}: <b>{}</b>, {} on the average, {} at most.")
    return ReportFinding(
        Tone.PLAIN,
        text.format(
            forms.count(first["messagesInAll"]),
            forms.size(first["bytesInAll"]),
            forms.count(first["topics"]),
            forms.duration(window.end - window.start),
            forms.name(first["topic"]),
            forms.count(first["messages"]),
            forms.rate(first["rate"]),
            forms.rate(first["peakRate"]),
        ),
    )


THROUGHPUT = Question(
    "throughput",
    "How much came to each topic?",
    "Messages by the time at which the broker stored them, as far as the store still has them; retry topics and the broker's own topics "
    "count too.",
    _queries,
    _answer,
)
