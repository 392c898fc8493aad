"""Let the answering tasks read the entries themselves, from the Parquet files of consume_queue_segment.

This is done when requests need at least a quarter of the segments in the files. Each task gets the requests of a range of segments, in
the order of the files, and reads each segment once. Only requests are shuffled, and the ranges are about equal in work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.files.store_files import filesystem_of
from pipeline.lake.data_files import FOOTERS_AT_ONCE, named_in_errors, parquet_file, plain_files
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import tasks_at_once
from pipeline.replay.touched_segments import TouchedSegments
from pipeline.schema import tables as t
from pipeline.tasks.local_rows import frame_of

Rows = Iterator[dict[str, Any]]

# if at least this part of the segments in the files is needed, it is cheaper to read the files as a whole
_LEAST_PART = 1 / 4
# most files, and most segments, whose places the driver keeps
_MOST_FILES, _MOST_SEGMENTS = 1_000, 100_000
# reading a segment takes as long as answering this many requests
_REQUESTS_A_SEGMENT = 8
# most requests of a task, so that no task runs for long
_REQUESTS_A_TASK = 1 << 17
_SEGMENT = ["topic", "queueId", "segment"]
_BLOCK = ["firstQueueOffset", "entryCount", "entries", "extUnits"]
_ROWS_AT_ONCE = 16
# a place is (number of a file << _ROW_BITS) + number of a row in it
_ROW_BITS = 32


@dataclass(frozen=True, slots=True)
class SegmentTasks:
    """Which task reads which segments.

    Attributes:
        paths: paths of the Parquet files.
        segments: topic, queueId, key, place and task of each touched segment.
        count: number of tasks.
    """

    paths: tuple[str, ...]
    segments: pa.Table
    count: int

    def before(self, placed: DataFrame, key: Sequence[str], *then_by: str) -> DataFrame:
        """Send each packed row to the task that reads its segment, sorted by place, key and `then_by`.

        Rows whose segment does not exist go to any task.
        """
        segments = F.broadcast(frame_of(placed.sparkSession, self.segments))
        found = placed.join(segments, ["topic", "queueId", "key"], "left")
        task = F.coalesce("task", F.pmod(F.hash("topic", "queueId"), F.lit(self.count)))
        return found.repartitionById(self.count, task).sortWithinPartitions("place", *key, *then_by)


def segment_tasks(broker: OpenedBroker, touched: TouchedSegments) -> SegmentTasks | None:
    """The tasks that read the touched segments; None if Spark reads them instead.

    Spark reads the segments if they are unknown, few, or a small part of their files; if requests need whole queue files; if tasks cannot
    read the files; or if there are too many files or segments.
    """
    if touched.known is None or touched.few or touched.name != "segment":
        return None
    files = broker.remembered("segment files", [t.CONSUME_QUEUE_SEGMENT], lambda: _SegmentFiles.of(broker))
    return files.tasks(touched.known, tasks_at_once(broker.lake.spark)) if files else None


@dataclass(frozen=True, slots=True)
class _SegmentFiles:
    """The places of a broker's segments.

    Attributes:
        paths: paths of the Parquet files.
        index: topic, queueId, segment and place of each segment.
    """

    paths: tuple[str, ...]
    index: pa.Table

    @classmethod
    def of(cls, broker: OpenedBroker) -> _SegmentFiles | None:
        table = t.CONSUME_QUEUE_SEGMENT
        paths = plain_files(broker, table)
        if not paths or len(paths) > _MOST_FILES:
            return None
        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
            index = pa.concat_tables(pool.map(partial(_places, broker.name), range(len(paths)), paths))
        return cls(tuple(paths), index) if len(index) <= _MOST_SEGMENTS else None

    def tasks(self, some: pa.Table, least: int) -> SegmentTasks | None:
        """Divide some segments into tasks of about equal work; None if the segments are a too small part of their files.

        Args:
            some: topic, queueId and segment, each with the `count` of its requests.
            least: least number of tasks.
        """
        found = self.index.join(some.select([*_SEGMENT, "count"]), _SEGMENT, join_type="inner").sort_by("place")
        in_files = np.isin(self.index["place"].to_numpy() >> _ROW_BITS, found["place"].to_numpy() >> _ROW_BITS)
        if len(found) < max(_LEAST_PART * in_files.sum(), 1):
            return None
        work = found["count"].to_numpy() + _REQUESTS_A_SEGMENT
        done = np.cumsum(work)
        count = max(least, int(done[-1]) // _REQUESTS_A_TASK)
        task = pa.array(((done - work // 2 - 1) * count // done[-1]).astype(np.int32))
        segments = found.select([*_SEGMENT, "place"]).rename_columns(["topic", "queueId", "key", "place"]).append_column("task", task)
        return SegmentTasks(self.paths, segments, count)


def _places(broker: str, number: int, path: str) -> pa.Table:
    """The index of one file: topic, queueId, segment and place of the broker's rows."""
    with parquet_file(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
        rows = file.read(["brokerName", *_SEGMENT], use_threads=False)
    places = pa.array((number << _ROW_BITS) + np.arange(len(rows)), pa.int64())
    return rows.append_column("place", places).filter(pc.equal(rows["brokerName"], broker)).drop_columns(["brokerName"])


def with_segments(paths: Sequence[str], rows: Rows) -> Rows:
    """Insert a row with a segment's entries (`blocks`) before the segment's requests; `rows` are sorted as by `SegmentTasks.before`."""
    place: int | None = None
    file: _OpenFile | None = None
    for row in rows:
        if row["place"] is not None and row["place"] != place:
            place = int(row["place"])
            path = paths[place >> _ROW_BITS]
            if file is None or file.path != path:
                file = _OpenFile(path)
            yield row | {"requests": None, "condition": None, "blocks": [file.block(place % (1 << _ROW_BITS))]}
        yield row


class _OpenFile:
    """An open Parquet file of segments; its rows are read in increasing order."""

    def __init__(self, path: str) -> None:
        self.path = path
        with named_in_errors(path):
            filesystem, inside = filesystem_of(path)
            self._file = pq.ParquetFile(inside, filesystem=filesystem, page_checksum_verification=True)
            groups = (self._file.metadata.row_group(number).num_rows for number in range(self._file.num_row_groups))
        self._starts = list(accumulate(groups, initial=0))
        self._group = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch = pa.RecordBatch.from_arrays([], [])
        self._end = 0  # end of the batch, as a row number of the file

    def block(self, row: int) -> dict[str, Any]:
        """The entries in a row of the file, as an element of `blocks`."""
        with named_in_errors(self.path):
            while not self._end - len(self._batch) <= row < self._end:
                self._read_on(row)
        place = row - (self._end - len(self._batch))
        found = {name: self._batch.column(name)[place] for name in _BLOCK}
        entries = found.pop("entries").as_buffer()  # not copied
        return {name: value.as_py() for name, value in found.items()} | {"entries": entries}

    def _read_on(self, row: int) -> None:
        """Read the next batch of the row group that has `row`."""
        group = bisect_right(self._starts, row) - 1
        if group != self._group:
            self._group, self._end = group, self._starts[group]
            self._batches = self._file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=_BLOCK, use_threads=False)
        self._batch = next(self._batches)
        self._end += len(self._batch)
