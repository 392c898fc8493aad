"""The embedded engine against Spark: every view and function gives the same rows and types on both, over the same lakes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.commands.sql_statements import statements
from pipeline.embedded.database import EmbeddedLake
from pipeline.lake.lake import Lake
from pipeline.lake.views import asking
from pipeline.report.build import QUESTIONS
from pipeline.report.scope import Filters, Scope
from pipeline.report.window import window_of
from pipeline.schema.tables import LAKE_VERSION, TABLES
from pipeline.sql.statements import VIEWS
from tests.makers.engine_lakes import BROKER, TRACED, captured_lake, write
from tests.runs.both_engines import OF_5, both_reported, of_duckdb, of_spark, of_views, plain
from tests.runs.doc_commands import PAGES, commands
from tests.runs.in_session import pullsim_in, session_with_views
from tests.runs.replaying import lake_of
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.truth.golden import needs_golden
from tests.truth.places import DATA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# stores with holes in the log, pre-blanks, ext files, odd records; the smallest come first
STORES = ("holes", "preblank0", "cleaned", "ext")
FUNCTIONS = (
    "SELECT DISTINCT tags, tags_code(tags) AS code FROM commit_log",
    "SELECT tags_code(NULL) AS none, tags_code('') AS empty, tags_code('Aa') AS a, tags_code('BB') AS b, tags_code('é🤦 ') AS wide",
    (
        "SELECT e.queueOffset, tag_matches('paid || sent ||', e.tagsCode) AS some, tag_matches('*', e.tagsCode) AS every, "
        "tag_matches('||', e.tagsCode) AS none, tag_matches(NULL, e.tagsCode) AS unset FROM consume_queue e"
    ),
    (
        "SELECT m.physicOffset, sql92_matches(f.expression, m.properties) AS matches FROM commit_log m JOIN "
        "(SELECT * FROM "
        "(VALUES ('a > 1'), ('region IS NULL'), ('TAGS = ''paid'''), ('not an expression'), (NULL)) AS one(expression)) f ON true"
    ),
    (
        "SELECT level, deliver_timestamp(level, 9223372036854775000) AS far, deliver_timestamp(level, 5) AS near "
        "FROM (VALUES (0), (1), (3), (18), (19), (NULL)) AS one(level)"
    ),
    (
        "SELECT setting, level, message_delay(setting, level) AS delay, delay_millis(message_delay(setting, level)) AS millis "
        "FROM (VALUES ('1s 2x 3d '), ('+5s  -2h'), (''), ('9223372036854775807s'), (NULL)) AS one(setting) "
        "CROSS JOIN (VALUES (-1), (0), (1), (2), (3), (4), (18), (NULL)) AS two(level)"
    ),
    (
        "SELECT o, pull_status(o, 5, 9) AS status, pull_status(o, 0, 0) AS empty, correct_offset(o, 5, 9, 'SLAVE', false) AS kept, "
        "correct_offset(o, 5, 9, 'ASYNC_MASTER', true) AS corrected, correct_offset(o, 0, 9, 'nobody', true) AS none "
        "FROM (VALUES (-1), (0), (4), (5), (8), (9), (10), (NULL)) AS one(o)"
    ),
    (
        "SELECT s, response_code(s, 0, 'SLAVE', false) AS slave, response_code(s, 7, 'SYNC_MASTER', true) AS master, "
        "suggest_which_broker_id(s, 7, true, 'SLAVE', false, true, 1, 2) AS id "
        "FROM (VALUES ('FOUND'), ('OFFSET_TOO_SMALL'), ('NO_MESSAGE_IN_QUEUE'), ('MESSAGE_WAS_REMOVING'), ('odd'), (NULL)) AS one(s)"
    ),
    (
        "SELECT n, batch_cut(array(10, 20, 30), array(false, false, true), n, 40, 9, 25, 9) AS cut, "
        "batch_cut(array(10, NULL), array(false, true), n, 40, 9, 25, 9) AS none FROM (VALUES (32), (1), (-1), (NULL)) AS one(n)"
    ),
    "SELECT physicOffset, uncompress_body(body, sysFlag) AS whole, CAST(uncompress_body(body, sysFlag) AS STRING) AS text FROM commit_log",
    "SELECT * FROM queue_status(intervals => 3, minimumComplete => 0.5, allowedLag => 100)",
    "SELECT status, count(*) AS queues FROM queue_status(5) GROUP BY status",
)
DOCUMENTED = sorted(
    {word for page in PAGES for one in commands(page) if one.words[0] == "sql" for word in one.words if word.startswith("SELECT ")}
)
# Spark takes half a minute for a view of many views; their parts are in the sample
OTHER_VIEWS = [view for view in VIEWS if view != "consume_lag" and (ALL or view not in {"group_overview", "topic_overview"})]
ASKED = list(statements((DATA / "sql" / "asked.sql").read_text("utf-8")))


@pytest.fixture(scope="module")
def captured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured_lake(spark, tmp_path_factory)


@pytest.fixture(scope="module")
def views(spark: SparkSession, captured: Path) -> SparkSession:
    return session_with_views(spark, captured)


@needs_golden
@pytest.mark.parametrize("name", ["consume_lag", *sampled(OTHER_VIEWS, 3), *sampled([*TABLES, LAKE_VERSION.name], 2)])
def test_views_and_tables_of_a_captured_broker_agree(views: SparkSession, captured: Path, name: str) -> None:
    wanted, found = of_views(views, f"SELECT * FROM {name}"), of_duckdb(captured, f"SELECT * FROM {name}")
    assert list(found[0].items()) == list(wanted[0].items())
    assert (found[1] - wanted[1], wanted[1] - found[1]) == (Counter(), Counter())
    if name in VIEWS and name not in OF_5:
        assert found[1], "a view without rows compares nothing"


@needs_golden
@pytest.mark.parametrize(
    "query", ["SHOW TABLES", *(f"DESCRIBE {name}" for name in ("message", "group_status", "queue", "lag_history", "pull_response"))]
)
def test_what_there_is_and_what_it_means_agrees(views: SparkSession, captured: Path, query: str) -> None:
    assert of_duckdb(captured, query) == of_views(views, query)


@needs_golden
@pytest.mark.parametrize("query", sampled(DOCUMENTED, 2))
def test_documented_questions_agree(spark: SparkSession, captured: Path, query: str) -> None:
    assert of_duckdb(captured, query) == of_spark(spark, captured, query)


@needs_golden
@pytest.mark.parametrize("query", sampled(FUNCTIONS, 3))
def test_functions_agree(views: SparkSession, captured: Path, query: str) -> None:
    wanted, found = of_views(views, query), of_duckdb(captured, query)
    assert found == wanted
    assert found[1]


@needs_golden
@pytest.mark.parametrize("store", sampled(STORES, 1))
def test_views_of_golden_stores_agree(spark: SparkSession, stores: Path, tmp_path_factory: pytest.TempPathFactory, store: str) -> None:
    lake = lake_of(spark, stores / store, tmp_path_factory).root
    for view in sampled(VIEWS, 1):
        assert of_duckdb(lake, f"SELECT * FROM {view}") == of_spark(spark, lake, f"SELECT * FROM {view}"), view


@slow_proof
@needs_golden
@pytest.mark.parametrize("broker", [None, BROKER])
def test_every_question_of_the_report_of_a_captured_broker_agrees(spark: SparkSession, captured: Path, broker: str | None) -> None:
    asked = both_reported(spark, captured, broker)
    assert len(asked) >= len(QUESTIONS)
    odd = [query for query, rows in asked if not rows and "FROM hot_queue" not in query and "WITH retried" not in query]
    assert odd == [], "a query without rows compares nothing"


@slow_proof
@needs_golden
def test_questions_of_captures_and_of_replays_agree_without_observations(spark: SparkSession, captured: Path) -> None:
    lake = EmbeddedLake(str(captured))
    [[span]] = lake.asked(["SELECT min(arrivalMicros) DIV 1000 AS first, max(answerMicros) DIV 1000 AS last FROM pull_request"])
    window = window_of(span["first"], span["last"])
    sources: tuple[dict[str, Any], ...] = ({"captured": window}, {"replayed": True})
    scopes = [Scope("lake", (BROKER, TRACED), imported=True, **source) for source in sources]
    only = Filters(broker=BROKER, group="g-main", since=window.start, until=(window.start + window.end) // 2)
    narrowed = Scope("lake", (BROKER,), only, imported=True, stored=window, captured=window)
    whole = {query for scope in scopes for question in QUESTIONS for query in question.queries(scope)}
    queries = sampled(sorted(whole), 3) + sampled(sorted({query for question in QUESTIONS for query in question.queries(narrowed)}), 2)
    for query, wanted, found in zip(queries, asking(Lake(spark, str(captured)))(queries), lake.asked(queries), strict=True):
        assert [plain(row) for row in found] == [plain(row) for row in wanted], query
        assert found or query not in whole or "FROM hot_queue" in query or "WITH retried" in query, query


@slow_proof
@needs_golden
def test_every_question_of_the_report_of_a_store_alone_agrees(
    spark: SparkSession, stores: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked = both_reported(spark, lake_of(spark, stores / "cleaned", tmp_path_factory).root, None)
    assert any(rows and "queue" in query for query, rows in asked)


@slow_proof  # tests/pipeline/lag/test_retention_command.py expects the same rows of both engines, found by hand
@needs_golden
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--rate", "0.001", "--format", "json"),
        ("--group", "g-tag", "--at", "1795257316000", "--growth", "10", "--format", "csv"),
        ("--disk-size", "1G", "--disk-used", "900M", "--set", "deleteWhen=05", "--time-zone", "Asia/Shanghai", "--format", "csv"),
    ],
)
def test_losses_agree(
    spark: SparkSession,
    captured: Path,
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pullsim = pullsim_in(spark, monkeypatch, capsys)
    wanted, found = (pullsim("retention", "--lake", captured, *options, "--engine", engine) for engine in ("spark", "duckdb"))
    assert wanted[0] == 0, wanted[2]
    assert found == wanted
    assert found[1].count("\n") > 2


def test_views_of_a_lake_without_a_store_agree(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path / "lake", "nobody", {})
    for view in sampled(VIEWS, 2):
        wanted, found = of_spark(spark, tmp_path / "lake", f"SELECT * FROM {view}"), of_duckdb(tmp_path / "lake", f"SELECT * FROM {view}")
        assert (found, found[1]) == (wanted, Counter()), view


@needs_golden
@pytest.mark.parametrize("query", sampled(ASKED, 4))
def test_what_people_may_ask_agrees(views: SparkSession, captured: Path, query: str) -> None:
    wanted, found = of_views(views, query), of_duckdb(captured, query)
    assert list(found[0].items()) == list(wanted[0].items())
    assert (found[1] - wanted[1], wanted[1] - found[1]) == (Counter(), Counter())
