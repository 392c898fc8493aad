"""Both engines over lakes of random rows, whose names, offsets and times combine in many ways, with NULLs. `tests/long` has more."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.embedded.database import EmbeddedLake
from pipeline.report.build import QUESTIONS, report
from pipeline.report.page import page
from pipeline.report.scope import Filters
from pipeline.sql.statements import VIEWS
from tests.makers.generated_lakes import generated_lake
from tests.runs.both_engines import OF_5, SELDOM, of_duckdb, of_spark
from tests.runs.replaying import NOON
from tests.runs.sampling import ALL, sampled, slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@slow_proof
@given(seed=st.integers(1, 2**32))
@settings(max_examples=1, derandomize=True, phases=[Phase.generate])  # a smaller seed is no smaller lake
def test_views_agree(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    lake = generated_lake(tmp_path_factory.mktemp("generated") / "lake", seed, brokers=20 if ALL else 5)
    for view in sampled(VIEWS, 2):
        wanted, found = of_spark(spark, lake, f"SELECT * FROM {view}"), of_duckdb(lake, f"SELECT * FROM {view}")
        assert (found[0], found[1] - wanted[1], wanted[1] - found[1]) == (wanted[0], Counter(), Counter()), view
        assert found[1] or view in OF_5 | SELDOM, f"{view} has no rows, which compares nothing"


@given(seed=st.integers(1, 2**32))
@settings(max_examples=2 if ALL else 1, derandomize=True)
def test_a_report_can_be_made_of_any_rows(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    lake = generated_lake(tmp_path_factory.mktemp("generated") / "lake", seed, brokers=5)
    found = report(EmbeddedLake(str(lake)).asked, only=Filters(), named="lake", made=NOON, progress=lambda _: None)
    html = page(found)
    assert [question.title for question in QUESTIONS if escape(question.title) not in html] == []
