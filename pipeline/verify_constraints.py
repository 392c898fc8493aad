"""The constraints of the tables held against the rows of a broker: what is never NULL, and the checks."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake import Lake
from pipeline.table import Table, never_null
from pipeline.tables import TABLES


def broken_constraints(lake: Lake, broker: str) -> DataFrame:
    """Findings (code, path, text): one for each constraint of a table that some rows of the broker break."""
    there = [table for table in TABLES.values() if table.name in lake.at.tables]
    found = [counted(lake.table(table).where(F.col("brokerName") == broker), table) for table in there]
    return reduce(DataFrame.unionByName, found).selectExpr(
        "'TABLE_CONSTRAINT' AS code", "path", "format_string('expected %s, found %,d rows where it is not so', constraint, rows) AS text"
    )


def counted(rows: DataFrame, table: Table) -> DataFrame:
    """How many rows break each constraint of a table: path, constraint, rows; nothing of those that none does.

    A column that the table of an earlier release does not have yet breaks none.
    """
    missing = set(table.names) - set(rows.columns)
    rows = rows.withColumns({column.name: F.lit(None).cast(column.type) for column in table.columns if column.name in missing})
    held = [one for one in table.constraints if one not in set(map(never_null, missing))]
    broken = [F.struct(F.lit(one).alias("constraint"), F.count_if(~F.expr(one)).alias("rows")) for one in held]
    return rows.agg(F.array(*broken).alias("told")).select(F.lit(table.name).alias("path"), F.inline("told")).where("rows > 0")
