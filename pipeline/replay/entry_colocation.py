"""Bring packed requests and the stored rows that they need into one task: the stored rows of a key precede its requests.

A join would send the stored row, with thousands of entries, to Python once for each packed row. Here it is sent once for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.requests.packing import REQUEST_BYTES, ROW_REQUESTS, Packed

Row = dict[str, Any]


class Colocated(NamedTuple):
    """Packed requests of one key, with the stored rows of this key.

    Attributes:
        stored: the stored rows, the same object for all requests of the key; empty if no stored row has the key.
        row: the packed row that had the requests; the first one, if several were joined.
        packed: the requests.
    """

    stored: tuple[Row, ...]
    row: Row
    packed: Packed


def after_stored(stored: DataFrame, packed: DataFrame, key: tuple[str, ...], *then_by: str) -> DataFrame:
    """Sort packed requests so that the stored rows of each key precede its requests, all in one task.

    Args:
        stored: rows with the key, which one task can hold.
        packed: packed rows.
        key: names of the columns that both have.
        then_by: further columns to sort the rows of a key by, the stored ones and the packed ones.
    """
    both = packed.unionByName(stored, allowMissingColumns=True)
    return both.repartition(*key).sortWithinPartitions(*key, F.expr("requests IS NOT NULL"), *then_by)


def rows_in_order(stored: Iterable[Row], packed: Iterable[Row], key: tuple[str, ...], *then_by: str) -> list[Row]:
    """As `after_stored`, for few rows that the driver has."""

    def place(row: Row) -> tuple[Any, ...]:
        values = [row.get(name) for name in then_by]  # NULL comes first, as in Spark
        return *(row[name] for name in key), row["requests"] is not None, *((value is not None, value) for value in values)

    return sorted([*({"requests": None} | row for row in stored), *packed], key=place)


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of Arrow batches, as dicts."""
    return (row for batch in batches for row in batch.to_pylist())


def by_rows(step: Callable[[Iterator[Row]], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply a step to the rows of a task's batches."""
    return step(rows_of(batches))


def colocated(rows: Iterable[Row], key: tuple[str, ...], *then_by: str) -> Iterator[Colocated]:
    """Read rows in the order of `after_stored`: packed requests, each with the stored rows of their key.

    Small packed rows of one key are joined, because each call of the kernel has a fixed cost.

    Args:
        rows: stored and packed rows, as `after_stored` sorts them.
        key: as for `after_stored`.
        then_by: columns that must be equal in packed rows that are joined.
    """
    for _, of_key in groupby(rows, key=itemgetter(*key)):
        stored: tuple[Row, ...] = ()
        for (is_packed, *_), alike in groupby(of_key, key=lambda row: (row["requests"] is not None, *(row.get(name) for name in then_by))):
            if not is_packed:
                stored = tuple(alike)
                continue
            for together in _bounded(alike):
                yield Colocated(stored, together[0], Packed.joined([Packed.of(row) for row in together]))


def _bounded(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Group packed rows into lists, each with about as many requests as one full packed row."""
    together: list[Row] = []
    size = 0
    for row in rows:
        together.append(row)
        size += len(row["requests"])
        if size >= ROW_REQUESTS * REQUEST_BYTES:
            yield together
            together, size = [], 0
    if together:
        yield together
