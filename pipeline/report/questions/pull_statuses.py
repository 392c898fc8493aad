"""How pulls ended, over time: GetMessageStatus, or the code of a refusal."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.charts import Chart, Shape, layers
from pipeline.report.question import (
    SERIES,
    TOP,
    Answer,
    Missing,
    Question,
    ReportColumn,
    ReportFinding,
    bin_of,
    by_bin,
    no_pulls,
)
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone, outcome_tone
from pipeline.report.window import Window

OTHERS = "all others"
_REPLAYED = "Replayed pulls of a file have no time of their own, so there is no picture over time."
_UNTIMED = "The clock of the capture gave times before 1970 or after the year 9999, so there is no picture over time."
_COLUMNS = (
    ReportColumn("outcome", "Ended", forms.outcome),
    ReportColumn("pulls", "Pulls", bar=True),
    ReportColumn("share", "Share", forms.share),
)


def _queries(scope: Scope) -> Sequence[str]:
    if scope.captured is not None:
        return [_over_time(scope, scope.captured)]
    return [] if scope.source is None else [_in_all(scope)]


def _over_time(scope: Scope, window: Window) -> str:
    return f"""\
-- pulls in each of {window.bins} bins of {window.width} ms by how they ended, the most frequent endings first
WITH ended AS (
  SELECT outcome, {bin_of(window, "arrivalMicros")} AS bin, count(*) AS pulls
  FROM pull_outcome
  WHERE source = 'CAPTURED' AND arrivalMicros IS NOT NULL {scope.rows("AND", micros="arrivalMicros")}
  GROUP BY ALL
), placed AS (
  SELECT *, dense_rank() OVER (ORDER BY frequency DESC, outcome) AS place
  FROM (SELECT *, sum(pulls) OVER (PARTITION BY outcome) AS frequency FROM ended)
)
SELECT least(place, {SERIES}) AS place, CASE WHEN place < {SERIES} THEN outcome ELSE '{OTHERS}' END AS outcome, bin, sum(pulls) AS pulls
FROM placed
GROUP BY ALL
ORDER BY place, bin"""


def _in_all(scope: Scope) -> str:
    return f"""\
SELECT outcome, count(*) AS pulls, count(*) / sum(count(*)) OVER () AS share, sum(count(*)) OVER () AS pullsInAll
FROM pull_outcome
WHERE source = '{scope.source}' {scope.rows("AND", micros="arrivalMicros")}
GROUP BY outcome
ORDER BY pulls DESC, outcome
LIMIT {TOP}"""


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    rows = found[0] if found else []
    if not rows:
        return no_pulls(scope)
    if scope.captured is None:
        told = {row["outcome"]: row["pulls"] for row in rows}
        came, note = ("were captured", _UNTIMED) if scope.untimed else ("were replayed", _REPLAYED)
        return Answer(_finding(told, rows[0]["pullsInAll"], came), columns=_COLUMNS, rows=rows, note=note)
    by_outcome = by_bin(rows, "outcome", "pulls")
    totals = {outcome: bins.total() for outcome, bins in by_outcome.items()}
    whole = sum(totals.values())
    table = [{"outcome": outcome, "pulls": pulls, "share": pulls / whole} for outcome, pulls in totals.items()]
    chart = Chart(Shape.STACKED, "Pulls", scope.captured, layers(by_outcome, scope.captured, _tone))
    note = "A pull counts when its request arrived. What each ending means is below."
    return Answer(_finding(totals, whole, "were captured"), chart, _COLUMNS, table, note)


def _tone(outcome: str) -> Tone:
    return Tone.PLAIN if outcome == OTHERS else outcome_tone(outcome)


def _finding(pulls: dict[str, int], whole: int, came: str) -> ReportFinding:
    unusual = {outcome: number for outcome, number in pulls.items() if outcome == OTHERS or outcome_tone(outcome) in {Tone.WARN, Tone.BAD}}
    named = [outcome for outcome in unusual if outcome != OTHERS]
    text = Markup("<b>{}</b> pulls {}: {} brought messages").format(forms.count(whole), came, forms.share(pulls.get("FOUND", 0) / whole))
    if at_end := pulls.get("OFFSET_OVERFLOW_ONE", 0):
        text += Markup(", {} came to the end of a queue").format(forms.share(at_end / whole))
    if unusual:
        text += Markup(", {} were refused or sent elsewhere").format(forms.share(sum(unusual.values()) / whole))
    if named:
        first = max(named, key=lambda outcome: unusual[outcome])
        often = "most of them" if unusual[first] * 2 > sum(unusual.values()) else "most often"
        text += Markup(", {} with {}").format(often, forms.words(first))
    return ReportFinding(Tone.WARN if unusual else Tone.PLAIN, text + Markup("."))


PULL_STATUSES = Question(
    "statuses",
    "How did pulls end?",
    "What became of each pull: the status that the store gave, or why the broker refused it.",
    _queries,
    _answer,
)
