"""Define a lake's tables, views and SQL functions in its session, and run queries on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pipeline.lake.asking import AskAll, Row
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.session import temporary_settings
from pipeline.schema.tables import BROKER, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, CONSUMER_OFFSET, LAKE_VERSION, QUEUE, TABLES
from pipeline.settings.settings import nearest
from pipeline.sql.statements import FUNCTIONS, VIEWS, view_sql
from udfs.sql_functions import function_names, require_functions

_WORD = re.compile(r"\w+")
# literals and comments
_NO_NAMES = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
# Spark's error conditions for an unknown name
_NOT_FOUND = {"TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_ROUTINE", "UNRESOLVABLE_TABLE_VALUED_FUNCTION"}
# tables that the view consume_lag reads
CONSUME_LAG_TABLES = (BROKER, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, CONSUMER_OFFSET, QUEUE)


def create_views(lake: Lake, query: str | None = None) -> SparkSession:
    """Define the lake's tables, views and functions in its session.

    Args:
        lake: the lake, at the version to be read.
        query: SQL text; only names in this text, and names that they depend on, are defined. None defines all, which takes seconds.
    """
    names = _known() if query is None else _named(query)
    if names & function_names():
        require_functions(lake.spark)
    for table in TABLES.values():
        if table.name in names:
            lake.create_view(table)
    if LAKE_VERSION.name in names and lake.at.version:
        lake.versions().createOrReplaceTempView(LAKE_VERSION.name)
    for name in (*FUNCTIONS, *VIEWS):
        if name in names:
            lake.spark.sql(view_sql(name))
    return lake.spark


def asking(lake: Lake) -> AskAll:
    """Return the function that runs queries on the lake with Spark."""

    def ask_all(queries: Sequence[str]) -> Iterator[Sequence[Row]]:
        spark = create_views(lake, "\n".join(queries))
        return ([row.asDict(recursive=True) for row in spark.sql(query).collect()] for query in queries)

    return ask_all


# so that a table whose name the query builds is no file either
_LAKE_ONLY = {"spark.sql.runSQLOnFiles": "false"}


def ask(lake: Lake, query: str, *, allow_files: bool = False) -> DataFrame:
    """The result of an SQL query over the lake's tables, views and functions.

    Args:
        lake: the lake, at the version to be read.
        query: the SQL text; if files are not allowed, `read_only_sql.check_read_only` has passed it.
        allow_files: whether a file may be named in place of a table.

    Raises:
        LakeError: the query names an unknown table, view or function.
    """
    settings = {} if allow_files else _LAKE_ONLY
    try:
        return _result(create_views(lake, query), query, settings)
    except AnalysisException as error:
        if (name := _not_found(error)) is None:
            raise
        if name.rpartition(".")[2].lower() not in _known():
            raise LakeError(_unknown(lake.spark, error, name)) from error
    try:  # with all names, because the query builds a known name from parts
        return _result(create_views(lake), query, settings)
    except AnalysisException as error:
        if (name := _not_found(error)) is None:
            raise
        raise LakeError(_unknown(lake.spark, error, name)) from error


def _result(spark: SparkSession, query: str, settings: Mapping[str, str]) -> DataFrame:
    with temporary_settings(spark, settings):
        return spark.sql(query)


def _not_found(error: AnalysisException) -> str | None:
    """The name of the table, view or function that Spark did not find; None for all other errors."""
    if error.getCondition() not in _NOT_FOUND:
        return None
    parameters = error.getMessageParameters() or {}
    # "name" for a function that returns rows
    name = next(parameters[key] for key in ("relationName", "routineName", "name") if key in parameters)
    return name.replace("`", "")


def _unknown(spark: SparkSession, error: AnalysisException, name: str) -> str:
    """The message about the unknown name of a table, view or function."""
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        what, known = "table or view", [*TABLES, LAKE_VERSION.name, *VIEWS]
    else:
        what, known = "function", [*FUNCTIONS, *function_names(), *(row[0] for row in spark.sql("SHOW FUNCTIONS").collect())]
    return f"there is no {what} {name!r}; the nearest known: {', '.join(nearest(name, known))}"


def _known() -> set[str]:
    return {*TABLES, LAKE_VERSION.name, *FUNCTIONS, *VIEWS, *function_names()}


def _named(query: str) -> set[str]:
    """Names of the tables, views and functions in an SQL text, and of those that they depend on."""
    known, found, texts = _known(), set[str](), [query]
    while texts:
        words = set(_WORD.findall(_NO_NAMES.sub(" ", texts.pop()).lower()))
        new = (known if "show" in words else known & words) - found
        found |= new
        texts += [view_sql(name) for name in new if name in VIEWS or name in FUNCTIONS]
    return found


def consume_lag(lake: Lake) -> DataFrame:
    """The rows of the view consume_lag at the lake's version; only the tables that the view reads are opened."""
    for table in CONSUME_LAG_TABLES:
        lake.create_view(table)
    lake.spark.sql(view_sql("consume_lag"))
    return lake.spark.table("consume_lag")
