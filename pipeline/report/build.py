"""Run the queries of all questions of the report on a lake, and make the page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from markupsafe import Markup

from pipeline.lake.asking import AskAll, Row, known_names
from pipeline.lake.committed import lake_root, require_among
from pipeline.report import forms
from pipeline.report.behind_now import BEHIND_NOW
from pipeline.report.corrections import CORRECTIONS
from pipeline.report.filters import FILTERS
from pipeline.report.hot_queues import HOT_QUEUES
from pipeline.report.lag_over_time import LAG_OVER_TIME
from pipeline.report.nothing_found import NOTHING_FOUND
from pipeline.report.page import Section, page
from pipeline.report.pull_statuses import PULL_STATUSES
from pipeline.report.question import Scope
from pipeline.report.retention import RETENTION
from pipeline.report.slow_queues import SLOW_QUEUES
from pipeline.report.window import Window, window_of
from pipeline.settings.quantities import LAST_OF_YEAR_9999

QUESTIONS: Final = (
    BEHIND_NOW,
    LAG_OVER_TIME,
    SLOW_QUEUES,
    PULL_STATUSES,
    NOTHING_FOUND,
    FILTERS,
    CORRECTIONS,
    RETENTION,
    HOT_QUEUES,
)
# tables that may name a broker of a report
NAMING: Final = ("broker", "pull_request", "replay_run")


def report(ask: AskAll, *, broker: str | None, named: str, progress: Callable[[str], None]) -> str:
    """Return the HTML of the page about a lake.

    Args:
        ask: asks the lake, at the version to read.
        broker: the only broker to report; None for all.
        named: the lake's path as the user wrote it.
        progress: called with each question.

    Raises:
        LakeError: the lake has no such broker.
    """
    if broker is not None:
        [known] = ask([known_names("brokerName", NAMING)])
        require_among(lake_root(named), broker, sorted(row["name"] for row in known))
    scope = _scope(ask, broker, shlex.quote(named))
    facts = _facts(ask, scope)
    asked = [(question, question.queries(scope)) for question in QUESTIONS]
    found = ask([query for _, queries in asked for query in queries])
    sections = []
    for question, queries in asked:
        progress(question.title)
        sections.append(Section(question, queries, question.answer(scope, list(islice(found, len(queries))))))
    return page(scope, facts, sections)


def _scope(ask: AskAll, broker: str | None, named: str) -> Scope:
    """Return what the lake has of the brokers, which is what questions it can answer."""
    whose = Scope(named, (), broker)
    names = " UNION ".join(f"SELECT brokerName FROM {table} {whose.of_broker()}" for table in NAMING)
    queries = (
        f"{names} ORDER BY brokerName",
        f"SELECT count(*) AS brokers FROM broker {whose.of_broker()}",
        f"""\
SELECT min(observedAt) AS first, max(observedAt) AS last, count(DISTINCT observedAt) AS looks FROM lag_history {whose.of_broker()}""",
        f"""\
SELECT count(*) AS pulls, min(arrived) DIV 1000 AS first, max(greatest(arrived, answered)) DIV 1000 AS last
FROM (
  SELECT {_in_calendar("arrivalMicros")} AS arrived, {_in_calendar("answerMicros")} AS answered FROM pull_request {whose.of_broker()}
)""",
        f"SELECT count_if(finishedAt IS NOT NULL) AS finished FROM replay_run {whose.of_broker()}",
    )
    brokers, [imported], [observed], [captured], [replays] = ask(queries)
    return Scope(
        named,
        [row["brokerName"] for row in brokers],
        broker,
        imported=imported["brokers"] > 0,
        observed=_window(observed) if observed["looks"] > 1 else None,
        captured=_window(captured),
        untimed=captured["pulls"] > 0 and captured["first"] is None,
        replayed=replays["finished"] > 0,
    )


def _in_calendar(micros: str) -> str:
    """Return SQL for a captured time; NULL after the year 9999, because a capture's clock may give any time."""
    return f"CASE WHEN {micros} BETWEEN 0 AND {LAST_OF_YEAR_9999 * 1000 + 999} THEN {micros} END"


def _window(span: Row) -> Window | None:
    return None if span["first"] is None else window_of(span["first"], span["last"])


def _facts(ask: AskAll, scope: Scope) -> Sequence[tuple[str, Markup]]:
    """Return (name, value) of each fact in the head of the page."""
    queries = (
        f"SELECT max(maxStoreTimestamp) AS asOf FROM broker {scope.of_broker()}",
        f"""\
SELECT count(DISTINCT topic) AS topics, count(*) AS queues, sum(maxOffset - minOffset) AS messages FROM queue {scope.of_broker()}""",
        "SELECT max(version) AS version FROM lake_version",
    )
    [store], [queues], [version] = ask(queries)
    brokers = Markup(", ").join(map(forms.name, scope.brokers)) or forms.NOTHING
    facts = [
        ("Broker" if len(scope.brokers) == 1 else "Brokers", brokers),
        ("Last message in the store", forms.moment(store["asOf"])),
        ("Topics", forms.count(queues["topics"])),
        ("Queues", forms.count(queues["queues"])),
        ("Messages in queues", forms.count(queues["messages"])),
    ]
    for name, window in (("Observed", scope.observed), ("Captured", scope.captured)):
        if window is not None:
            facts.append((name, Markup("{} to {}").format(forms.moment(window.start), forms.moment(window.end))))
    return [*facts, ("Lake version", forms.count(version["version"]))]
