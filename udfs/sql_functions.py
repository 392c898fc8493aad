"""The rules as functions of a Spark session, under their SQL names.

A rule that SQL can express is a SQL-defined function, whose text is in the rule's module. Any other rule is a pandas UDF,
which calls the rule's Python function; executors need this package on their path. No other module of the rules imports
Spark.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType, BooleanType, IntegerType

from udfs import sql_kernels
from udfs.filters.sql92_values import NULL, TRUE
from udfs.sql_statements import SQL_FUNCTIONS, sql_statements


def _whole_array(values: Any, dtype: type[np.generic]) -> NDArray[Any] | None:
    """Return an ARRAY value of Arrow as a numpy array; None if it is NULL or has a NULL element."""
    if values is None or pd.isna(values).any():
        return None
    return np.asarray(values).astype(dtype)


def _batch_cut(sizes: Any, in_disk: Any, *numbers: Any) -> int | None:
    known = [None if pd.isna(number) else int(number) for number in numbers]
    return sql_kernels.batch_cut(_whole_array(sizes, np.int64), _whole_array(in_disk, np.bool_), known)


def batch_cut(
    sizes: pd.Series,
    in_disk: pd.Series,
    max_msg_nums: pd.Series,
    max_bytes_in_memory: pd.Series,
    max_count_in_memory: pd.Series,
    max_bytes_in_disk: pd.Series,
    max_count_in_disk: pd.Series,
) -> pd.Series:
    """How many messages one pull takes (`batch_caps.batch_cut`). NULL if an argument or an element is NULL, or max_msg_nums is below 0."""
    columns = (
        sizes,
        in_disk,
        max_msg_nums,
        max_bytes_in_memory,
        max_count_in_memory,
        max_bytes_in_disk,
        max_count_in_disk,
    )
    return pd.Series([_batch_cut(*row) for row in zip(*columns, strict=True)], dtype="Int32")


def sql92_matches(expression: pd.Series, properties: pd.Series) -> pd.Series:
    """Whether a message matches an SQL92 expression (`sql92.matches`). NULL properties mean none; a NULL expression gives NULL."""
    groups, expressions = pd.factorize(expression)
    codes, maps = np.full(len(expression), NULL, np.int8), properties.to_numpy()
    by_expression = np.argsort(groups, kind="stable")
    ends = np.searchsorted(groups[by_expression], np.arange(len(expressions) + 1))
    for one, text in enumerate(expressions):
        rows = by_expression[ends[one] : ends[one + 1]]
        codes[rows] = sql_kernels.sql92_codes(text, list(maps[rows]))
    return pd.Series(pd.arrays.BooleanArray(codes == TRUE, codes < 0))


def uncompress_body(body: pd.Series, sys_flag: pd.Series) -> pd.Series:
    """The body as consumers get it: uncompressed (`message_body.uncompress`) if sys_flag says compressed. NULL if an argument is NULL."""
    rows = zip(body, sys_flag, strict=True)
    bodies = [None if pd.isna(one) or pd.isna(flag) else sql_kernels.uncompressed(one, flag) for one, flag in rows]
    return pd.Series(bodies, dtype=object)


# pyspark's type hints accept only the deprecated form of pandas_udf, with functionType
PANDAS_UDFS: Final = {
    "batch_cut": pandas_udf(batch_cut, IntegerType()),  # type: ignore[call-overload]
    "uncompress_body": pandas_udf(uncompress_body, BinaryType()),  # type: ignore[call-overload]
    "sql92_matches": pandas_udf(sql92_matches, BooleanType()),  # type: ignore[call-overload]
}


def function_names() -> frozenset[str]:
    """Return the names of all functions: those defined in SQL and those in Python."""
    return frozenset({*(function.name for function in SQL_FUNCTIONS), *PANDAS_UDFS})


def has_functions(spark: SparkSession) -> bool:
    """Return whether `register` was called for this session."""
    return spark.catalog.functionExists(list(PANDAS_UDFS)[-1])  # the last one that `register` defines


def require_functions(spark: SparkSession) -> None:
    """Define all functions for this session, unless it has them; the session of a command starts without them."""
    if not has_functions(spark):
        register(spark)


def register(spark: SparkSession) -> None:
    """Define all functions for this session, replacing any functions of the same names."""
    for statement in sql_statements():
        spark.sql(statement)
    for name, function in PANDAS_UDFS.items():
        spark.udf.register(name, function)
