"""One broker of an opened lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake import Lake
from pipeline.schema.tables import Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedBroker:
    """A broker by its name, and the lake that holds the broker's tables; the lake decides at which version the tables are read."""

    lake: Lake
    name: str

    def table(self, table: Table) -> DataFrame:
        """The rows of `table` that belong to the broker, with all columns; no rows where the table was never written."""
        return self.lake.table(table).where(F.col("brokerName") == self.name)

    def remembered(self, what: str, tables: Sequence[Table], make: Callable[[], T]) -> T:
        """The result of `make` for this broker; `make` is called again only when one of `tables` has another version."""
        return self.lake.remembered(f"{what} of {self.name}", tables, make)
