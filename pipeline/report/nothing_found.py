"""Which groups sent pulls that found no message, and why."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import NO_PULLS, TOP, Answer, Missing, Question, ReportColumn, ReportFinding, Scope, Tone, with_broker


def _queries(scope: Scope) -> Sequence[str]:
    if scope.source is None:
        return []
    return [
        f"""\
SELECT brokerName, consumerGroup, topic, outcome, coalesce(why, outcome) AS why, pulls, share, held, queues
FROM pull_nothing_found
WHERE source = '{scope.source}' {scope.of_broker("AND")}
ORDER BY pulls DESC, brokerName, consumerGroup, topic, outcome
LIMIT {TOP}"""
    ]


def _answer(scope: Scope, found: Sequence[Sequence[Row]]) -> Answer | Missing:
    if not found:
        return NO_PULLS
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
        ReportColumn("outcome", "Ended", forms.words),
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
