"""Work that is divided among tasks of Spark, or that this process does itself if the work is too small for the start of a session.

The functions that make the rows are the same in both cases: they take Arrow batches and return Arrow batches.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.schema.arrow_types import arrow_of
from pipeline.tasks.computed_once import computed_once
from pipeline.tasks.local_rows import frame_of
from pipeline.tasks.running import one_by_one

Item = TypeVar("Item")
Batches = Iterator[pa.RecordBatch]
# batches of a task's rows -> batches of the rows made from them
Make = Callable[[Batches], Batches]

# most threads of this process that make rows of one table: each holds some 250 MB
_THREADS_MOST = 4
_ITEM = "id"
_ITEMS_ARROW = pa.schema([(_ITEM, pa.int64())])


class NoSessionError(Exception):
    """Something needs Spark, and there is no session. An import that raises it has committed nothing."""


class StoppedError(Exception):
    """`Tasks.cancel` was called before work of this process was complete."""


class Work(Protocol):
    """Rows in partitions, each of which is the work of a task."""

    @property
    def stop(self) -> threading.Event | None:
        """The event that is set when the work is to end; None if the end of the session ends the work."""
        ...

    def select(self, names: Sequence[str]) -> Self:
        """The columns of these names."""
        ...

    def mapped(self, make: Make, schema: str) -> Self:
        """The rows that `make` makes from each partition; `schema` has their columns as DDL."""
        ...

    def spread(self, parts: int) -> Self:
        """The rows in about equal partitions."""
        ...

    def ordered(self, parts: int, by: Sequence[str]) -> Self:
        """The rows ordered by columns, in about equal partitions."""
        ...

    def grouped(self, key: Sequence[str], then_by: Sequence[str]) -> Self:
        """The rows, partitioned by the columns `key`; each partition is ordered by `key`, then by `then_by`."""
        ...

    def part(self, name: str, columns: Sequence[str], same: Mapping[str, str]) -> Self:
        """The fields `columns` of the struct column `name`, from rows in which it is not NULL; fields in `same` have that text instead."""
        ...

    def distinct(self, key: Sequence[str]) -> Self:
        """One row for each value of the columns `key`."""
        ...

    def summed(self, key: Sequence[str], column: str) -> Self:
        """One row for each value of the columns `key`, with the sum of a column of integers."""
        ...

    def with_set(self, key: str, column: str, name: str) -> Self:
        """The rows with a further column `name`: all values that `column` has in the rows with the same `key`."""
        ...

    def joined(self, other: Self) -> Self:
        """The rows of both."""
        ...

    def once(self) -> Self:
        """The rows, which are made once, at the latest with their first use."""
        ...

    def rows(self, at_most: int | None = None) -> list[dict[str, Any]]:
        """The rows, which must be few, in the order of partitions; `at_most` of them if there are more."""
        ...

    def each(self) -> Iterator[dict[str, Any]]:
        """The rows, one after the other, in the order of partitions."""
        ...

    @property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame.

        Raises:
            NoSessionError: there is no session.
        """
        ...


class Tasks(Protocol):
    """What does the work: tasks of a Spark session, or this process."""

    @property
    def parallelism(self) -> int:
        """The number of tasks that keep all cores busy."""
        ...

    def of_items(self, items: Sequence[object]) -> Work:
        """A row for each item, each in a task of its own; `items_of` finds the items of a task's rows."""
        ...

    def at_once(self, items: Sequence[object]) -> Sequence[Work]:
        """The rows of `of_items` in parts that may run at the same time, each only once; one part if tasks of Spark divide the rows."""
        ...

    def of_rows(self, rows: pa.Table) -> Work:
        """Rows that this process has."""
        ...

    def cancel(self) -> None:
        """End the work that other threads of this process do: each raises StoppedError at its next batch of rows."""
        ...


@contextmanager
def threads(tasks: Tasks, most: int) -> Iterator[ThreadPoolExecutor]:
    """Yield threads for the block's work; an error of the block, such as Ctrl-C before all work is handed out, cancels the work."""
    pool = ThreadPoolExecutor(most)
    try:
        yield pool
    except BaseException:
        tasks.cancel()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def items_of(work: Batches, items: Sequence[Item]) -> Iterator[Item]:
    """The items of a task, whose rows of `Tasks.of_items` are `work`."""
    return (items[index] for batch in work for index in batch.column(_ITEM).to_pylist())


def of_items(tasks: Tasks, items: Sequence[Item], rows_of: Callable[[Item], Iterable[pa.RecordBatch]], schema: str) -> Work:
    """The rows that `rows_of` makes from each item, in the order of the items; `schema` has their columns as DDL."""
    return tasks.of_items(items).mapped(partial(_rows_of_items, items, rows_of), schema)


def _rows_of_items(items: Sequence[Item], rows_of: Callable[[Item], Iterable[pa.RecordBatch]], work: Batches) -> Batches:
    return (found for item in items_of(work, items) for found in rows_of(item))


# tasks of Spark -----------------------------------------------------------------------------------------------------------------------


def spark_parallelism(spark: SparkSession) -> int:
    """The number of tasks after a shuffle in this session; 8 if the session does not set it."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 8)


@dataclass(frozen=True, slots=True)
class SparkWork:
    """The rows of a DataFrame."""

    frame: DataFrame

    @property
    def stop(self) -> None:
        """As Work says."""
        return

    def select(self, names: Sequence[str]) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.select(*names))

    def mapped(self, make: Make, schema: str) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.mapInArrow(make, schema))

    def spread(self, parts: int) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.repartition(parts))

    def ordered(self, parts: int, by: Sequence[str]) -> SparkWork:
        """As Work says."""
        spread = self.frame.coalesce(1) if parts == 1 else self.frame.repartitionByRange(parts, *by)
        return SparkWork(spread.sortWithinPartitions(*by))

    def grouped(self, key: Sequence[str], then_by: Sequence[str]) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.repartition(*key).sortWithinPartitions(*key, *then_by))

    def part(self, name: str, columns: Sequence[str], same: Mapping[str, str]) -> SparkWork:
        """As Work says."""
        found = [F.lit(same[one]).alias(one) if one in same else F.col(f"{name}.{one}") for one in columns]
        return SparkWork(self.frame.where(F.col(name).isNotNull()).select(*found))

    def distinct(self, key: Sequence[str]) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.dropDuplicates([*key]))

    def summed(self, key: Sequence[str], column: str) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.groupBy(*key).agg(F.sum(column).alias(column)))

    def with_set(self, key: str, column: str, name: str) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.withColumn(name, F.collect_set(column).over(Window.partitionBy(key))))

    def joined(self, other: SparkWork) -> SparkWork:
        """As Work says."""
        return SparkWork(self.frame.unionByName(other.frame))

    def once(self) -> SparkWork:
        """As Work says."""
        return SparkWork(computed_once(self.frame, eager=False))

    def rows(self, at_most: int | None = None) -> list[dict[str, Any]]:
        """As Work says."""
        return [row.asDict() for row in (self.frame if at_most is None else self.frame.limit(at_most)).collect()]

    def each(self) -> Iterator[dict[str, Any]]:
        """As Work says."""
        return (row.asDict() for row in self.frame.toLocalIterator())


@dataclass(frozen=True, slots=True)
class SparkTasks:
    """The tasks of a session."""

    spark: SparkSession

    @property
    def parallelism(self) -> int:
        """As Tasks says."""
        return spark_parallelism(self.spark)

    def of_items(self, items: Sequence[object]) -> SparkWork:
        """As Tasks says."""
        return SparkWork(self.spark.range(0, len(items), 1, max(len(items), 1)))

    def at_once(self, items: Sequence[object]) -> list[SparkWork]:
        """As Tasks says."""
        return [self.of_items(items)]

    def of_rows(self, rows: pa.Table) -> SparkWork:
        """As Tasks says."""
        return SparkWork(frame_of(self.spark, rows))

    def cancel(self) -> None:
        """As Tasks says; the end of the session ends the jobs."""


# this process -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriverWork:
    """Rows in one partition, which this process makes again for each use."""

    schema: pa.Schema
    batches: Callable[[], Batches]
    stop: threading.Event

    def select(self, names: Sequence[str]) -> DriverWork:
        """As Work says."""
        schema = pa.schema([self.schema.field(name) for name in names])
        return DriverWork(schema, lambda: (batch.select([*names]) for batch in self.batches()), self.stop)

    def mapped(self, make: Make, schema: str) -> DriverWork:
        """As Work says."""
        typed = arrow_of(schema)
        return DriverWork(typed, lambda: (_typed(batch, typed) for batch in until(self.stop, make(self.batches()))), self.stop)

    def spread(self, parts: int) -> DriverWork:
        """As Work says."""
        return self

    def ordered(self, parts: int, by: Sequence[str]) -> DriverWork:
        """As Work says."""
        return replace(self, batches=lambda: iter(self.table().sort_by([(name, "ascending") for name in by]).to_batches()))

    def grouped(self, key: Sequence[str], then_by: Sequence[str]) -> DriverWork:
        """As Work says."""
        return self.ordered(1, [*key, *then_by])

    def part(self, name: str, columns: Sequence[str], same: Mapping[str, str]) -> DriverWork:
        """As Work says."""
        fields = {field.name: field for field in self.schema.field(name).type}
        schema = pa.schema([pa.field(one, pa.string()) if one in same else fields[one] for one in columns])

        def batches() -> Batches:
            for batch in self.batches():
                found = pa.RecordBatch.from_struct_array(batch.column(name).drop_null())
                values = [pa.repeat(same[one], len(found)) if one in same else found.column(one) for one in columns]
                yield pa.RecordBatch.from_arrays(values, schema=schema)

        return replace(self, schema=schema, batches=batches)

    def distinct(self, key: Sequence[str]) -> DriverWork:
        """As Work says."""
        return replace(self, batches=lambda: iter(_first_rows(self.table(), key).to_batches()))

    def summed(self, key: Sequence[str], column: str) -> DriverWork:
        """As Work says."""
        schema = pa.schema([self.schema.field(name) for name in (*key, column)])

        def batches() -> Batches:
            sums = self.table().group_by([*key], use_threads=False).aggregate([(column, "sum")])
            return iter(sums.rename_columns(schema.names).cast(schema).to_batches())

        return replace(self, schema=schema, batches=batches)

    def with_set(self, key: str, column: str, name: str) -> DriverWork:
        """As Work says."""
        schema = self.schema.append(pa.field(name, pa.list_(self.schema.field(column).type)))

        def batches() -> Batches:
            rows = self.table()
            keys = rows[key].to_pylist()
            sets: dict[Any, set[Any]] = defaultdict(set)
            for found, value in zip(keys, rows[column].to_pylist(), strict=True):
                sets[found].add(value)
            values = pa.array([sorted(sets[found]) for found in keys], schema.field(name).type)
            return iter(rows.append_column(schema.field(name), values).to_batches())

        return replace(self, schema=schema, batches=batches)

    def joined(self, other: DriverWork) -> DriverWork:
        """As Work says."""
        names = self.schema.names
        return replace(self, batches=lambda: chain(self.batches(), (_typed(batch.select(names), self.schema) for batch in other.batches())))

    def once(self) -> DriverWork:
        """As Work says; the rows are made now, because they are few."""
        made = [*self.batches()]
        return replace(self, batches=lambda: iter(made))

    def rows(self, at_most: int | None = None) -> list[dict[str, Any]]:
        """As Work says."""
        return [*islice(self.each(), at_most)]

    def each(self) -> Iterator[dict[str, Any]]:
        """As Work says."""
        return (row for batch in self.batches() for row in batch.to_pylist())

    @property
    def frame(self) -> DataFrame:
        """As Work says."""
        raise NoSessionError("rows of this process would have to become a DataFrame")

    def table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.batches(), self.schema)


def until(stop: threading.Event, rows: Iterator[Item]) -> Iterator[Item]:
    """Yield the rows; before each row, check whether `stop` is set.

    Raises:
        StoppedError: `stop` is set.
    """
    for row in rows:
        if stop.is_set():
            raise StoppedError
        yield row


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the types of `schema`. It must have the columns of `schema` in their order, in which Spark takes a task's columns."""
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def _first_rows(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    place = pa.array(np.arange(len(rows)))
    first = rows.select([*key]).append_column("_place", place).group_by([*key], use_threads=False).aggregate([("_place", "min")])
    return rows.take(first["_place_min"].combine_chunks().sort())


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Turns(Iterator[Item]):
    """An iterator that several threads share: each item goes to one of them."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items, self._lock = items, threading.Lock()

    def __next__(self) -> Item:
        with self._lock:
            return next(self._items)


def _row_of_item(index: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([index])], schema=_ITEMS_ARROW)


@dataclass(frozen=True, slots=True)
class DriverTasks:
    """This process."""

    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def parallelism(self) -> int:
        """As Tasks says: a number of threads, which run at the same time because kernels and pyarrow release Python's lock."""
        return min(_cores(), _THREADS_MOST)

    def of_items(self, items: Sequence[object]) -> DriverWork:
        """As Tasks says."""
        each = range(len(items))
        return DriverWork(_ITEMS_ARROW, lambda: map(_row_of_item, one_by_one(each)), self._stop)

    def at_once(self, items: Sequence[object]) -> list[DriverWork]:
        """As Tasks says: one part for each thread, which takes the next item when it has finished one."""
        turns = _Turns(one_by_one(range(len(items))))
        return [DriverWork(_ITEMS_ARROW, lambda: map(_row_of_item, turns), self._stop) for _ in range(self.parallelism)]

    def of_rows(self, rows: pa.Table) -> DriverWork:
        """As Tasks says."""
        return DriverWork(rows.schema, lambda: iter(rows.to_batches()), self._stop)

    def cancel(self) -> None:
        """As Tasks says."""
        self._stop.set()
