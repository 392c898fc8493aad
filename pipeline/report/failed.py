"""What groups could not consume: messages that they sent back, and dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import IMPORT, TOP, Answer, Missing, Question, ReportColumn, ReportFinding, waiting, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone


def _queries(scope: Scope) -> Sequence[str]:
    return [
        f"""\
WITH retried AS (
  SELECT brokerName, substring(topic, 8) AS consumerGroup, sum(maxOffset) AS sentBack, sum(maxOffset - minOffset) AS retriesLeft
  FROM queue
  WHERE startswith(topic, '%RETRY%') {scope.of_broker("AND")}
  GROUP BY brokerName, topic
), waits AS (
  SELECT brokerName, consumerGroup, try_sum({waiting("lag")}) AS retriesBehind
  FROM consume_lag
  WHERE topic = concat('%RETRY%', consumerGroup) {scope.of_broker("AND")}
  GROUP BY brokerName, consumerGroup
), dead AS (
  SELECT brokerName, substring(topic, 6) AS consumerGroup, sum(maxOffset - minOffset) AS dead, sum(maxOffset) AS everDead
  FROM queue
  WHERE startswith(topic, '%DLQ%') {scope.of_broker("AND")}
  GROUP BY brokerName, topic
), aged AS (
  SELECT brokerName, consumerGroup, max(oldestMillis) AS oldestMillis, max(readers) AS readers,
    max_by(originTopic, messages) AS originTopic
  FROM dead_letters
  {scope.of_broker()}
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
WHERE coalesce(sentBack, 0L) + coalesce(everDead, 0L) > 0 {scope.groups("AND")}
ORDER BY dead DESC, sentBack DESC, brokerName, consumerGroup
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    [rows] = found
    if not scope.imported:
        return Missing("No store was imported.", [IMPORT])
    if not rows:
        return Answer(ReportFinding(Tone.GOOD, Markup("No message was sent back, and there is no dead letter.")))
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("dead", "Dead letters", bar=True),
        ReportColumn("everDead", "ever"),
        ReportColumn("oldestMillis", "The oldest is", forms.duration),
        ReportColumn("originTopic", "Most come from", forms.name),
        ReportColumn("readers", "Groups that read them"),
        ReportColumn("sentBack", "Tries sent back, ever"),
        ReportColumn("retriesBehind", "Waiting for a retry"),
    )
    note = "A message is sent back once for each try that failed. pullsim dlq and pullsim message list what lies there."
    return Answer(_finding(rows), columns=columns, rows=rows, note=note)


def _finding(rows: Sequence[Row]) -> ReportFinding:
    first = rows[0]
    if not first["groupsDead"]:
        text = Markup("Groups sent <b>{}</b> messages back to try them again, {} most; no dead letter lies in the store.")
        most = max(rows, key=lambda row: row["sentBack"])
        return ReportFinding(Tone.PLAIN, text.format(forms.count(first["sentBackInAll"]), forms.name(most["consumerGroup"])))
    text = Markup("<b>{}</b> dead letters of {} groups lie in the store, most of {}: <b>{}</b>").format(
        forms.count(first["deadInAll"]), forms.count(first["groupsDead"]), forms.name(first["consumerGroup"]), forms.count(first["dead"])
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
