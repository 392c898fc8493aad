"""The rules that SQL can express, as statements that define SQL functions.

This module needs no Spark: the build of a wheel reads the statements too.
"""

from __future__ import annotations

from typing import Final

from udfs.broker import schedule
from udfs.filters import tags
from udfs.pull import offset_correction, pull_result

SQL_FUNCTIONS: Final = (
    *offset_correction.SQL_FUNCTIONS,
    *pull_result.SQL_FUNCTIONS,
    *tags.SQL_FUNCTIONS,
    *schedule.SQL_FUNCTIONS,
)


def sql_statements() -> list[str]:
    """Return the statements that define the SQL-defined functions for a session, without the semicolons of an init file."""
    return [function.statement for function in SQL_FUNCTIONS]
