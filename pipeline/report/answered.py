"""A report as values: what its head says, the answer to each question, and what each group and topic has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report.question import Answer, Missing, Question
from pipeline.report.scope import Scope


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact in the head of the report: its name in json, its title on the page, its value, and how the page shows it."""

    name: str
    title: str
    value: Any
    form: Callable[[Any], Markup]


@dataclass(frozen=True, slots=True)
class Section:
    """A question with its SQL and its answer."""

    question: Question
    queries: Sequence[str]
    answer: Answer | Missing


@dataclass(frozen=True, slots=True)
class Report:
    """The answers to all questions.

    Attributes:
        scope: what the report covers.
        facts: what its head says.
        sections: the questions, in the order of the page.
        state: `groups` and `topics`: a row for each, to compare with another report; empty if there is no comparison.
    """

    scope: Scope
    facts: Sequence[Fact]
    sections: Sequence[Section]
    state: Mapping[str, Sequence[Row]]
