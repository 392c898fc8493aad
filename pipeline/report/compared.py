"""Compares the groups of a report with those of an earlier one.

Rules: rows are matched by broker and name. A lag that is unknown in one of the reports is no change, nor are the dead letters of a group
that only one report has. If one report may lack groups of the other, only groups of both are compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from pipeline.files.small_file import small_file
from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.question import TOP, Answer, Question, ReportColumn, ReportFinding, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone, status_tone
from store_format.errors import UnusableInputError

# version of the form of a report as json
FORMAT: Final = 1
FORMAT_KEY: Final = "pullsimReport"
NEW, GONE = "new", "gone"
# groups and topics of a report as json: those with the greatest lag or most bytes, so that a report stays small
_MOST: Final = 2000
# from the best status of group_status to the worst
_WORSE: Final = ("OK", "UNKNOWN", "WARN", "STOP", "STALL", "REWIND")
Rows = Mapping[tuple[str, str], Row]


class ReportFileError(UnusableInputError, ValueError):
    """A file is no report; the message names the file."""


def state_queries(scope: Scope) -> Sequence[str]:
    """Return the queries for what each group and each topic has."""
    return (
        f"""\
SELECT brokerName, consumerGroup, status, lag, retryLag, dlqMessages, lagMillisMax, queuesUnknown, clients
FROM group_overview
{scope.groups()}
ORDER BY lag DESC NULLS LAST, brokerName, consumerGroup
LIMIT {_MOST}""",
        f"""\
SELECT
  brokerName, topic, queues, messages, bytes, messagesPerSecond, try_subtract(asOf, firstStoreTimestamp) AS keptMillis, consumerGroups, lag
FROM topic_overview
{scope.topics()}
ORDER BY bytes DESC NULLS LAST, brokerName, topic
LIMIT {_MOST}""",
    )


@dataclass(frozen=True, slots=True)
class Compared:
    """An earlier report.

    Attributes:
        name: its file, as the user wrote it.
        made: when it was made, ms since 1970.
        lake: path of its lake.
        only: what it was narrowed to, by the options' names.
        groups: what each group had.
        topics: what each topic had.
    """

    name: str
    made: int
    lake: str
    only: Mapping[str, Any]
    groups: Sequence[Row]
    topics: Sequence[Row]

    def question(self, state: Mapping[str, Sequence[Row]]) -> Question:
        """Return the question what changed since this report, answered by what each group has now."""
        return Question(
            "changed",
            "What changed?",
            "Each group now and in the other report, those whose lag changed most first. A group that only one of them has is new or gone.",
            lambda _: [],
            lambda scope, _: self._answer(scope, state["groups"]),
        )

    def _answer(self, scope: Scope, now: Sequence[Row]) -> Answer:
        rows = _changes(by_name(self.groups, "consumerGroup"), by_name(now, "consumerGroup"))
        if self.is_partial(scope, self.groups, now):
            rows = [row for row in rows if _is_in_both(row)]
        shown = [row for row in rows if _has_changed(row)][:TOP]
        columns = with_broker(
            scope,
            ReportColumn("consumerGroup", "Group", forms.name),
            ReportColumn("statusBefore", "Was", forms.status),
            ReportColumn("status", "Is", forms.status),
            ReportColumn("lagBefore", "Lag before"),
            ReportColumn("lag", "now"),
            ReportColumn("lagChange", "Change", forms.change),
            ReportColumn("waitedBefore", "Waited before", forms.duration),
            ReportColumn("waited", "now", forms.duration),
            ReportColumn("deadChange", "Dead letters", forms.change),
        )
        return Answer(
            self._finding(rows),
            columns=columns if shown else (),
            rows=shown,
            note=self.note(scope, "groups, those with the greatest lag", self.groups, now),
        )

    @property
    def since(self) -> Markup:
        """The begin of a sentence about what changed."""
        return Markup("Since the report of {} UTC").format(forms.moment(self.made))

    def _finding(self, rows: Sequence[Row]) -> ReportFinding:
        since = self.since
        grown = [row for row in rows if (row["lagChange"] or 0) > 0]
        fallen = [row for row in rows if (row["lagChange"] or 0) < 0]
        worse = [row for row in rows if _is_worse(row)]
        dead = sum(max(row["deadChange"] or 0, 0) for row in rows)
        text = since + Markup(" the lag of no group changed")
        if grown or fallen:
            text = since + Markup(" lag grew in <b>{}</b> and fell in {} of {} groups").format(
                forms.count(len(grown)), forms.count(len(fallen)), forms.count(len(rows))
            )
        if grown:
            most = max(grown, key=lambda row: row["lagChange"])
            said = Markup("; most of {}: <b>{}</b> to {}")
            text += said.format(forms.name(most["consumerGroup"]), forms.change(most["lagChange"]), forms.count(most["lag"]))
        text += _come_and_gone(rows)
        if worse:
            text += Markup("; the status of <b>{}</b> became worse").format(forms.count(len(worse)))
        if dead:
            text += Markup("; <b>{}</b> dead letters came").format(forms.count(dead))
        return ReportFinding(_tone(rows, grown or worse, dead, fallen), text + Markup("."))

    def is_partial(self, scope: Scope, *states: Sequence[Row]) -> bool:
        """Return whether one of the reports may lack rows of its lake that the other one has."""
        return self._is_narrowed_otherwise(scope) or _is_cut(*states)

    def note(self, scope: Scope, kept: str, *states: Sequence[Row]) -> str:
        """Return the remark on what is compared.

        Args:
            scope: what this report covers.
            kept: which rows a report keeps if there are too many, for example "groups, those with the greatest lag"; the first word is
                groups or topics.
            states: the rows of the groups or topics of each report.
        """
        what = kept.partition(",")[0]
        notes = [] if self.lake == scope.lake else [f"The other report is one of the lake {self.lake}."]
        if self._is_narrowed_otherwise(scope):
            notes.append(f"It was narrowed otherwise than this one: only {what} of both are compared.")
        if _is_cut(*states):
            notes.append(f"A report has at most {_MOST:,} {kept}: only {what} of both are compared.")
        return " ".join(forms.visible(note) for note in notes)

    def _is_narrowed_otherwise(self, scope: Scope) -> bool:
        return dict(self.only) != given(scope)


def _is_cut(*states: Sequence[Row]) -> bool:
    return max(map(len, states)) >= _MOST


def _come_and_gone(rows: Sequence[Row]) -> Markup:
    """Return the part of the finding about groups that only one of the reports has."""
    text = Markup("")
    if new := [row for row in rows if row["statusBefore"] == NEW]:
        most = max(new, key=lambda row: (status_tone(row["status"]) is Tone.BAD, row["lag"] or 0))
        waits = Markup(": {}").format(forms.counted(most["lag"], "message waits", "messages wait")) if most["lag"] else Markup("")
        said = Markup("; new: <b>{}</b>, such as {}, {}{}")
        text += said.format(forms.count(len(new)), forms.name(most["consumerGroup"]), forms.words(most["status"]), waits)
    if gone := [row for row in rows if row["status"] == GONE]:
        text += Markup("; gone: <b>{}</b>, such as {}").format(forms.count(len(gone)), forms.name(gone[0]["consumerGroup"]))
    return text


def _tone(rows: Sequence[Row], is_worse: object, dead: int, fallen: Sequence[Row]) -> Tone:
    """Return the tone of what changed; a new group counts by its status, and if messages wait for it, the tone is at least WARN."""
    new = [row for row in rows if row["statusBefore"] == NEW]
    became = {status_tone(row["status"]) for row in rows if row in new or _is_worse(row)}
    if dead or Tone.BAD in became:
        return Tone.BAD
    if is_worse or Tone.WARN in became or any(row["lag"] for row in new):
        return Tone.WARN
    return Tone.GOOD if fallen else Tone.PLAIN


def given(scope: Scope) -> dict[str, Any]:
    """Return what a report is narrowed to, by the names of the options."""
    only = scope.only
    found = {"broker": only.broker, "group": only.group, "topic": only.topic, "from": only.since, "to": only.until}
    return {name: value for name, value in found.items() if value is not None}


def by_name(rows: Sequence[Row], column: str) -> Rows:
    """Return rows by broker and the name in a column."""
    return {(row["brokerName"], row[column]): row for row in rows}


def _changes(before: Rows, now: Rows) -> list[dict[str, Any]]:
    """Return a row for each group of either report, the greatest change of lag first."""
    rows = []
    for broker, group in sorted({*before, *now}):
        old, new = before.get((broker, group)), now.get((broker, group))
        row = {
            "brokerName": broker,
            "consumerGroup": group,
            "statusBefore": NEW if old is None else old["status"],
            "status": GONE if new is None else new["status"],
            "waitedBefore": None if old is None else old["lagMillisMax"],
            "waited": None if new is None else new["lagMillisMax"],
            "deadChange": None if new is None or old is None else new["dlqMessages"] - old["dlqMessages"],
        }
        was, is_now = _waiting(old), _waiting(new)
        rows.append(row | {"lagBefore": was, "lag": is_now, "lagChange": _lag_change(old, new)})
    return sorted(rows, key=lambda row: (-abs(row["lagChange"] or 0), -abs(row["deadChange"] or 0)))


def _waiting(row: Row | None) -> int | None:
    """Return the messages that wait for a group, with those on its retry topic; None if no lag on its topics is known."""
    return None if row is None or row["lag"] is None else row["lag"] + (row["retryLag"] or 0)


def _lag_change(old: Row | None, new: Row | None) -> int | None:
    """Return how many more messages wait; None if a report does not know the lag, or the number of queues of unknown lag differs."""
    was, is_now = _waiting(old), _waiting(new)
    if old is None or new is None or was is None or is_now is None or old["queuesUnknown"] != new["queuesUnknown"]:
        return None
    return is_now - was


def _is_in_both(row: Row) -> bool:
    return bool(row["statusBefore"] != NEW and row["status"] != GONE)


def _has_changed(row: Row) -> bool:
    return bool(row["lagChange"] or row["deadChange"] or row["statusBefore"] != row["status"])


def _is_worse(row: Row) -> bool:
    """Whether a group of both reports has a status that is worse than UNKNOWN, and worse than it was."""
    was, now = (_WORSE.index(found) if found in _WORSE else 0 for found in (row["statusBefore"], row["status"]))
    return _is_in_both(row) and now > max(was, _WORSE.index("UNKNOWN"))


# most bytes of a report's file: a report of 300,000 groups has fewer
_REPORT_BYTES_MAX = 128 << 20


def read_report(path: str) -> Compared:
    """Return the report in a file that `pullsim report --format json` wrote.

    Raises:
        ReportFileError: the file cannot be read, or has no report.
    """
    try:
        found = json.loads(small_file(path, _REPORT_BYTES_MAX))
    except (OSError, ValueError, RecursionError) as error:
        raise ReportFileError(f"--compare {path}: expected a report that --format json wrote, found {error}") from error
    try:
        if found[FORMAT_KEY] != FORMAT:
            raise ReportFileError(f"--compare {path}: expected a report of form {FORMAT}, found one of form {found[FORMAT_KEY]!r}")
        groups = [_group(row) for row in found["groups"]]
        topics = [_topic(row) for row in found["topics"]]
        return Compared(path, int(found["facts"]["made"]), str(found["lake"]), dict(found["only"]), groups, topics)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ReportFileError(
            f"--compare {path}: expected a report that --format json wrote, found other json ({type(error).__name__}: {error})"
        ) from error


_TEXTS, _COUNTS = ("brokerName", "consumerGroup", "status"), ("lag", "retryLag", "lagMillisMax")


def _group(row: Mapping[str, Any]) -> Row:
    numbers = {name: None if row[name] is None else int(row[name]) for name in _COUNTS}
    return {name: str(row[name]) for name in _TEXTS} | numbers | {name: int(row[name]) for name in ("dlqMessages", "queuesUnknown")}


def _topic(row: Mapping[str, Any]) -> Row:
    """A topic; reports of earlier versions have no rate and no time."""
    rate, kept = row.get("messagesPerSecond"), row.get("keptMillis")
    if rate is not None and not math.isfinite(rate):
        raise ValueError(f"messagesPerSecond is {rate}")
    known = {"messagesPerSecond": rate, "keptMillis": None if kept is None else int(kept)}
    return {name: str(row[name]) for name in ("brokerName", "topic")} | {name: int(row[name]) for name in ("messages", "bytes")} | known
