"""The lake as SQL: every table and view under its name, and the functions of the broker's rules."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipeline.lake import Lake, LakeError
from pipeline.tables import BROKER, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, CONSUMER_OFFSET, LAKE_VERSION, QUEUE, TABLES
from udfs.sql_functions import register

# in the order of their dependence
VIEWS = (
    "consume_lag",
    "consume_lag_by_group",
    "group_lag",
    "group_filter",
    "consume_lag_matched",
    "catch_up",
    "group_status",
    "retention_risk",
    "pull_status_summary",
    "pull_outcome",
    "offset_correction",
    "pull_nothing_found",
    "disk_read",
    "pull_hold",
    "hot_queue",
    "topic_size",
    "message",
)
# functions that look into tables, called by views
FUNCTIONS = ("queue_status",)
# what consume_lag reads
CONSUME_LAG_TABLES = (BROKER, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, CONSUMER_OFFSET, QUEUE)


def view_sql(name: str) -> str:
    """The statement that defines a view or function, with what each of its columns means: one file each under pipeline/sql."""
    return files("pipeline").joinpath("sql", f"{name}.sql").read_text("utf-8")


def create_views(lake: Lake) -> SparkSession:
    """Define the lake's tables, views and functions in its session."""
    register(lake.spark)
    for table in TABLES.values():
        lake.create_view(table)
    if lake.at.version:
        lake.versions().createOrReplaceTempView(LAKE_VERSION.name)
    for name in (*FUNCTIONS, *VIEWS):
        lake.spark.sql(view_sql(name))
    return lake.spark


def ask(lake: Lake, query: str) -> DataFrame:
    """What a query of SQL over tables, views and functions gives.

    Raises:
        LakeError: it names a table that there is not.
    """
    spark = create_views(lake)
    try:
        return spark.sql(query)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        nearest = get_close_matches(name, [*TABLES, LAKE_VERSION.name, *VIEWS], n=3, cutoff=0.0)
        raise LakeError(f"there is no table or view {name!r}; the nearest known: {', '.join(nearest)}") from error


def consume_lag(lake: Lake) -> DataFrame:
    """The view consume_lag as of the lake's version; only the tables that it reads are opened."""
    for table in CONSUME_LAG_TABLES:
        lake.create_view(table)
    lake.spark.sql(view_sql("consume_lag"))
    return lake.spark.table("consume_lag")
