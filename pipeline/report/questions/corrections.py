"""Which pulls the broker sent to another offset, when, and how many messages that skipped or repeated.

Rule: an offset that a group skips counts once, and a group that starts without an offset loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.charts import Chart, Shape, layers
from pipeline.report.question import (
    TOP,
    Answer,
    Missing,
    Question,
    ReportColumn,
    ReportFinding,
    bin_of,
    by_bin,
    no_pulls,
    with_broker,
)
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone, outcome_tone

_NOTE = "Commits move offsets, too: pullsim offsets --back lists those that went back, and who sent them."


def _queries(scope: Scope) -> Sequence[str]:
    if scope.source is None:
        return []
    worst = f"""\
SELECT
  brokerName, consumerGroup, topic, status, count(*) AS corrections, try_sum(lostOffsets) AS lostOffsets, try_sum(readAgain) AS readAgain,
  count(DISTINCT CASE WHEN isFirstStart THEN queueId END) AS firstStarts,
  max(arrivalMicros) DIV 1000 AS last, sum(count(*)) OVER () AS correctionsInAll
FROM offset_correction
WHERE source = '{scope.source}' {scope.rows("AND", micros="arrivalMicros")}
GROUP BY brokerName, consumerGroup, topic, status
ORDER BY lostOffsets + coalesce(readAgain, 0) DESC NULLS FIRST, corrections DESC, brokerName, consumerGroup, topic, status
LIMIT {TOP}"""
    if scope.captured is None:
        return [worst]
    window = scope.captured
    over_time = f"""\
-- corrections in each of {window.bins} bins of {window.width} ms
SELECT status, {bin_of(window, "arrivalMicros")} AS bin, count(*) AS corrections
FROM offset_correction
WHERE source = 'CAPTURED' {scope.rows("AND", micros="arrivalMicros")}
GROUP BY ALL
ORDER BY status, bin"""
    return [worst, over_time]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    if not found:
        return no_pulls(scope)
    rows = found[0]
    if not rows:
        return Answer(ReportFinding(Tone.GOOD, Markup("The broker sent no pull to another offset than it asked for.")), note=_NOTE)
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("status", "Why", forms.outcome),
        ReportColumn("corrections", "Pulls", bar=True),
        ReportColumn("lostOffsets", "Offsets skipped"),
        ReportColumn("firstStarts", "Queues begun"),
        ReportColumn("readAgain", "Messages read again"),
        ReportColumn("last", "Last time (UTC)", forms.moment),
    )
    chart = None
    if scope.captured is not None:
        series = layers(by_bin(found[1], "status", "corrections"), scope.captured, outcome_tone)
        chart = Chart(Shape.STACKED, "Pulls sent elsewhere", scope.captured, series)
    return Answer(_finding(rows), chart, columns, rows, note=_NOTE)


def _finding(rows: Sequence[Row]) -> ReportFinding:
    pulls = forms.counted(rows[0]["correctionsInAll"], "pull was", "pulls were")
    text = Markup("<b>{}</b> sent to another offset than they asked for").format(pulls)
    cost = False
    for column, meant in (("lostOffsets", Markup("skipped <b>{}</b> offsets")), ("readAgain", Markup("got <b>{}</b> messages again"))):
        worst = max(rows, key=lambda row: row[column] or 0)
        if worst[column]:
            cost = True
            cause = forms.words(worst["status"])
            names = forms.name(worst["consumerGroup"]), forms.name(worst["topic"])
            text += Markup("; {} on {} {} ({})").format(*names, meant.format(forms.count(worst[column])), cause)
    if not cost:
        text += Markup("; none of them skipped or repeated a message")
    return ReportFinding(Tone.BAD if cost else Tone.PLAIN, text + Markup("."))


CORRECTIONS = Question(
    "corrections",
    "What moved offsets?",
    "Pulls whose answer named another offset than they asked for: below the first message that is left, past the end, or in a hole. What "
    "the group skips so it never gets; what it reads again it gets twice. An offset that two pulls skip counts once. A group that starts "
    "at 0 of a queue that begins later loses nothing.",
    _queries,
    _answer,
)
