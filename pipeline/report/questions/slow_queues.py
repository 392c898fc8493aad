"""Which queues groups consume slowest, with Burrow's status if there is one."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lag.lag_sql import WORST_FIRST
from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import (
    RECORD,
    TOP,
    Answer,
    Missing,
    Question,
    ReportColumn,
    ReportFinding,
    no_offsets,
    with_broker,
)
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone, status_tone

_OF_A_GROUP = 5


def _has_verdict(scope: Scope) -> bool:
    return scope.observed is not None or scope.captured is not None


def _queries(scope: Scope) -> Sequence[str]:
    order = "lagMillis DESC NULLS LAST, lag DESC, brokerName, consumerGroup, topic, queueId"
    verdict, joined = "CAST(NULL AS STRING) AS status, CAST(NULL AS STRING) AS why, CAST(NULL AS BIGINT) AS catchUpMillis", ""
    if _has_verdict(scope):
        verdict, order = "s.status, s.why, c.catchUpMillis", f"{WORST_FIRST}, {order}"
        joined = """
  LEFT JOIN group_status s USING (brokerName, consumerGroup, topic, queueId)
  LEFT JOIN catch_up c USING (brokerName, consumerGroup, topic, queueId)"""
    return [
        f"""\
WITH waiting AS (
  SELECT brokerName, consumerGroup, topic, queueId, l.lag, l.lagMillis, l.reason, {verdict}
  FROM consume_lag l{joined}
  WHERE l.lag > 0 {scope.rows("AND")}
), placed AS (
  SELECT *, row_number() OVER (PARTITION BY brokerName, consumerGroup ORDER BY {order}) AS place
  FROM waiting
)
SELECT *
FROM placed
WHERE place <= {_OF_A_GROUP}
ORDER BY {order}
LIMIT {TOP}""",
        f"SELECT count(*) AS queues, count_if(lag IS NULL) AS unknown FROM consume_lag {scope.rows()} LIMIT 1",
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    rows, known = found[0], found[1][0]
    if not known["queues"]:
        return no_offsets(scope)
    if not rows and known["unknown"]:
        text = Markup("No queue is known to have a message that waits, but of <b>{}</b> of {} queues the lag is unknown.")
        return Answer(ReportFinding(Tone.PLAIN, text.format(forms.count(known["unknown"]), forms.count(known["queues"]))))
    if not rows:
        return Answer(ReportFinding(Tone.GOOD, Markup("No queue has a message that waits.")))
    columns = [
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("queueId", "Queue", forms.words),
        ReportColumn("lagMillis", "Next message has waited", forms.duration, bar=True),
        ReportColumn("lag", "Messages behind"),
    ]
    if _has_verdict(scope):
        columns += [
            ReportColumn("status", "Status", forms.status),
            ReportColumn("why", "by the rule", forms.words),
            ReportColumn("catchUpMillis", "Caught up in", forms.duration),
        ]
    columns.append(ReportColumn("reason", "What is odd", forms.words))
    note = ""
    if not _has_verdict(scope):
        command = RECORD.format(lake=scope.lake)
        note = f"Whether a queue gets on takes more than one look: {command} after each import, ten times for a verdict."
    return Answer(_finding(rows), columns=with_broker(scope, *columns), rows=rows, note=note)


def _finding(rows: Sequence[Row]) -> ReportFinding:
    worst = rows[0]
    where = Markup("{} on {}, queue {}").format(forms.name(worst["consumerGroup"]), forms.name(worst["topic"]), worst["queueId"])
    if worst["status"] is not None and status_tone(worst["status"]) in {Tone.BAD, Tone.WARN}:
        text = Markup("{} is in trouble: <b>{}</b> ({}), {} behind.")
        said = text.format(where, forms.words(worst["status"]), forms.words(worst["why"]), forms.counted(worst["lag"], "message"))
        return ReportFinding(status_tone(worst["status"]), said)
    if worst["lagMillis"] is None:
        return ReportFinding(Tone.WARN, Markup("{} is the furthest behind: {}.").format(where, forms.counted(worst["lag"], "message")))
    text = Markup("The message that has waited longest is one of {}: <b>{}</b>.")
    return ReportFinding(Tone.PLAIN, text.format(where, forms.duration(worst["lagMillis"])))


SLOW_QUEUES = Question(
    "slow",
    "Which queues are slow?",
    f"Queues of groups whose next message has waited longest, {_OF_A_GROUP} of a group at most; those in trouble come first where there is "
    "a verdict.",
    _queries,
    _answer,
)
