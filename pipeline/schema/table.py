"""A table of a lake: columns with types and comments, and the layout of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["partitioned", "clustered"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: name, Spark SQL type, meaning, and whether it may be NULL."""

    name: str
    type: str
    comment: str
    nullable: bool = False


def nullable(name: str, kind: str, comment: str) -> Column:
    """Return a column that may be NULL."""
    return Column(name, kind, comment, nullable=True)


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta table of the lake.

    Attributes:
        columns: the columns in order; every table has brokerName.
        key: columns whose values are unique together and never NULL; empty if rows may repeat.
        checks: SQL conditions that hold for each row; as in SQL's CHECK, NULL counts as true.
        by_queue: whether the table is laid out by queue: partitioned by (topic, queueId) or clustered by `cluster_by`.
        cluster_by: clustering columns of the clustered layout.
        stats: columns that get file statistics; empty for Delta's choice, the first 32.
        row_group_bytes: uncompressed bytes of a row group of the table's files; a reader skips row groups that it does not need.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    by_queue: bool = False
    cluster_by: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()
    row_group_bytes: int = 64 << 20

    @property
    def schema(self) -> str:
        """Return the columns as a DDL string for readers and mapInArrow."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def constraints(self) -> list[str]:
        """Return the SQL conditions that hold for each row: columns that are never NULL, and the checks."""
        return [*(never_null(column.name) for column in self.columns if not column.nullable), *self.checks]

    @property
    def names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return [column.name for column in self.columns]


def never_null(name: str) -> str:
    """Return the SQL condition of a column that is never NULL."""
    return f"`{name}` IS NOT NULL"


BROKER_NAME = Column("brokerName", "STRING", "broker that the row is about; a slave's store has a broker name of its own")
TOPIC = Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group, %DLQ%group included)")
QUEUE_ID = Column("queueId", "INT", "number of the queue in its topic")
RUN_ID = Column("runId", "STRING", "id of the run that wrote the row")
