"""Finds the rows of a broker that break a constraint of their table: a NULL in a column that must not have any, or a check that fails."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema.table import Table, never_null
from pipeline.schema.tables import TABLES


def broken_constraints(broker: OpenedBroker) -> DataFrame:
    """Findings (code, path, text): one for each constraint of a table that rows of the broker break.

    One query finds the tables with a row that breaks any constraint. A query of each of these tables then counts the rows by constraint.
    """
    there = {table.name: broker.table(table) for table in TABLES.values() if table.name in broker.lake.at.tables}
    some = []
    for name, rows in there.items():
        breaks = " OR ".join(f"NOT ({one})" for one in _held(rows, TABLES[name]))
        some.append(_with_all_columns(rows, TABLES[name]).where(breaks).limit(1).select(F.lit(name).alias("path")))
    names = [row["path"] for row in reduce(DataFrame.unionByName, some).collect()]
    nothing = broker.lake.spark.createDataFrame([], "path STRING, constraint STRING, rows BIGINT")
    found = [counted(there[name], TABLES[name]) for name in names]
    return reduce(DataFrame.unionByName, found, nothing).selectExpr(
        "'TABLE_CONSTRAINT' AS code", "path", "format_string('expected %s, found %,d rows where it is not so', constraint, rows) AS text"
    )


def counted(rows: DataFrame, table: Table) -> DataFrame:
    """The number of rows that break each constraint of a table: path, constraint, rows. A constraint that no row breaks is left out."""
    broken = [F.struct(F.lit(one).alias("constraint"), F.count_if(~F.expr(one)).alias("rows")) for one in _held(rows, table)]
    return (
        _with_all_columns(rows, table)
        .agg(F.array(*broken).alias("told"))
        .select(F.lit(table.name).alias("path"), F.inline("told"))
        .where("rows > 0")
    )


def _held(rows: DataFrame, table: Table) -> list[str]:
    """The constraints to check. The table of an earlier release may lack a column; its NOT NULL constraint is left out."""
    return [one for one in table.constraints if one not in {never_null(name) for name in set(table.names) - set(rows.columns)}]


def _with_all_columns(rows: DataFrame, table: Table) -> DataFrame:
    missing = [column for column in table.columns if column.name not in rows.columns]
    return rows.withColumns({column.name: F.lit(None).cast(column.type) for column in missing}) if missing else rows
