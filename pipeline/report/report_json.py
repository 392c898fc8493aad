"""A report as json: the same facts, sentences, rows and figures as the page, and what each group and topic has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from pipeline.lake.asking import Row
from pipeline.report.answered import Report, Section
from pipeline.report.charts import Chart
from pipeline.report.compared import FORMAT, FORMAT_KEY, given
from pipeline.report.question import Answer


def as_json(report: Report) -> str:
    """Return a report as the text of one JSON object; times are ms since 1970, and a value that is not known is null."""
    told = {
        FORMAT_KEY: FORMAT,
        "lake": report.scope.lake,
        "only": given(report.scope),
        "facts": {fact.name: fact.value for fact in report.facts},
        "questions": [_question(section) for section in report.sections],
        **{name: list(rows) for name, rows in report.state.items()},
    }
    return json.dumps(told, ensure_ascii=False, indent=1, default=_plain) + "\n"


def _question(section: Section) -> dict[str, Any]:
    answer = section.answer
    told: dict[str, Any] = {"id": section.question.anchor, "title": section.question.title}
    if not isinstance(answer, Answer):
        return told | {"missing": answer.why}
    told |= {"tone": answer.finding.tone, "finding": _text(answer.finding.text.striptags())}
    if answer.rows:
        told["rows"] = _rows(answer)
    if answer.chart is not None:
        told["chart"] = _chart(answer.chart)
    return told | ({"note": answer.note} if answer.note else {})


def _rows(answer: Answer) -> Sequence[Row]:
    return [{column.name: row[column.name] for column in answer.columns} for row in answer.rows]


def _chart(chart: Chart) -> dict[str, Any]:
    window = chart.window
    bins = {"start": window.start, "width": window.width, "bins": window.bins}
    return {"unit": chart.unit, **bins, "series": [{"name": one.label, "values": list(one.values)} for one in chart.series]}


def _text(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _plain(value: Any) -> Any:
    """Return a number of an engine's own type, which json cannot write, as an int or a float."""
    return int(value) if isinstance(value, Integral) or value == int(value) else float(value)
