"""The section of `pullsim report` on what an upgrade of the broker would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from pipeline.report import forms
from pipeline.report.answered import Section
from pipeline.report.question import TOP, Answer, Question, ReportColumn, ReportFinding
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone
from pipeline.upgrade.upgrade_job import Upgrade
from pipeline.upgrade.upgrade_text import outcome_rows, verdict

_ABOUT: Final = (
    "Each pull is answered by the rules of both versions: the captured pulls of the lake, or else pulls made for each group and queue. "
    "A pull may count for several rules. pullsim upgrade tells more, with examples and sources."
)


def upgrade_section(result: Upgrade) -> Section:
    """The section about a comparison of two versions."""
    title = f"What would an upgrade to {result.later.value} change?"

    def no_queries(_: Scope) -> Sequence[str]:
        return ()

    answer = _answer(result)
    return Section(Question("upgrade", title, _ABOUT, no_queries, lambda *_: answer), (), answer)


def _answer(result: Upgrade) -> Answer:
    earlier, later, groups = result.earlier.value, result.later.value, result.groups
    moved = groups.again + groups.skipped
    text = Markup("<b>{}</b> of {} pulls end otherwise in {} than in {}, and <b>{}</b> of {} committed offsets lead on elsewhere.").format(
        forms.count(result.pulls.seen), forms.count(result.pulls.pulls), later, earlier, forms.count(moved), forms.count(groups.committed)
    )
    names = ("rule", "before", "after", "pulls")
    columns = (
        ReportColumn("rule", "Rule", forms.words),
        ReportColumn("before", earlier, forms.words),
        ReportColumn("after", later, forms.words),
        ReportColumn("pulls", "Pulls", bar=True),
    )
    rows = [dict(zip(names, row, strict=True)) for row in outcome_rows(result.pulls.rules)]
    finding = ReportFinding(Tone.WARN if result.pulls.seen or moved else Tone.GOOD, text)
    return Answer(finding, columns=columns, rows=rows[:TOP], note=" ".join(verdict(result)))
