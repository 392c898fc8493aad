"""Queries over given rows: both engines give the same rows, and frames that are cached in Spark stay cached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from pipeline.embedded.relations import DriverRelations, SparkRelations
from pipeline.tasks.computed_once import kept

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PULLS = pa.table(
    {
        "seq": pa.array([1, 2, 3, 4], pa.int64()),
        "status": ["FOUND", None, "FOUND", "it's {braces}"],
        "size": pa.array([10, None, 2**31 - 1, 0], pa.int32()),
        "offsets": pa.array([[1, 2], None, [], [2**40]], pa.list_(pa.int64())),
    }
)
GROUPS = pa.table({"seq": pa.array([1, 4, 9], pa.int64()), "name": ["a", "b", "c"]})
QUERIES = (
    "SELECT count(*) AS pulls, sum(size) AS size, count_if(status = 'FOUND') AS found FROM {pulls}",
    "SELECT p.seq, name, size(offsets) AS many FROM {pulls} p LEFT JOIN {groups} g ON p.seq = g.seq ORDER BY p.seq",
    "SELECT seq, named_struct('status', status, 'offsets', offsets) AS told FROM {pulls} WHERE NOT (status <=> 'FOUND') ORDER BY seq",
    "SELECT * FROM {pulls} WHERE FALSE",
)


@pytest.mark.parametrize("query", QUERIES)
def test_both_engines_give_the_same_rows(query: str, spark: SparkSession) -> None:
    found = DriverRelations(pulls=PULLS, groups=GROUPS).rows(query)
    with SparkRelations(spark, pulls=spark.createDataFrame(PULLS), groups=spark.createDataFrame(GROUPS)) as relations:
        assert found == relations.rows(query)


def test_rows_that_spark_keeps_stay_kept_while_they_are_asked(spark: SparkSession) -> None:
    with kept(spark.createDataFrame(PULLS)) as pulls, SparkRelations(spark, pulls=pulls) as relations:
        for _ in range(2):
            assert relations.rows(QUERIES[0])[0]["pulls"] == 4
            assert pulls.storageLevel.useMemory
        assert relations.frame("SELECT seq FROM {pulls} WHERE size > 0").count() == 2
        assert pulls.storageLevel.useMemory
    assert [one.name for one in spark.catalog.listTables() if one.name.startswith("pullsim_")] == []


def test_the_driver_reads_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.Error):
        DriverRelations(pulls=PULLS).rows(f"SELECT * FROM read_csv('{tmp_path / 'a.csv'}')")
