"""Make the page: fill the findings into a template that escapes everything except Markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report.question import Answer, Missing, Question, ReportColumn, Scope, Tone

_ORDER = (Tone.BAD, Tone.WARN, Tone.PLAIN, Tone.GOOD)


@dataclass(frozen=True, slots=True)
class Section:
    """A question with its SQL and its answer."""

    question: Question
    queries: Sequence[str]
    answer: Answer | Missing


def page(scope: Scope, facts: Sequence[tuple[str, Markup]], sections: Sequence[Section]) -> str:
    """Return the HTML of the page.

    Args:
        scope: the lake and brokers of the report.
        facts: (name, value) of each fact in the head of the page.
        sections: the questions, in the order of the page.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"cell": _cell, "is_number": lambda column: not column.is_text}
    answered = [section for section in sections if isinstance(section.answer, Answer)]
    template = environment.from_string(_text("page.html.jinja"))
    return template.render(
        title=" and ".join(scope.brokers) or "an empty lake",
        style=Markup(_text("page.css")),  # noqa: S704 (a file of this package)
        scope=scope,
        facts=facts,
        sections=sections,
        summary=sorted(answered, key=lambda section: _ORDER.index(section.answer.finding.tone)),
        unanswered=[section for section in sections if isinstance(section.answer, Missing)],
    )


def _cell(column: ReportColumn, row: Row, rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a cell of a table, with a bar if the column has bars."""
    value = row[column.name]
    if not column.bar:
        return column.form(value)
    greatest = max((float(one[column.name]) for one in rows if one[column.name] is not None), default=0.0)
    part = 0.0 if value is None or greatest <= 0 else max(float(value), 0.0) / greatest
    return Markup('<span class="bar" style="--part: {}"></span>{}').format(f"{part:.4f}", column.form(value))


def _text(name: str) -> str:
    return files("pipeline.report").joinpath(name).read_text("utf-8")
