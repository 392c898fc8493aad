"""Make the page: fill the report into a template that escapes everything except Markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.answered import Report, Section
from pipeline.report.charts import drawn
from pipeline.report.compared import given
from pipeline.report.question import Answer, Missing, ReportColumn
from pipeline.report.tone import Tone

_ORDER = (Tone.BAD, Tone.WARN, Tone.PLAIN, Tone.GOOD)
# what a tone is called, for those who do not see its colour
_CALLED: Final = {Tone.BAD: "trouble", Tone.WARN: "look at it", Tone.GOOD: "fine", Tone.PLAIN: "for your information"}
_NOT_KNOWN: Final = "not known"
# columns with names -> the field that narrows a report to one
_NAMING: Final = {"brokerName": "broker", "consumerGroup": "group", "topic": "topic"}
# in a narrow window, a table with more columns has a hint that it scrolls
_FITS: Final = 3


@dataclass(frozen=True, slots=True)
class Live:
    """The address of a page of `pullsim serve`: `asked` has its fields by name."""

    asked: Mapping[str, str]

    def address(self, **fields: str | None) -> str:
        """Return the address of another page: this page's fields, replaced by `fields`; None leaves a field out."""
        found = {name: value for name, value in {**self.asked, **fields}.items() if value is not None}
        return f"?{urlencode(found, errors='replace')}" if found else "/"

    def link(self, column: str, value: Any) -> str | None:
        """The address of the page about a name in a column; None for another value."""
        field = _NAMING.get(column)
        return None if field is None or value is None else self.address(**{field: str(value)})


def page(report: Report, live: Live | None = None) -> str:
    """Return the HTML of the page; with `live` it has a form that narrows it, and names to click on."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"cell": partial(_cell, live), "tone": _tone, "called": _called, "drawn": drawn}
    answered = [section for section in report.sections if isinstance(section.answer, Answer)]
    template = environment.from_string(_text("page.html.jinja"))
    return template.render(
        title=" and ".join(report.scope.brokers) or "an empty lake",
        style=Markup(_text("page.css")),  # noqa: S704 (a file of this package)
        scope=report.scope,
        live=live,
        facts=report.facts,
        only=_only(report),
        is_timed=report.scope.only.is_timed,
        sections=report.sections,
        fits=_FITS,
        summary=sorted(answered, key=lambda section: _ORDER.index(section.answer.finding.tone)),
        unanswered=[section for section in report.sections if isinstance(section.answer, Missing)],
    )


def _tone(section: Section) -> str:
    return section.answer.finding.tone if isinstance(section.answer, Answer) else "missing"


def _called(section: Section) -> str:
    return _CALLED[section.answer.finding.tone] if isinstance(section.answer, Answer) else _NOT_KNOWN


def _only(report: Report) -> list[tuple[str, Markup]]:
    """What the report is narrowed to: (option, value)."""
    return [(name, forms.moment(value) if name in {"from", "to"} else forms.name(value)) for name, value in given(report.scope).items()]


def _cell(live: Live | None, column: ReportColumn, row: Row, rows: Sequence[Row]) -> Markup:
    """Return a cell of a table; a figure with a bar stands to the right of the bar, and has the width of the column's longest figure."""
    shown = column.form(row[column.name])
    if live is not None and (address := live.link(column.name, row[column.name])) is not None:
        return Markup('<a href="{}">{}</a>').format(address, shown)
    if not column.bar:
        return shown
    greatest = max((_figure(column, one) for one in rows), default=0.0)
    part = _figure(column, row) / greatest if greatest > 0 else 0.0
    digits = max(len(column.form(one[column.name]).striptags()) for one in rows)
    bar = Markup('<span class="track"><span class="bar" style="--part: {}"></span></span>').format(f"{part:.4f}")
    return Markup('<span class="measure" style="--digits: {}">{}<span>{}</span></span>').format(digits, bar, shown)


def _figure(column: ReportColumn, row: Row) -> float:
    value: Any = row[column.name]
    return 0.0 if value is None else max(float(value), 0.0)


def _text(name: str) -> str:
    return files("pipeline.report").joinpath(name).read_text("utf-8")
