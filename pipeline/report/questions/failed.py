"""What groups could not consume: messages that they sent back, and dead letters.

Surprise: a group that consumes by POP has a retry topic for each of its topics, `%RETRY%group_topic`, or `%RETRY%group+topic` with
enableRetryTopicV2 (KeyBuilder.buildPopRetryTopic of 5.x), so that the name alone does not tell the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.delta.delta_sql import literal
from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import IMPORT, TOP, Answer, Missing, Question, ReportColumn, ReportFinding, waiting, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone


def _queries(scope: Scope) -> Sequence[str]:
    on_topic = "false" if scope.only.topic is None else f"topic = {literal(scope.only.topic)}"
    narrowed = "" if scope.only.topic is None else "AND (everDead > 0 OR consuming.isOnTopic)"
    return [
        f"""\
WITH consuming AS (
  SELECT brokerName, consumerGroup, max({on_topic}) AS isOnTopic
  FROM consumer_offset
  {scope.of_broker()}
  GROUP BY brokerName, consumerGroup
), owning AS (
  SELECT brokerName, topic, max_by(consumerGroup, length(consumerGroup)) AS consumerGroup
  FROM (
    SELECT brokerName, consumerGroup, concat('%RETRY%', consumerGroup) AS topic FROM consuming
    UNION ALL
    SELECT brokerName, consumerGroup, concat('%RETRY%', consumerGroup) FROM subscription_group
    UNION ALL
    SELECT brokerName, consumerGroup, concat('%RETRY%', consumerGroup, '_', topic) FROM consumer_offset
    UNION ALL
    SELECT brokerName, consumerGroup, concat('%RETRY%', consumerGroup, '+', topic) FROM consumer_offset
    UNION ALL
    SELECT brokerName, consumerGroup, topic FROM consumer_offset WHERE startswith(topic, concat('%RETRY%', consumerGroup))
  )
  {scope.of_broker()}
  GROUP BY brokerName, topic
), retried AS (
  SELECT q.brokerName, coalesce(o.consumerGroup, substring(q.topic, 8)) AS consumerGroup, sum(q.maxOffset) AS sentBack
  FROM queue q
  LEFT JOIN owning o ON o.brokerName = q.brokerName AND o.topic = q.topic
  WHERE startswith(q.topic, '%RETRY%') {scope.of_broker("AND", "q.brokerName")}
  GROUP BY q.brokerName, coalesce(o.consumerGroup, substring(q.topic, 8))
), waits AS (
  SELECT brokerName, consumerGroup, try_sum({waiting("lag")}) AS retriesBehind
  FROM consume_lag
  WHERE startswith(topic, '%RETRY%') {scope.of_broker("AND")}
  GROUP BY brokerName, consumerGroup
), dead AS (
  {_dead(scope)}
), aged AS (
  SELECT brokerName, consumerGroup, max(oldestMillis) AS oldestMillis, max(readers) AS readers,
    max_by(originTopic, struct(messages, originTopic)) AS originTopic
  FROM dead_letters
  {_of_origin(scope)}
  GROUP BY brokerName, consumerGroup
)
SELECT
  brokerName, consumerGroup,
  coalesce(sentBack, 0L) AS sentBack, retriesBehind, coalesce(dead, 0L) AS dead, coalesce(everDead, 0L) AS everDead,
  oldestMillis, originTopic, readers,
  sum(coalesce(dead, 0L)) OVER () AS deadInAll, count_if(dead > 0) OVER () AS groupsDead,
  sum(coalesce(sentBack, 0L)) OVER () AS sentBackInAll
FROM retried
FULL JOIN dead USING (brokerName, consumerGroup)
LEFT JOIN waits USING (brokerName, consumerGroup)
LEFT JOIN aged USING (brokerName, consumerGroup)
LEFT JOIN consuming USING (brokerName, consumerGroup)
WHERE coalesce(sentBack, 0L) + coalesce(everDead, 0L) > 0 {narrowed} {scope.groups("AND")}
ORDER BY dead DESC, sentBack DESC, brokerName, consumerGroup
LIMIT {TOP}"""
    ]


def _dead(scope: Scope) -> str:
    """Return SQL for the dead letters of each group; if the report is narrowed to a topic, for those that came from this topic."""
    if scope.only.topic is None:
        return f"""\
SELECT brokerName, substring(topic, 6) AS consumerGroup, sum(maxOffset - minOffset) AS dead, sum(maxOffset) AS everDead
  FROM queue
  WHERE startswith(topic, '%DLQ%') {scope.of_broker("AND")}
  GROUP BY brokerName, topic"""
    return f"""\
SELECT brokerName, consumerGroup, sum(messages) AS dead, sum(messages) AS everDead
  FROM dead_letters
  {_of_origin(scope)}
  GROUP BY brokerName, consumerGroup"""


def _of_origin(scope: Scope) -> str:
    if scope.only.topic is None:
        return scope.of_broker()
    return f"WHERE originTopic = {literal(scope.only.topic)} {scope.of_broker('AND')}"


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    [rows] = found
    if not scope.imported:
        return Missing("No store was imported.", [IMPORT])
    is_narrowed = scope.only.topic is not None
    if not rows:
        none = "No message was sent back, and there is no dead letter."
        of_topic = "No group of the topic sent a message back, and no dead letter came from it."
        return Answer(ReportFinding(Tone.GOOD, Markup("{}").format(of_topic if is_narrowed else none)), note=_not_narrowed(scope))
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("dead", "Dead letters", bar=True),
        *([] if is_narrowed else [ReportColumn("everDead", "ever")]),
        ReportColumn("oldestMillis", "The oldest is", forms.duration),
        ReportColumn("originTopic", "Most come from", forms.name),
        ReportColumn("readers", "Groups that read them"),
        ReportColumn("sentBack", "Tries sent back, ever"),
        ReportColumn("retriesBehind", "In the retry topic"),
    )
    note = "A message is sent back once for each try that failed. pullsim dlq and pullsim message list what lies there."
    return Answer(_finding(rows), columns=columns, rows=rows, note=_not_narrowed(scope) + note)


def _not_narrowed(scope: Scope) -> str:
    """Return the remark on figures that cannot be narrowed as the report is."""
    notes = [
        "Tries that were sent back are those of all topics of a group that consumes the topic. " if scope.only.topic is not None else "",
        "What failed is that of all times. " if scope.only.is_timed else "",
    ]
    return "".join(notes)


def _finding(rows: Sequence[Row]) -> ReportFinding:
    first = rows[0]
    if not first["groupsDead"]:
        text = Markup("Groups sent <b>{}</b> messages back to try them again, {} most; no dead letter lies in the store.")
        most = max(rows, key=lambda row: row["sentBack"])
        return ReportFinding(Tone.PLAIN, text.format(forms.count(first["sentBackInAll"]), forms.name(most["consumerGroup"])))
    text = Markup("<b>{}</b> of {} in the store, most of {}: <b>{}</b>").format(
        forms.counted(first["deadInAll"], "dead letter"),
        forms.counted(first["groupsDead"], "group"),
        forms.name(first["consumerGroup"]),
        forms.count(first["dead"]),
    )
    if first["oldestMillis"] is not None:
        text += Markup(", the oldest for {}").format(forms.duration(first["oldestMillis"]))
    return ReportFinding(Tone.BAD, text + Markup("."))


FAILED = Question(
    "failed",
    "What could not be consumed?",
    "Messages that groups sent back to try them again, and those that failed more often than the group allows: dead letters, which stay "
    "until somebody consumes them.",
    _queries,
    _answer,
)
