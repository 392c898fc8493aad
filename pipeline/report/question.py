"""What a question of the report is: SQL over the views, and what is said and drawn of its rows.

Rule: Spark aggregates, the page shows. Each query gives a bounded number of rows (the first so many, or bins of time), however large the
lake is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from markupsafe import Markup

from pipeline.lake.delta_sql import literal
from pipeline.report import forms
from pipeline.report.window import Window

Row = Mapping[str, Any]
# rows of a table, and series of a picture
TOP: Final = 15
SERIES: Final = 8


class Tone(StrEnum):
    """How a sentence of the summary is meant."""

    BAD = "bad"
    WARN = "warn"
    GOOD = "good"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a report is about.

    Attributes:
        lake: as the user writes it in a shell.
        brokers: names of the brokers in the lake that it is about.
        broker: the only one that it is about; None for all.
        imported: whether there is a store of one of them.
        observed: the stretch that lag_history has two observations or more of, else None.
        captured: the stretch of captured traffic, None without.
        untimed: whether pulls were captured, but none at a time that a calendar has.
        replayed: whether there is a finished replay.
    """

    lake: str
    brokers: Sequence[str]
    broker: str | None = None
    imported: bool = False
    observed: Window | None = None
    captured: Window | None = None
    untimed: bool = False
    replayed: bool = False

    @property
    def source(self) -> str | None:
        """Which pulls are asked of, as the views say it: captured ones where there are any, else replayed ones; None without."""
        if self.captured is not None or self.untimed:
            return "CAPTURED"
        return "REPLAYED" if self.replayed else None

    def of_broker(self, word: str = "WHERE", column: str = "brokerName") -> str:
        """The condition that leaves the broker's rows, behind WHERE or AND; nothing where all count."""
        return "" if self.broker is None else f"{word} {column} = {literal(self.broker)}"

    def label(self, row: Row, *columns: str) -> str:
        """A row's names in a line, that of its broker first where there are several."""
        names = ["brokerName"] * (len(self.brokers) > 1) + list(columns)
        return " / ".join(str(row[one]) for one in names)


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a table: `bar` lies behind its figure, as long as the figure is large."""

    name: str
    title: str
    form: Callable[[Any], Markup] = forms.count
    bar: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it stands to the left."""
        return self.form in {forms.name, forms.words}


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """A sentence of the summary."""

    tone: Tone
    text: Markup


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said of a question.

    Attributes:
        finding: in a sentence.
        picture: SVG, with its legend.
        table: columns and rows.
        note: what to know of the figures.
    """

    finding: ReportFinding
    picture: Markup | None = None
    columns: Sequence[ReportColumn] = ()
    rows: Sequence[Row] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a question has no answer: which commands bring what it takes."""

    why: str
    commands: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the report.

    Attributes:
        anchor: its place in the page.
        title: the question.
        about: what its figures are, in a sentence or two.
        queries: the SQL, none where it is known without that there is no answer.
        answer: what is said of the rows of each query.
    """

    anchor: str
    title: str
    about: str
    queries: Callable[[Scope], Sequence[str]]
    answer: Callable[[Scope, Sequence[Sequence[Row]]], Answer | Missing]


def waiting(lag: str) -> str:
    """The SQL for how many messages wait of a queue's lag: none where its offset lies past the end, NULL where the lag is unknown."""
    return f"if({lag} < 0, 0, {lag})"


def bin_of(window: Window, micros: str) -> str:
    """The SQL for the bin of a window that a time is in, NULL outside of it."""
    within = f"{micros} DIV 1000 BETWEEN {window.start} AND {window.end - 1}"
    return f"CASE WHEN {within} THEN ({micros} DIV 1000 - {window.start}) DIV {window.width} END"


def by_bin(rows: Sequence[Row], label: str, figure: str) -> dict[str, Counter[int | None]]:
    """A figure of the rows of each label, by the bin that `bin_of` gave."""
    found: dict[str, Counter[int | None]] = defaultdict(Counter)
    for row in rows:
        found[row[label]][row["bin"]] += row[figure]
    return found


def with_broker(scope: Scope, *columns: ReportColumn) -> tuple[ReportColumn, ...]:
    """The columns of a table, the broker's first where there are several."""
    return (ReportColumn("brokerName", "Broker", forms.name), *columns) if len(scope.brokers) > 1 else columns


IMPORT: Final = "pullsim import /data/rocketmq/store --lake {lake} --broker-name broker-a"
CAPTURE: Final = "pullsim capture traffic.pcap --lake {lake}"
REPLAY: Final = "pullsim replay --lake {lake} --at recorded-max"
REPLAY_FILE: Final = "pullsim replay --lake {lake} --requests pulls.jsonl"
RECORD: Final = "pullsim lag --lake {lake} --record"
NO_PULLS: Final = Missing("No pulls were captured or replayed.", [CAPTURE, REPLAY_FILE])
