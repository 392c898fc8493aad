"""One broker of an opened lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.delta.delta_log import delta_version
from pipeline.delta.small_table import has_plain_path, opened_table
from pipeline.delta.table_rows import Wanted
from pipeline.files.store_files import absolute_path
from pipeline.lake.lake import Lake, LakeError
from pipeline.schema.tables import BROKER, STORE_FILE, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedBroker:
    """A broker by its name, and the lake with the broker's tables; tables are read at the lake's version."""

    lake: Lake
    name: str

    @classmethod
    def of(cls, spark: SparkSession | None, root: str, name: str | None) -> OpenedBroker:
        """The broker `name` of the lake in the directory `root`; the only broker of the lake if `name` is None.

        Raises:
            LakeError: there is no lake, no such broker, or no name was given and there is not exactly one broker.
        """
        lake = Lake(spark, root).require()
        return cls(lake, lake.broker(name))

    def table(self, table: Table) -> DataFrame:
        """The rows of `table` that belong to the broker, with all columns; no rows if the table was never written."""
        return self.lake.table(table).where(self.is_mine)

    def remembered(self, what: str, tables: Sequence[Table], make: Callable[[], T]) -> T:
        """The result of `make` for this broker; `make` is called again only when one of `tables` has another version."""
        return self.lake.remembered(f"{what} of {self.name}", tables, make)

    @property
    def is_mine(self) -> Column:
        """Whether a row of some table or view is the broker's."""
        return F.col("brokerName") == self.name

    def rows(self, table: Table, condition: pc.Expression | None = None) -> pa.Table:
        """The broker's rows of a small table that fulfil `condition`, read by the driver."""
        mine = pc.field("brokerName") == self.name
        return self.lake.rows(table).filter(mine if condition is None else mine & condition)

    def rows_with(self, table: Table, wanted: Wanted, columns: Sequence[str] | None = None, any_of: Sequence[Wanted] = ()) -> pa.Table:
        """The broker's rows with wanted values of a table of any size, read by the driver without Spark.

        Args:
            table: the table.
            wanted: as for `table_rows.rows_with`.
            columns: the columns of the result; None for all.
            any_of: as for `table_rows.rows_with`.

        Raises:
            NoSessionError: only Spark can read the table.
            LakeError: the table's log or one of its files is damaged.
        """
        return self.lake.rows_with(table, {"brokerName": [self.name], **wanted}, columns or table.names, any_of)

    def row(self) -> dict[str, Any] | None:
        """The broker's row of `broker`; None if no store was imported under the name."""
        return next(iter(self.rows(BROKER).to_pylist()), None)

    def properties(self) -> dict[str, str]:
        """The settings that the broker was imported with, as texts; settings of file lengths and file names are those of the store."""
        row = self.row()
        return {} if row is None else dict(row["properties"] or ())

    def is_as_found(self) -> bool:
        """Whether the store was imported with --as-found, so that the tables are not what the broker's start makes of the store."""
        row = self.row()
        return row is not None and bool(row["asFound"])

    def require_started(self) -> None:
        """Check that the store was not imported with --as-found.

        Raises:
            LakeError: the store was imported with --as-found.
        """
        if self.is_as_found():
            raise self.not_started()

    def require_files(self) -> dict[str, Any]:
        """The broker's row of `broker`.

        Raises:
            LakeError: the tables lack some file of the store: it was imported by an older release, or followed since the import.
        """
        row, root = self.row(), self.lake.root
        if row is None or "path" not in self.lake.columns(STORE_FILE):
            raise LakeError(f"{root}: expected every file of broker {self.name!r} in store_file, found a part; import the store again")
        if row["followedFrom"] is not None:
            raise LakeError(f"{root}: expected a store that was imported as a whole, found {self.name!r} followed; import it again")
        return row

    def not_started(self) -> LakeError:
        """The error about a store that was imported with --as-found."""
        root, name = self.lake.root, self.name
        return LakeError(f"{root}: expected a store as its start leaves it, found {name!r} as found; import it without --as-found")


def require_broker(root: str, name: str) -> None:
    """Check, before Spark is started, that the lake has an imported broker; a lake that only Spark reads is not checked.

    Args:
        root: local directory or URI of the lake.
        name: name of the broker.

    Raises:
        LakeError: there is no such broker.
    """
    path = f"{absolute_path(root).rstrip('/')}/{BROKER.name}"
    if has_plain_path(path) and delta_version(path) is not None and opened_table(path) is not None:
        Lake(None, root).require().broker(name)
