"""Which messages groups lost, or will lose, because old files are deleted."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import TOP, Answer, Missing, Question, ReportColumn, ReportFinding, no_offsets, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone

_SOON, _AT_ONCE = 6 * 3_600_000, 60_000


def _queries(scope: Scope) -> Sequence[str]:
    skipped = f"""\
SELECT count(DISTINCT brokerName, consumerGroup) AS groups, try_sum(lostOffsets) AS offsets
FROM offset_correction
WHERE source = '{scope.source}' AND lostOffsets > 0 {scope.rows("AND", micros="arrivalMicros")}
LIMIT 1"""
    return [
        f"""\
SELECT
  brokerName, consumerGroup, topic, queueId, lostMessages, basis, reason, deletedAt,
  CASE WHEN lostMessages = 0 THEN messagesToLoss END AS messagesToLoss,
  CASE WHEN lostMessages = 0 THEN timeToLossMillis END AS timeToLossMillis,
  try_sum(lostMessages) OVER () AS lostInAll, count(*) OVER () AS queuesInAll, count_if(lostMessages > 0) OVER () AS queuesLost
FROM retention_risk
{scope.rows()}
ORDER BY lostMessages > 0 DESC NULLS LAST, lostMessages DESC, timeToLossMillis ASC NULLS LAST, brokerName, consumerGroup, topic, queueId
LIMIT {TOP}""",
        *[skipped] * (scope.source is not None),
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    rows, *pulls = found
    if not rows:
        return no_offsets(scope)
    at_risk = [row for row in rows if row["lostMessages"] or row["timeToLossMillis"] is not None]
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("queueId", "Queue", forms.words),
        ReportColumn("lostMessages", "Lost", bar=True),
        ReportColumn("messagesToLoss", "Messages ahead of deletion"),
        ReportColumn("timeToLossMillis", "First loss in", forms.duration),
        ReportColumn("basis", "Estimated by", forms.words),
        ReportColumn("deletedAt", "Next file is deleted (UTC)", forms.moment),
    )
    note = (
        "From the last message in the store on, file by file, by fileReservedTime and deleteWhen in UTC. HISTORY: at the pace of the "
        "group in lag_history; FILE_RESERVED_TIME: as if the group stopped now. pullsim retention takes the disk and other time zones too."
    )
    return Answer(_finding(rows, pulls[0] if pulls else ()), columns=columns if at_risk else (), rows=at_risk, note=note if at_risk else "")


def _if(row: Row) -> str:
    """Return what the forecast of a loss assumes about the group."""
    return "it goes on as in lag_history" if row["basis"] == "HISTORY" else "it consumes nothing from now on"


def _finding(rows: Sequence[Row], pulls: Sequence[Row]) -> ReportFinding:
    first = rows[0]
    where = Markup("{} on {}, queue {}").format(forms.name(first["consumerGroup"]), forms.name(first["topic"]), first["queueId"])
    if first["queuesLost"]:
        text = Markup("<b>{}</b> deleted before a group had consumed them, in {}; {} lost the most: {}.")
        messages = forms.counted(first["lostInAll"], "message was", "messages were")
        lost = messages, forms.counted(first["queuesLost"], "queue"), where, forms.count(first["lostMessages"])
        return ReportFinding(Tone.BAD, text.format(*lost))
    if pulls and pulls[0]["groups"]:
        text = Markup("By their stored offsets no group lost messages, but pulls of <b>{}</b> groups skipped <b>{}</b> deleted offsets.")
        return ReportFinding(Tone.WARN, text.format(forms.count(pulls[0]["groups"]), forms.count(pulls[0]["offsets"])))
    if first["timeToLossMillis"] is None:
        return ReportFinding(Tone.GOOD, Markup("By their stored offsets no group has lost messages to deletion, and none is about to."))
    left = first["timeToLossMillis"]
    when = (
        Markup("in about <b>{}</b> if {}").format(forms.duration(left), _if(first)) if left >= _AT_ONCE else Markup("<b>at any moment</b>")
    )
    text = Markup("By their stored offsets no group has lost messages to deletion yet. {} comes first, {}.").format(where, when)
    return ReportFinding(Tone.WARN if left < _SOON else Tone.GOOD, text)


RETENTION = Question(
    "retention",
    "Are messages lost before they are consumed?",
    "Messages below the begin of a queue are gone, consumed or not. What pulls skipped is above.",
    _queries,
    _answer,
)
