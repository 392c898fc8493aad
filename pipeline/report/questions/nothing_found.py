"""Which groups sent pulls that found no message, and why."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import TOP, Answer, Missing, Question, ReportColumn, ReportFinding, no_pulls, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone


def _queries(scope: Scope) -> Sequence[str]:
    if scope.source is None:
        return []
    return [
        f"""\
{_counted(scope)}
SELECT brokerName, consumerGroup, topic, outcome, coalesce(why, outcome) AS why, pulls, share, held
FROM counted
WHERE outcome <> 'FOUND'
ORDER BY pulls DESC, brokerName, consumerGroup, topic, outcome
LIMIT {TOP}"""
    ]


def _counted(scope: Scope) -> str:
    """Return SQL for the pulls of each outcome: the view's rows, or, as the view has no times, the same counts over a span of time."""
    if not scope.only.is_timed:
        return f"WITH counted AS (SELECT * FROM pull_nothing_found WHERE source = '{scope.source}' {scope.rows('AND')})"
    return f"""\
WITH ended AS (
  SELECT
    brokerName, consumerGroup, topic, outcome, count(*) AS pulls, count(heldFromMicros) AS held,
    count(*) / sum(count(*)) OVER (PARTITION BY brokerName, consumerGroup, topic) AS share
  FROM pull_outcome
  WHERE source = '{scope.source}' {scope.rows("AND", micros="arrivalMicros")}
  GROUP BY brokerName, consumerGroup, topic, outcome
), counted AS (
  SELECT * FROM ended LEFT JOIN (SELECT DISTINCT outcome, why FROM pull_nothing_found) USING (outcome)
)"""


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    if not found:
        return no_pulls(scope)
    [rows] = found
    if not rows:
        return Answer(ReportFinding(Tone.GOOD, Markup("Every pull brought messages.")))
    most = rows[0]
    text = Markup("{} on {} pulled for nothing most often, <b>{}</b> times, {} of its pulls: {}.").format(
        forms.name(most["consumerGroup"]),
        forms.name(most["topic"]),
        forms.count(most["pulls"]),
        forms.share(most["share"]),
        forms.words(most["why"]),
    )
    columns = with_broker(
        scope,
        ReportColumn("consumerGroup", "Group", forms.name),
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("pulls", "Pulls", bar=True),
        ReportColumn("share", "of its pulls", forms.share),
        ReportColumn("held", "held before"),
        ReportColumn("outcome", "Ended", forms.outcome),
        ReportColumn("why", "Which means", forms.words),
    )
    return Answer(ReportFinding(Tone.PLAIN, text), columns=columns, rows=rows)


NOTHING_FOUND = Question(
    "nothing",
    "Why did pulls find nothing?",
    "Pulls without a message, by group, topic and ending, the most frequent first. At the end of a queue that is usual, and most were held "
    "before.",
    _queries,
    _answer,
)
