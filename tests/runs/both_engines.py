"""Runs the same queries over a lake on Spark and on DuckDB, brings the answers into one form, and compares them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import ask as ask_quickly
from pipeline.lake.asking import AskAll, Row
from pipeline.lake.lake import Lake
from pipeline.lake.views import ask, asking
from pipeline.report.build import report
from pipeline.report.page import page
from pipeline.report.scope import Filters
from tests.runs.replaying import NOON
from tests.runs.sampling import ALL, sampled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Counter[str]
# views of state that 4.9.3 does not have: their rows are compared in tests/pipeline/listings, on a store of 5.5.0
OF_5 = {"timer_message", "timer_topic", "timer_check", "pop_message"}
# views whose rows need an entry, its queue and its message: random tables seldom have all three
SELDOM = {"delayed_message"}


def told(types: Iterable[str | None], names: Iterable[str], rows: Iterable[Iterable[Any]]) -> tuple[dict[str, str | None], Rows]:
    return dict(zip(names, types, strict=True)), Counter(repr([plain(value) for value in row]) for row in rows)


def plain(value: Any) -> Any:
    """A value of either engine, in the form that is compared."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value.astimezone(dt.UTC).isoformat() if isinstance(value, dt.datetime) else value


def of_spark(spark: SparkSession, lake: Path | str, query: str) -> tuple[dict[str, str | None], Rows]:
    return told_by(ask(Lake(spark, str(lake)).require(), query))


def of_views(views: SparkSession, query: str) -> tuple[dict[str, str | None], Rows]:
    """The types and rows that Spark gives in a session that has the tables, views and functions of a lake."""
    return told_by(views.sql(query))


def told_by(frame: DataFrame) -> tuple[dict[str, str | None], Rows]:
    return told((field.dataType.simpleString() for field in frame.schema), frame.columns, frame.collect())


def of_duckdb(lake: Path | str, query: str) -> tuple[dict[str, str | None], Rows]:
    answer = ask_quickly(EmbeddedLake(str(lake)), query)
    return told(answer.types, answer.names, answer.rows)


def reported(ask: AskAll, lake: Path | str, broker: str | None) -> tuple[list[tuple[str, Any]], str]:
    """Each query of the report with its rows, and the page."""
    asked: list[tuple[str, Any]] = []

    def heard(queries: Sequence[str]) -> Iterator[Sequence[Row]]:
        for query, rows in zip(queries, ask(queries), strict=True):
            asked.append((query, [plain(row) for row in rows]))
            yield rows

    only = Filters(broker=broker)
    return asked, page(report(heard, only=only, named=str(lake), made=NOON, progress=lambda _: None, has_state=True))


def both_reported(spark: SparkSession, lake: Path | str, broker: str | None) -> list[tuple[str, Any]]:
    """The queries of the report with their rows by DuckDB, after a check that Spark gives the same rows for a sample of the queries.

    `./run long` compares all queries, and the page.
    """
    ask_spark = asking(Lake(spark, str(lake)).require())
    found, found_page = reported(EmbeddedLake(str(lake)).asked, lake, broker)
    chosen = sampled(found, 4)
    for (query, rows), of_spark in zip(chosen, ask_spark([query for query, _ in chosen]), strict=True):
        assert rows == [plain(row) for row in of_spark], query
    if ALL:
        assert reported(ask_spark, lake, broker) == (found, found_page)
    return found
