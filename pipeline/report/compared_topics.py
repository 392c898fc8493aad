"""Which topics changed since another report: messages, bytes, rate, and how far back the messages go.

Rule: rows are matched by broker and name, as for groups. Surprise: the change of the number of messages is not the number of new
messages, because the broker deletes old ones meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.compared import GONE, NEW, Compared, Rows, by_name
from pipeline.report.question import TOP, Answer, Question, ReportColumn, ReportFinding, with_broker
from pipeline.report.scope import Scope
from pipeline.report.tone import Tone


def topics_question(before: Compared, state: Mapping[str, Sequence[Row]]) -> Question:
    """Return the question which topics changed since a report, answered by what each topic has now."""
    return Question(
        "changed-topics",
        "Which topics changed?",
        "What the store has of each topic now, and had in the other report, those whose number of messages changed most first. A topic "
        "that only one of them has is new or gone. Rates are those from the first message to the last.",
        lambda _: [],
        lambda scope, _: _answer(before, scope, state["topics"]),
    )


def _answer(before: Compared, scope: Scope, now: Sequence[Row]) -> Answer:
    rows = _changes(by_name(before.topics, "topic"), by_name(now, "topic"))
    if before.is_partial(scope, before.topics, now):
        rows = [row for row in rows if not row["presence"]]
    changed = [row for row in rows if row["presence"] or row["messagesChange"] or row["bytesChange"]]
    columns = with_broker(
        scope,
        ReportColumn("topic", "Topic", forms.name),
        ReportColumn("presence", "New or gone", forms.words),
        ReportColumn("messagesBefore", "Messages before"),
        ReportColumn("messages", "now"),
        ReportColumn("messagesChange", "Change", forms.change),
        ReportColumn("bytesBefore", "Bytes before", forms.size),
        ReportColumn("bytes", "now", forms.size),
        ReportColumn("rateBefore", "Rate before", forms.rate),
        ReportColumn("rate", "now", forms.rate),
        ReportColumn("keptBefore", "Went back", forms.duration),
        ReportColumn("kept", "now", forms.duration),
    )
    note = before.note(scope, "topics, those with most bytes", before.topics, now)
    return Answer(_finding(before, rows, changed), columns=columns if changed else (), rows=changed[:TOP], note=note)


def _finding(before: Compared, rows: Sequence[Row], changed: Sequence[Row]) -> ReportFinding:
    both = [row for row in changed if not row["presence"]]
    text = before.since + Markup(" the store has the same messages of each topic")
    if both:
        most = both[0]
        text = before.since + Markup(" messages of <b>{}</b> of {} topics changed, most of {}: <b>{}</b> to {}").format(
            forms.count(len(both)),
            forms.count(len(rows)),
            forms.name(most["topic"]),
            forms.change(most["messagesChange"]),
            forms.count(most["messages"]),
        )
    for word in (NEW, GONE):
        if found := [row for row in changed if row["presence"] == word]:
            text += Markup("; {}: <b>{}</b>, such as {}").format(word, forms.count(len(found)), forms.name(found[0]["topic"]))
    return ReportFinding(Tone.PLAIN, text + Markup("."))


def _changes(before: Rows, now: Rows) -> list[dict[str, Any]]:
    """Return a row for each topic of either report, the greatest change of the number of messages first."""
    rows = []
    for broker, topic in sorted({*before, *now}):
        old, new = before.get((broker, topic)), now.get((broker, topic))
        row: dict[str, Any] = {"brokerName": broker, "topic": topic, "presence": NEW if old is None else GONE if new is None else ""}
        for name, column in _COMPARED.items():
            row |= {f"{name}Before": None if old is None else old[column], name: None if new is None else new[column]}
        for name in ("messages", "bytes"):
            row[f"{name}Change"] = None if old is None or new is None else new[name] - old[name]
        rows.append(row)
    return sorted(rows, key=lambda row: -abs((row["messages"] or 0) - (row["messagesBefore"] or 0)))


# figure of a row -> column of topic_overview, or of the query for what each topic has
_COMPARED = {"messages": "messages", "bytes": "bytes", "rate": "messagesPerSecond", "kept": "keptMillis"}
