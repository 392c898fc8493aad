"""Both engines over many lakes of random rows: every view, every question of the report, every group's losses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.embedded.database import EmbeddedLake
from pipeline.sql.statements import VIEWS
from tests.makers.generated_lakes import generated_lake
from tests.runs.both_engines import both_reported, of_duckdb, of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(seed=st.integers(0, 2**32), brokers=st.sampled_from([1, 3, 10]))
@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])  # a smaller seed is no smaller lake
def test_views_and_reports_agree(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int, brokers: int) -> None:
    lake: Path = generated_lake(tmp_path_factory.mktemp("generated") / "lake", seed, brokers)
    for view in VIEWS:
        wanted, found = of_spark(spark, lake, f"SELECT * FROM {view}"), of_duckdb(lake, f"SELECT * FROM {view}")
        assert (found[0], found[1] - wanted[1], wanted[1] - found[1]) == (wanted[0], Counter(), Counter()), view
    both_reported(spark, lake, None)
    [names] = EmbeddedLake(str(lake)).asked(["SELECT brokerName FROM broker ORDER BY brokerName"])
    for row in names[-1:]:  # a lake may have no broker
        both_reported(spark, lake, row["brokerName"])
