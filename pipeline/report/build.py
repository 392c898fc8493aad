"""Run the queries of all questions of the report on a lake, and collect the answers."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from pipeline.lag.lag_sql import check_names
from pipeline.lake.asking import AskAll, Row, names_with
from pipeline.lake.committed import lake_root
from pipeline.lake.lake_errors import require_among
from pipeline.report import forms
from pipeline.report.answered import Fact, Report, Section
from pipeline.report.compared import Compared, state_queries
from pipeline.report.compared_topics import topics_question
from pipeline.report.questions.behind_now import BEHIND_NOW
from pipeline.report.questions.clients import CLIENTS
from pipeline.report.questions.corrections import CORRECTIONS
from pipeline.report.questions.failed import FAILED
from pipeline.report.questions.filters import FILTERS
from pipeline.report.questions.hot_queues import HOT_QUEUES
from pipeline.report.questions.lag_over_time import LAG_OVER_TIME
from pipeline.report.questions.nothing_found import NOTHING_FOUND
from pipeline.report.questions.pull_statuses import PULL_STATUSES
from pipeline.report.questions.retention import RETENTION
from pipeline.report.questions.slow_queues import SLOW_QUEUES
from pipeline.report.questions.throughput import THROUGHPUT
from pipeline.report.scope import Filters, Scope
from pipeline.report.window import Window, window_of
from pipeline.settings.quantities import LAST_OF_YEAR_9999

QUESTIONS: Final = (
    BEHIND_NOW,
    LAG_OVER_TIME,
    SLOW_QUEUES,
    FAILED,
    CLIENTS,
    PULL_STATUSES,
    NOTHING_FOUND,
    FILTERS,
    CORRECTIONS,
    RETENTION,
    THROUGHPUT,
    HOT_QUEUES,
)
# tables that may name a broker of a report
NAMING: Final = ("broker", "pull_request", "replay_run")


def report(
    ask: AskAll,
    *,
    only: Filters,
    named: str,
    made: dt.datetime,
    progress: Callable[[str], None],
    before: Compared | None = None,
    has_state: bool = False,
) -> Report:
    """Return the answers to all questions about a lake.

    Args:
        ask: asks the lake, at the version to read.
        only: what the report is narrowed to.
        named: the lake's path as the user wrote it.
        made: wall clock, for the head of the report.
        progress: called with each question.
        before: an earlier report to compare with.
        has_state: whether another report is to be compared with this one.

    Raises:
        LakeError: the lake does not know the broker, group or topic.
    """
    _require(ask, lake_root(named), only)
    scope = _scope(ask, only, shlex.quote(named))
    facts = _facts(ask, scope, made)
    state = {}
    if has_state or before is not None:
        progress("What does each group and topic have?")
        state = dict(zip(("groups", "topics"), map(list, ask(state_queries(scope))), strict=True))
    questions = QUESTIONS if before is None else (before.question(state), topics_question(before, state), *QUESTIONS)
    asked = [(question, question.queries(scope)) for question in questions]
    found = ask([query for _, queries in asked for query in queries])
    sections = []
    for question, queries in asked:
        progress(question.title)
        sections.append(Section(question, queries, question.answer(scope, list(islice(found, len(queries))))))
    return Report(scope, facts, sections, state)


def _require(ask: AskAll, root: str, only: Filters) -> None:
    known = names_with(ask)
    if only.broker is not None:
        require_among(root, only.broker, known("brokerName", NAMING))
    check_names(root, known, group=only.group, topic=only.topic, broker=None)


def _scope(ask: AskAll, only: Filters, named: str) -> Scope:
    """Return the scope of the report: its brokers, and the data that the lake has to answer the questions."""
    whose = Scope(named, (), only)
    names = " UNION ".join(f"SELECT brokerName FROM {table} {whose.of_broker()}" for table in NAMING)
    queries = (
        f"{names} ORDER BY brokerName",
        f"SELECT count(*) AS brokers FROM broker {whose.of_broker()}",
        f"""\
SELECT min(storeTimestamp) AS first, max(storeTimestamp) AS last
FROM consume_queue
WHERE storeTimestamp BETWEEN 1 AND {LAST_OF_YEAR_9999} {whose.topics("AND", millis="storeTimestamp")}""",
        f"""\
SELECT min(observedAt) AS first, max(observedAt) AS last, count(DISTINCT observedAt) AS looks
FROM lag_history
{whose.rows(millis="observedAt")}""",
        f"""\
SELECT count(*) AS pulls, min(arrived) DIV 1000 AS first, max(greatest(arrived, answered)) DIV 1000 AS last
FROM (
  SELECT {_in_calendar("arrivalMicros")} AS arrived, {_in_calendar("answerMicros")} AS answered
  FROM pull_request
  {whose.rows(micros="arrivalMicros")}
)""",
        f"SELECT count_if(finishedAt IS NOT NULL) AS finished FROM replay_run {whose.of_broker()}",
    )
    brokers, [imported], [stored], [observed], [captured], [replays] = ask(queries)
    scope = Scope(
        named,
        [row["brokerName"] for row in brokers],
        only,
        imported=imported["brokers"] > 0,
        stored=_window(stored),
        observed=_window(observed) if observed["looks"] > 1 else None,
        captured=_window(captured),
        untimed=captured["pulls"] > 0 and captured["first"] is None,
    )
    return replace(scope, replayed=replays["finished"] > 0 and _has_replayed(ask, scope))


def _has_replayed(ask: AskAll, scope: Scope) -> bool:
    """Whether a replay has pulls of what the report covers."""
    if scope.only == Filters(broker=scope.only.broker):
        return True
    replayed = f"WHERE source = 'REPLAYED' {scope.rows('AND', micros='arrivalMicros')}"
    [[row]] = ask([f"SELECT count(*) AS pulls FROM pull_outcome {replayed}"])
    return bool(row["pulls"])


def _in_calendar(micros: str) -> str:
    """Return SQL for a captured time; NULL after the year 9999, because a capture's clock may give any time."""
    return f"CASE WHEN {micros} BETWEEN 0 AND {LAST_OF_YEAR_9999 * 1000 + 999} THEN {micros} END"


def _window(span: Row) -> Window | None:
    return None if span["first"] is None else window_of(span["first"], span["last"])


def _facts(ask: AskAll, scope: Scope, made: dt.datetime) -> Sequence[Fact]:
    """Return what the head of the report says."""
    queries = (
        f"SELECT max(maxStoreTimestamp) AS asOf FROM broker {scope.of_broker()}",
        f"""\
SELECT count(DISTINCT topic) AS topics, count(*) AS queues, sum(maxOffset - minOffset) AS messages FROM queue {scope.topics()}""",
        "SELECT max(version) AS version, max(unix_millis(committedAt)) AS at FROM lake_version",
        f"""\
SELECT brokerName, max(unix_millis(committedAt)) AS at
FROM lake_version
WHERE what IN ('import', 'follow') {scope.of_broker("AND")}
GROUP BY brokerName
ORDER BY brokerName""",
    )
    [store], [queues], [newest], imports = ask(queries)
    facts = [
        Fact("brokers", "Broker" if len(scope.brokers) == 1 else "Brokers", scope.brokers, forms.names),
        Fact("made", "Made", int(made.timestamp() * 1000), forms.moment),
        Fact("lakeVersion", "Lake version", newest["version"], forms.count),
        Fact("lakeChangedAt", "Lake last changed", newest["at"], forms.moment),
    ]
    for row in imports:
        of_one = "" if len(imports) == 1 else f" of {row['brokerName']}"
        facts.append(Fact(f"importedAt {row['brokerName']}", f"Last import{of_one}", row["at"], forms.moment))
    facts += [
        Fact("asOf", "Last message in the store", store["asOf"], forms.moment),
        Fact("topics", "Topics", queues["topics"], forms.count),
        Fact("queues", "Queues", queues["queues"], forms.count),
        Fact("messages", "Messages in queues", queues["messages"], forms.count),
    ]
    for name, window in (("Observed", scope.observed), ("Captured", scope.captured)):
        if window is not None:
            facts.append(Fact(name.lower(), name, (window.start, window.end), forms.span))
    return facts
