"""Packed requests meet what they need of the store by following it in a task.

The row that holds it comes before all packed rows of its key, however many these are, and goes to Python once: a join would send it with
each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.requests.packing import REQUEST_BYTES, ROW_REQUESTS, Packed


class Colocated(NamedTuple):
    """Requests of one queue and key with the row of the store that has the key, if there is one.

    Attributes:
        row: the packed row that the requests came in, or the first of several.
    """

    stored: dict[str, Any] | None
    row: dict[str, Any]
    packed: Packed


def after_stored(stored: DataFrame, packed: DataFrame, key: tuple[str, ...], *then_by: str) -> DataFrame:
    """Packed rows, those of one key behind the row of `stored` that has it, if there is one, and in the order of more columns."""
    both = packed.unionByName(stored, allowMissingColumns=True)
    return both.repartition(*key).sortWithinPartitions(*key, F.expr("requests IS NOT NULL"), *then_by)


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows of batches, one after the other."""
    return (row for batch in batches for row in batch.to_pylist())


def colocated(rows: Iterator[dict[str, Any]], key: tuple[str, ...], *then_by: str) -> Iterator[Colocated]:
    """What rows in the order of `after_stored` say; many small packed rows of one queue are joined, for each costs time by itself.

    Args:
        rows: these.
        key: as `after_stored` has it.
        then_by: names of columns; rows in which these differ are not joined, as little as those of two queues.
    """
    for _, of_key in groupby(rows, key=itemgetter(*key)):
        stored: dict[str, Any] | None = None
        for (asks, *_), alike in groupby(of_key, key=lambda row: (row["requests"] is not None, *(row.get(name) for name in then_by))):
            if not asks:
                stored = next(alike)
                continue
            for together in _bounded(alike):
                yield Colocated(stored, together[0], Packed.joined([Packed.of(row) for row in together]))


def _bounded(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Packed rows, as many together as have about the requests of a full one."""
    together: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        together.append(row)
        size += len(row["requests"])
        if size >= ROW_REQUESTS * REQUEST_BYTES:
            yield together
            together, size = [], 0
    if together:
        yield together
