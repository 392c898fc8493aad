"""The last row of a broker in a large table, read without Spark if the table's files alone have its rows."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipeline.delta.small_table import files_with, greatest_in_files
from pipeline.lake.data_files import parquet_file, plain_table
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema.table import Table


def last_row(broker: OpenedBroker, table: Table, columns: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The values of `columns` in the broker's row with the greatest value of the first column; None if the broker has no row.

    Args:
        broker: the broker.
        table: the table.
        columns: names of columns; the first one is a number that no two rows of the broker share.

    Raises:
        StoreError: a data file cannot be read.
        LakeError: the table's log is damaged.
    """
    if table.name not in broker.lake.at.tables:
        return None
    opened = plain_table(broker.lake, table)
    if opened is None:
        asked = broker.table(table).agg(F.max(F.struct(*columns)).alias("last")).first()
        return asked and asked["last"] and tuple(asked["last"])
    greatest = greatest_in_files(opened, columns[0])
    # files without statistics come first: each of them has to be read
    paths = sorted(files_with(opened, "brokerName", broker.name), key=lambda path: (greatest[path] is not None, -(greatest[path] or 0)))
    found: tuple[Any, ...] | None = None
    for path in paths:
        most = greatest[path]
        if found is not None and most is not None and most <= found[0]:
            break
        here = _last_of_file(f"{broker.lake.path(table.name)}/{path}", broker.name, columns)
        found = max(filter(None, (found, here)), default=None)
    return found


def _last_of_file(path: str, broker: str, columns: tuple[str, ...]) -> tuple[Any, ...] | None:
    with parquet_file(path) as file:
        rows = pq.read_table(file, columns=["brokerName", *columns], partitioning=None, page_checksum_verification=True)
    ours = rows.filter(pc.equal(rows["brokerName"], broker))
    if not len(ours):
        return None
    place = pc.index(ours[columns[0]], pc.max(ours[columns[0]])).as_py()
    return tuple(ours[name][place].as_py() for name in columns)
