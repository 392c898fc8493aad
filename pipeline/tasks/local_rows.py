"""DataFrames of rows that the driver holds as an Arrow table."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows of an Arrow table as a DataFrame.

    Surprise: Spark 4.2 loses the rows after an empty chunk of the table, so the chunks are joined first.
    """
    return spark.createDataFrame(rows.combine_chunks())
