"""What a table of a lake is: columns with types and comments, and how its rows lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["partitioned", "clustered"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: name, Spark SQL type, what it means, whether it may be NULL."""

    name: str
    type: str
    comment: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A Delta table of the lake.

    Attributes:
        columns: in order; one of every table is brokerName.
        key: columns that no two rows have the same values in, and that are never NULL; empty where rows may repeat.
        checks: conditions of SQL that hold for each row; like those of SQL's CHECK they also hold where they come to NULL.
        by_queue: laid out by queue: partitioned by (topic, queueId) or clustered by `cluster_by`.
        cluster_by: clustering columns of the clustered layout.
        stats: columns that get file statistics; empty for Delta's choice, the first 32.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    by_queue: bool = False
    cluster_by: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """The columns as a DDL string for readers and mapInArrow."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    @property
    def constraints(self) -> list[str]:
        """All that holds for each row by itself, as conditions of SQL: what is never NULL, and the checks."""
        return [*(never_null(column.name) for column in self.columns if not column.nullable), *self.checks]

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]


def never_null(name: str) -> str:
    """The constraint on a column that is never NULL, as a condition of SQL."""
    return f"`{name}` IS NOT NULL"


BROKER_NAME = Column("brokerName", "STRING", "broker whose store it is; a slave's store has a name of its own")
TOPIC = Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group, %DLQ%group included)")
QUEUE_ID = Column("queueId", "INT", "queue of the topic")
RUN_ID = Column("runId", "STRING", "the run that wrote the row")
