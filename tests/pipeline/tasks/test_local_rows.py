"""A DataFrame of an Arrow table has all rows, whatever the table's chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pipeline.tasks.local_rows import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("chunks", [(), (0,), (8, 0, 3), (3, 2, 0, 0, 1)])
def test_no_row_after_an_empty_chunk_is_lost(spark: SparkSession, chunks: tuple[int, ...]) -> None:
    schema = pa.schema([("a", pa.int64())])
    rows = pa.Table.from_batches([pa.RecordBatch.from_pydict({"a": range(count)}, schema) for count in chunks], schema)
    assert [row["a"] for row in frame_of(spark, rows).collect()] == rows["a"].to_pylist()
