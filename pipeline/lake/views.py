"""The lake as SQL: every table and view under its name, and the functions of the broker's rules."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipeline.lake.lake import Lake, LakeError
from pipeline.schema.tables import BROKER, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, CONSUMER_OFFSET, LAKE_VERSION, QUEUE, TABLES
from pipeline.settings.settings import nearest
from pipeline.sql.statements import FUNCTIONS, VIEWS, view_sql
from udfs.sql_functions import has_functions, register

_WORD = re.compile(r"\w+")
# literals and comments
_NO_NAMES = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
# what Spark says of a name that it does not know
_NOT_FOUND = {"TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_ROUTINE", "UNRESOLVABLE_TABLE_VALUED_FUNCTION"}
# what consume_lag reads
CONSUME_LAG_TABLES = (BROKER, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, CONSUMER_OFFSET, QUEUE)


def create_views(lake: Lake, query: str | None = None) -> SparkSession:
    """Define the lake's tables, views and functions in its session.

    Args:
        lake: at the version to be read.
        query: define only what this text of SQL names, and what that is made of; opening all tables takes seconds.
    """
    names = {*TABLES, LAKE_VERSION.name, *FUNCTIONS, *VIEWS} if query is None else _named(query)
    if not has_functions(lake.spark):
        register(lake.spark)
    for table in TABLES.values():
        if table.name in names:
            lake.create_view(table)
    if LAKE_VERSION.name in names and lake.at.version:
        lake.versions().createOrReplaceTempView(LAKE_VERSION.name)
    for name in (*FUNCTIONS, *VIEWS):
        if name in names:
            lake.spark.sql(view_sql(name))
    return lake.spark


def ask(lake: Lake, query: str) -> DataFrame:
    """What a query of SQL over tables, views and functions gives.

    Raises:
        LakeError: it names a table that there is not.
    """
    try:
        return create_views(lake, query).sql(query)
    except AnalysisException as error:
        if error.getCondition() not in _NOT_FOUND:
            raise
    try:  # a name may be put together
        return create_views(lake).sql(query)
    except AnalysisException as error:
        if (unknown := _unknown(lake.spark, error)) is None:
            raise
        raise LakeError(unknown) from error


def _unknown(spark: SparkSession, error: AnalysisException) -> str | None:
    """What to say of a table, a view or a function that there is not; None for all other errors."""
    if error.getCondition() not in _NOT_FOUND:
        return None
    told = {key: value.replace("`", "") for key, value in (error.getMessageParameters() or {}).items()}
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        what, name, known = "table or view", told["relationName"], [*TABLES, LAKE_VERSION.name, *VIEWS]
    else:
        what, name = "function", told.get("routineName") or told["name"]  # the latter of one that gives rows
        known = [*FUNCTIONS, *(row[0] for row in spark.sql("SHOW FUNCTIONS").collect())]
    return f"there is no {what} {name!r}; the nearest known: {', '.join(nearest(name, known))}"


def _named(query: str) -> set[str]:
    """The tables, views and functions that a text names, and all that these are made of."""
    known, found, texts = {*TABLES, LAKE_VERSION.name, *FUNCTIONS, *VIEWS}, set[str](), [query]
    while texts:
        words = set(_WORD.findall(_NO_NAMES.sub(" ", texts.pop()).lower()))
        new = (known if "show" in words else known & words) - found
        found |= new
        texts += [view_sql(name) for name in new if name in VIEWS or name in FUNCTIONS]
    return found


def consume_lag(lake: Lake) -> DataFrame:
    """The view consume_lag as of the lake's version; only the tables that it reads are opened."""
    for table in CONSUME_LAG_TABLES:
        lake.create_view(table)
    lake.spark.sql(view_sql("consume_lag"))
    return lake.spark.table("consume_lag")
