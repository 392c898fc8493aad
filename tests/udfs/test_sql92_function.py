"""`sql92_matches` in SQL gives the plain function's answers, for literals and for columns, and NULL if the answer is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.makers.sql92_expressions import ExpressionMaker
from tests.truth.golden import golden_lines, needs_golden
from udfs.filters import sql92

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Row = tuple[str | None, dict[str, str | None] | None]
SCHEMA = "at INT, expression STRING, properties MAP<STRING, STRING>"


def answers(spark: SparkSession, rows: list[Row]) -> list[bool | None]:
    """sql92_matches of each row, in order."""
    numbered = spark.createDataFrame([(at, *row) for at, row in enumerate(rows)], SCHEMA)
    found = numbered.selectExpr("at", "sql92_matches(expression, properties) AS answer").sort("at").collect()
    return [row.answer for row in found]


def test_the_expression_may_be_a_column(spark: SparkSession) -> None:
    maker = ExpressionMaker(20263)
    rows: list[Row] = [(case["expression"], one) for case in (maker.case() for _ in range(300)) for one in case["properties"]]
    rows += [("a = 1", None), ("a IS NULL", None), (None, {"a": "1"}), (None, None), ("a = 1", {"a": None}), ("a IS NULL", {"a": None})]
    rows += [("", {"a": "1"}), ("(" * 100_000, {"a": "1"}), ("a = '" + "x" * 100_000 + "'", {"a": "x" * 100_000})]
    assert answers(spark, rows) == [sql92.matches(*row) for row in rows]


@needs_golden
def test_recorded_messages_match_as_the_broker_said(spark: SparkSession) -> None:
    rows: list[Row] = []
    expected = []
    for row in golden_lines("broker", "sql92.jsonl"):
        for one in row.get("evals", []):
            rows.append((row["expr"], one["props"]))
            expected.append(one.get("result") if isinstance(one.get("result"), bool) else None)
    assert answers(spark, rows) == expected


def test_the_expression_may_be_a_literal(spark: SparkSession) -> None:
    query = "SELECT id, sql92_matches('price > 50', map('price', CAST(id AS STRING))) AS answer FROM range(0, 100, 1, 2) ORDER BY id"
    assert [row.answer for row in spark.sql(query).collect()] == [number > 50 for number in range(100)]
    assert spark.sql("SELECT sql92_matches('price >', map('price', '1')) AS answer").collect()[0].answer is None
    assert spark.sql("SELECT count(*) AS n FROM range(10) WHERE sql92_matches('a = 1', map('a', 'x'))").collect()[0].n == 0
