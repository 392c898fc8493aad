"""A question of the report: its SQL over the views, and the sentence, chart and table made of the rows.

Rule: the engine aggregates, the page only shows. Each query returns a bounded number of rows (the first TOP, or bins of time), however
large the lake is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.charts import Chart
from pipeline.report.scope import Filters, Scope
from pipeline.report.tone import Tone
from pipeline.report.window import Window

# rows of a table, and series of a picture
TOP: Final = 15
SERIES: Final = 8


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a table; with `bar` each figure has a bar of proportional length beside it."""

    name: str
    title: str
    form: Callable[[Any], Markup] = forms.count
    bar: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the column is left-aligned text."""
        return self.form in {forms.name, forms.words, forms.status, forms.outcome}


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """A sentence of the summary."""

    tone: Tone
    text: Markup


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question.

    Attributes:
        finding: the answer in a sentence.
        chart: the figures over time.
        columns: columns of the table.
        rows: rows of the table.
        note: remark on the figures.
    """

    finding: ReportFinding
    chart: Chart | None = None
    columns: Sequence[ReportColumn] = ()
    rows: Sequence[Row] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a question has no answer: the commands that write the missing data."""

    why: str
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the report.

    Attributes:
        anchor: id of the question's section on the page.
        title: the question.
        about: meaning of its figures, in a sentence or two.
        queries: returns the SQL; no query if the lake cannot have an answer.
        answer: returns the answer from the rows of each query.
    """

    anchor: str
    title: str
    about: str
    queries: Callable[[Scope], Sequence[str]]
    answer: Callable[[Scope, Sequence[Sequence[Row]]], Answer | Missing]


def waiting(lag: str) -> str:
    """Return SQL for the waiting messages of a queue: its lag, 0 if its offset is past the end, NULL if the lag is unknown."""
    return f"if({lag} < 0, 0, {lag})"


def bin_of(window: Window, micros: str) -> str:
    """Return SQL for the number of the window's bin with a time, NULL outside the window."""
    within = f"{micros} DIV 1000 BETWEEN {window.start} AND {window.end - 1}"
    return f"CASE WHEN {within} THEN ({micros} DIV 1000 - {window.start}) DIV {window.width} END"


def by_bin(rows: Sequence[Row], label: str, figure: str) -> dict[str, Counter[int | None]]:
    """Return label -> bin of `bin_of` -> sum of the figure over the rows."""
    found: dict[str, Counter[int | None]] = defaultdict(Counter)
    for row in rows:
        found[row[label]][row["bin"]] += row[figure]
    return found


def with_broker(scope: Scope, *columns: ReportColumn) -> tuple[ReportColumn, ...]:
    """Return the columns of a table, with a column for the broker first if several brokers are reported."""
    return (ReportColumn("brokerName", "Broker", forms.name), *columns) if len(scope.brokers) > 1 else columns


IMPORT: Final = "pullsim import /data/rocketmq/store --lake {lake} --broker-name broker-a"
CAPTURE: Final = "pullsim capture traffic.pcap --lake {lake}"
REPLAY: Final = "pullsim replay --lake {lake} --at recorded-max"
REPLAY_FILE: Final = "pullsim replay --lake {lake} --requests pulls.jsonl"
RECORD: Final = "pullsim lag --lake {lake} --record"
_NO_OFFSETS: Final = Missing(
    "The imported store has no offset of any group: config/consumerOffset.json is missing or empty. A group stores its first offset "
    "some seconds after it begins to consume. If the store was copied without its folder config, copy that folder too, and repeat the "
    "import under the same broker name."
)
_NO_PULLS: Final = Missing("No pulls were captured or replayed.", [CAPTURE, REPLAY_FILE])


def no_offsets(scope: Scope) -> Missing:
    """Return why nothing is known of groups if the report has no stored offset: no store was imported, or it has no offset of them."""
    if not scope.imported:
        return Missing("No store was imported.", [IMPORT])
    if scope.only.group is None and scope.only.topic is None:
        return _NO_OFFSETS
    return Missing("The imported store has no offset of the group and topic that the report is narrowed to.")


def no_pulls(scope: Scope) -> Missing:
    """Return why nothing is known of pulls if the report has none."""
    if scope.only == Filters(broker=scope.only.broker):
        return _NO_PULLS
    return Missing("No pulls of what the report is narrowed to were captured or replayed.")
