"""Answer pull requests as the broker would have, from the tables of its store.

Steps:
1. Requests are packed by the segment of entries that they start in, and get the bounds of their queue (a small join).
2. With request-time, maxOffset and log end are set as of each request's time (`as_of`); with a slave lag in bytes, to the slave's.
3. Each packed row comes into one task with its entries: by a shuffle of few large rows (`entry_colocation`), or because the task
   reads the entries from the files (`segment_files`).
4. The kernel answers (`kernel_batches`).
Requests with a filter that looks into messages take the same steps in rows of their own, which also get the filter's verdicts on the
entries (`expression_filters`). Only the reading of segments depends on the size of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.delta.damaged_files import RESTORE
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.as_of import with_bounds_as_of, with_bounds_of_slave
from pipeline.replay.entry_colocation import Row, after_stored, by_rows, rows_of
from pipeline.replay.expression_filters import (
    SPLIT_SCHEMA,
    filter_rules,
    looks_into_messages,
    split_by_condition,
    with_filter_text,
    with_verdicts,
)
from pipeline.replay.kernel_batches import ENTRIES_KEY, Answering, answer_batches
from pipeline.replay.segment_files import segment_tasks
from pipeline.replay.touched_segments import TouchedSegments, only_touched, times_of_packed, touched_by_packed, touched_segments
from pipeline.requests.packing import NO_KEY, NONE, SCHEMA, Col, Matrix, Packed, Place, pack, packed_again
from pipeline.rows.queue_batches import SCAN_ENTRIES, segment_of, segments_a_file
from pipeline.schema import tables as t
from pipeline.settings.settings import PullSettings
from pipeline.settings.slave_lag import NO_SLAVE_LAG, SlaveLag
from pipeline.tasks.computed_once import computed_once
from pipeline.tasks.local_rows import frame_of
from store_format.layout import CQ_STORE_UNIT_SIZE
from udfs.pull.batch_caps import scan_window_entries
from udfs.pull.get_message import CommitLogFiles
from udfs.pull.scan_settings import queue_files, window_bytes

At = Literal["snapshot", "request-time", "recorded-max"]

# columns that a request needs in order to be packed
REQUEST_COLUMNS = [
    "seq",
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "expression",
    "timestamp",
    "recordedMaxOffset",
]
ANSWER_SCHEMA = (
    "seq BIGINT, topic STRING, queueId INT, consumerGroup STRING, queueOffset BIGINT, maxMsgNums INT, status STRING, "
    "code INT, nextBeginOffset BIGINT, minOffset BIGINT, maxOffset BIGINT, messageCount INT, bufferTotalSize INT, "
    "suggestPullingFromSlave BOOLEAN, msgCount4Commercial INT, messagesOnDisk INT, diskFallBehind BIGINT, filterMessageCount INT, "
    f"exception STRING, error STRING, entries {t.ENTRIES_TYPE}"
)
# with at least this many entries in the store, and this many for each request, it is cheaper to find the needed segments first
_MANY_ENTRIES = 1_000_000
_ENTRIES_A_REQUEST = 5
_BLOCK = "struct<firstQueueOffset: BIGINT, entryCount: INT, entries: BINARY, extUnits: BINARY>"


class Finish(Protocol):
    """A last step that turns answers into other rows, in the Python process that made the answers; sent to Spark's workers."""

    @property
    def schema(self) -> str:
        """Columns of the rows that `batches` returns."""

    def batches(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows made from batches of ANSWER_SCHEMA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProfile:
    """Properties of requests that are known before they are answered; a replay skips steps that no request needs.

    Attributes:
        into_messages: whether a request may have a filter that looks into messages.
        far: whether a request may scan more entries than one segment is sure to hold.
        about: approximate number of requests; None if unknown.
        touched: segments that the requests start in (and perhaps others), in the columns of `touched_segments`; None if unknown.
        packed: packs all requests by their keys in the tasks that read them; None if the rows of a DataFrame are packed.
    """

    into_messages: bool = True
    far: bool = True
    about: int | None = None
    touched: pa.Table | None = None
    packed: Callable[[Place], DataFrame] | None = None

    def under(self, settings: PullSettings, filters: frozenset[str] | None = None) -> RequestProfile:
        """The profile of the requests under a broker's settings.

        With filterSupportRetry, a TAG filter on a retry topic also looks into messages.

        Args:
            settings: of the broker.
            filters: kinds of filters that are answered; None for all.
        """
        looks = self.into_messages and (filters is None or "SQL92" in filters)
        into_messages = looks or settings.filter_support_retry
        return replace(self, into_messages=into_messages, packed=None if into_messages or filters is not None else self.packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStore:
    """Figures of a broker's store that all requests of a replay share.

    Attributes:
        log_end: end of the commit log.
        entries: number of entries of all queues.
        max_offset: the greatest maxOffset of all queues.
        entries_a_file: entries of a full queue file.
        log: files of the commit log.
        as_found: whether the store was imported as found, so that the figures are not those of a started broker.
    """

    log_end: int
    entries: int
    max_offset: int
    entries_a_file: int
    log: CommitLogFiles
    as_found: bool = False

    @property
    def log_start(self) -> int:
        """First offset of the commit log; its end if the log has no files."""
        return int(self.log.starts[0]) if len(self.log.starts) else self.log_end

    def files_ahead(self, settings: PullSettings) -> int:
        """The number of queue files that a pull can reach after the file in which it starts."""
        return max(min(queue_files(settings) - 1, self.max_offset // self.entries_a_file), 0)

    def has_far_pulls(self, settings: PullSettings) -> bool:
        """Whether a pull can scan more entries than one segment has, whatever its maxMsgNums is."""
        return self.files_ahead(settings) > 0 or scan_window_entries(0, window_bytes(settings)) > SCAN_ENTRIES

    @property
    def segments_a_file(self) -> int:
        """Number of segments of a full queue file."""
        return segments_a_file(self.entries_a_file)


def broker_store(broker: OpenedBroker, *, readable: bool = True) -> BrokerStore:
    """The figures of a broker's store, from the tables.

    Args:
        broker: the broker.
        readable: whether the store is readable; if not, it answers null to each pull, whatever its figures are.

    Raises:
        LakeError: the lake has no such broker, or its store was imported as found and is readable: a broker would change it at its start.
    """
    store = broker.remembered("store", (t.BROKER, t.STORE_FILE, t.QUEUE), lambda: _read_store(broker))
    if store.as_found and readable:
        raise broker.not_started()
    return store


# the columns of the broker's row that every answer needs
_FIGURES = ("maxPhyOffset", "mappedFileSizeConsumeQueue", "mappedFileSizeCommitLog")


def _read_store(broker: OpenedBroker) -> BrokerStore:
    row = broker.row()
    if row is None:
        raise LakeError(f"{broker.lake.root}: no broker {broker.name!r}")
    if missing := [name for name in _FIGURES if row[name] is None]:
        path = broker.lake.path(t.BROKER.name)
        raise LakeError(f"{path}: expected {', '.join(missing)} of broker {broker.name!r}, found NULL; {RESTORE}")
    files = broker.rows(t.STORE_FILE, pc.field("kind") == "commitlog").sort_by("fromOffset")
    queues = broker.rows(t.QUEUE)
    return BrokerStore(
        log_end=row["maxPhyOffset"],
        entries=pc.sum(pc.subtract(queues["maxOffset"], queues["minOffset"])).as_py() or 0,
        max_offset=pc.max(queues["maxOffset"]).as_py() or 0,
        entries_a_file=row["mappedFileSizeConsumeQueue"] // CQ_STORE_UNIT_SIZE,
        log=CommitLogFiles(
            files["fromOffset"].to_numpy(),
            files["wrote"].to_numpy(),
            row["mappedFileSizeCommitLog"],
        ),
        as_found=bool(row["asFound"]),
    )


def replay(
    broker: OpenedBroker,
    requests: DataFrame,
    *,
    at: At,
    settings: PullSettings,
    with_entries: bool,
    profile: RequestProfile,
    slave_lag: SlaveLag = NO_SLAVE_LAG,
    finish: Finish | None = None,
) -> DataFrame:
    """Answer pull requests from a broker's store.

    Args:
        broker: the broker whose store answers.
        requests: rows of REQUEST_COLUMNS; `seq` is unique, `expression` is the TAG filter or NULL. If `profile.into_messages`, they
            also have `filterType` (NULL without a filter) and `registered`, and `expression` is of type `filterType`.
        at: which part of the store a request sees: all of it, what was there at the request's time, or up to the recorded maxOffset.
        settings: of the broker.
        with_entries: whether an answer lists its entries, not only their number and size.
        profile: of the requests.
        slave_lag: of the broker that answers; 0 if `at` is recorded-max, in milliseconds only if `at` is request-time.
        finish: a last step in the tasks that answer; None for none.

    Returns:
        Rows of ANSWER_SCHEMA, one for each request, in no order; with `finish`, rows of its schema.
    """
    parts = requests_after_entries(
        broker, requests, at=at, settings=settings, with_entries=with_entries, profile=profile, slave_lag=slave_lag
    )
    schema = ANSWER_SCHEMA if finish is None else finish.schema
    answers = [rows.mapInArrow(partial(_finished_answers, answering, finish), schema) for answering, rows in parts]
    return reduce(DataFrame.unionByName, answers)


def _finished_answers(answering: Answering, finish: Finish | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    answers = answer_batches(answering, rows_of(batches))
    return answers if finish is None else finish.batches(answers)


def requests_after_entries(
    broker: OpenedBroker,
    requests: DataFrame,
    *,
    at: At,
    settings: PullSettings,
    with_entries: bool,
    profile: RequestProfile,
    whole_files: bool = False,
    slave_lag: SlaveLag = NO_SLAVE_LAG,
) -> list[tuple[Answering, DataFrame]]:
    """Sort packed requests after the entries that they scan, ready for `requests_with_entries`.

    Args:
        broker: as for `replay`.
        requests: as for `replay`.
        at: as for `replay`.
        settings: as for `replay`.
        with_entries: as for `replay`.
        profile: as for `replay`.
        whole_files: whether each request gets all entries of the queue file that it starts in.
        slave_lag: as for `replay`.

    Returns:
        Pairs of what the kernel needs and the rows. The first pair is for requests with TAG filters or none. If `profile.into_messages`,
        a second pair is for requests with filters that look into messages.
    """
    store = broker_store(broker, readable=settings.readable)
    files_ahead = store.files_ahead(settings)
    whole_files = whole_files or store.has_far_pulls(settings)
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    more, tasks = profile.far or whole_files, None
    few = not files_ahead and store.entries >= max(_MANY_ENTRIES, (profile.about or 0) * _ENTRIES_A_REQUEST)
    place = partial(by_segment, store, whole_files)
    first = by_queue if at == "request-time" or slave_lag.bytes else place  # such requests get their final keys later
    packed = profile.packed(first) if profile.packed and not slave_lag.millis else None
    if few:
        find_touched = partial(touched_segments, requests, entries_a_file=store.entries_a_file)
        if packed is not None:  # a pass over the lines of a file costs more than all later steps
            packed = computed_once(packed, eager=False)
            find_touched = partial(touched_by_packed, packed, entries_a_file=store.entries_a_file)
        known = None if whole_files or profile.touched is None else TouchedSegments("segment", profile.touched)
        touched = known or find_touched(whole_files=whole_files)
        more = whole_files or (profile.far and _may_be_far(touched))
        touched = find_touched(whole_files=True) if more and not whole_files else touched
        tasks = segment_tasks(broker, touched)
        segments = segments if tasks else only_touched(segments, touched)

    def after_entries(placed: DataFrame, requests: DataFrame, *then_by: str) -> DataFrame:
        if tasks:
            return tasks.before(placed, ENTRIES_KEY, *then_by)
        far = _far(requests, store, whole_files) if more else None
        in_files = segments if not files_ahead else _for_files_before(segments, files_ahead, store.entries_a_file)
        return _after_entries(segments, in_files, placed, far, *then_by)

    answering = Answering.of(settings, store.entries_a_file, store.log, with_entries=with_entries)
    answering = replace(answering, segment_files=tasks.paths if tasks else ())
    placed = partial(_placed, broker, store, at, slave_lag, place, first, few, packed=packed)
    by_tag = requests.where(~looks_into_messages(settings)) if profile.into_messages else requests
    parts = [(answering, after_entries(placed(by_tag), by_tag))]
    if profile.into_messages:
        rules = filter_rules(broker, settings)
        others = with_filter_text(requests.where(looks_into_messages(settings)))
        split = placed(others).mapInArrow(partial(split_by_condition, rules), SPLIT_SCHEMA)
        first_segment = F.expr(f"key DIV {store.entries_a_file} * {store.segments_a_file}")
        of_a_file = F.sequence(first_segment, first_segment + (store.segments_a_file * (1 + files_ahead) - 1))
        judged = with_verdicts(broker, split, rules, F.when(F.col("wide"), of_a_file).otherwise(F.array("key")))
        parts.append((replace(answering, rules=rules), after_entries(judged, others, "condition")))
    return parts


def _may_be_far(touched: TouchedSegments) -> bool:
    """Whether a request may scan more entries than one segment has."""
    return touched.known is None or (pc.max(touched.known["maxMsgNums"]).as_py() or 0) > SCAN_ENTRIES


def _placed(
    broker: OpenedBroker,
    store: BrokerStore,
    at: At,
    slave_lag: SlaveLag,
    place: Place,
    first: Place,
    few: bool,
    requests: DataFrame,
    *,
    packed: DataFrame | None,
) -> DataFrame:
    """The requests packed by the keys of `place`, with the queue bounds and log end that they see.

    Args:
        broker: as for `replay`.
        store: of the broker.
        at: as for `replay`.
        slave_lag: as for `replay`.
        place: gives the final keys.
        first: gives the keys that requests are packed by before their bounds are known.
        few: whether the requests are few in comparison with the store's entries.
        requests: the requests.
        packed: the requests as packed rows with the keys of `first`; None if they are packed here.
    """
    if slave_lag.millis:
        requests = requests.withColumn("timestamp", F.expr(f"coalesce(try_subtract(timestamp, {slave_lag.millis}L), timestamp)"))
    if packed is None:
        packed = requests.select(*REQUEST_COLUMNS).mapInArrow(partial(pack, first), SCHEMA)
        times = partial(_times, requests)
    else:
        times = partial(times_of_packed, packed)
    bounded = packed.join(queue_bounds(broker), ["topic", "queueId"], "left").withColumn("logEnd", F.lit(store.log_end).cast("BIGINT"))
    if at == "request-time":
        bounded = with_bounds_as_of(broker, store.log_start, bounded, place, times() if few else None)
    elif at == "recorded-max":
        bounded = bounded.mapInArrow(partial(by_rows, partial(cut_at_recorded, place)), SCHEMA)
    if not slave_lag.bytes:
        return bounded
    queues = requests.select("topic", "queueId").distinct()
    return with_bounds_of_slave(broker, store.log_start, slave_lag.bytes, bounded, queues, place)


def _times(requests: DataFrame) -> tuple[int | None, int | None]:
    """The least and the greatest time of the requests."""
    least, greatest = requests.agg(F.min("timestamp"), F.max("timestamp")).collect()[0]
    return least, greatest


def queue_bounds(broker: OpenedBroker) -> DataFrame:
    """Topic, queueId, minOffset and maxOffset of each queue; the driver reads them, which saves a Spark job."""
    columns = ["topic", "queueId", "minOffset", "maxOffset"]
    spark = broker.lake.spark
    return broker.remembered("bounds", (t.QUEUE,), lambda: frame_of(spark, broker.rows(t.QUEUE).select(columns)))


def by_segment(store: BrokerStore, whole_files: bool, matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The key of each request, and whether it is wide.

    Args:
        store: of the broker.
        whole_files: whether all requests are wide.
        matrix: packed requests.

    Returns:
        The segment that a request starts in; for a wide request, which scans more than one segment, the first offset of its queue
        file; NO_KEY for an offset outside all queues.
    """
    offsets, entries = matrix[:, Col.OFFSET], store.entries_a_file
    wide = whole_files | (matrix[:, Col.MAX_MSG_NUMS] > SCAN_ENTRIES)
    keys = np.where(wide, offsets // entries * entries, segment_of(offsets, entries))
    keys[(offsets < 0) | (offsets >= store.max_offset)] = NO_KEY
    return keys, wide


def by_queue(matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """NO_KEY as the key of requests whose segment is not known yet, so that the requests of a queue stay together."""
    return np.full(len(matrix), NO_KEY), np.zeros(len(matrix), np.bool_)


def cut_at_recorded(place: Place, rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Lower maxOffset of the requests of packed rows to the recorded maxOffset, and pack them again by the keys that `place` gives."""

    def cut(matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        recorded, end = matrix[:, Col.RECORDED_MAX], matrix[:, Col.MAX_OFFSET]
        matrix[:, Col.MAX_OFFSET] = np.where(recorded == NONE, end, np.minimum(recorded, end))
        return place(matrix)

    return packed_again((packed, *cut(packed.matrix)) for packed in map(Packed.of, rows))


def _for_files_before(segments: DataFrame, files: int, entries_a_file: int) -> DataFrame:
    """The segments, each once for its own queue file and for each of `files` files before it, with that file's `fileFirstOffset`."""
    first = F.explode(F.expr(f"transform(sequence(0L, {files}L), file -> fileFirstOffset - file * {entries_a_file}L)"))
    return segments.withColumn("fileFirstOffset", first).where("fileFirstOffset >= 0")


def _after_entries(segments: DataFrame, in_files: DataFrame, placed: DataFrame, far: DataFrame | None, *then_by: str) -> DataFrame:
    """Sort packed requests so that each key's entries row precedes its requests.

    Args:
        segments: rows of consume_queue_segment.
        in_files: the same rows, once for each queue file (`fileFirstOffset`) from which pulls can reach them.
        placed: packed rows; the entries of a wide row are all segments of its queue file.
        far: queue files of the wide rows (`_far`); None if no row is wide.
        then_by: further columns to sort the packed rows of a key by.
    """
    block = F.struct("firstQueueOffset", "entryCount", "entries", "extUnits").cast(_BLOCK)
    blocks = segments.select(
        "topic", "queueId", F.col("segment").alias("key"), F.expr("FALSE").alias("wide"), F.array(block).alias("blocks")
    )
    if far is not None:
        wanted = in_files.join(F.broadcast(far), ["topic", "queueId", "fileFirstOffset"], "left_semi")
        of_file = wanted.groupBy("topic", "queueId", F.col("fileFirstOffset").alias("key"), F.expr("TRUE").alias("wide"))
        blocks = blocks.unionByName(of_file.agg(F.sort_array(F.collect_list(block)).alias("blocks")))
    return after_stored(blocks, placed, ENTRIES_KEY, *then_by)


def _far(requests: DataFrame, store: BrokerStore, whole_files: bool) -> DataFrame:
    """The queue files (topic, queueId, fileFirstOffset) of wide requests; with `whole_files`, of all requests."""
    first = F.expr(f"queueOffset DIV {store.entries_a_file} * {store.entries_a_file}").alias("fileFirstOffset")
    need_more = F.lit(True) if whole_files else F.col("maxMsgNums") > SCAN_ENTRIES
    return requests.where(need_more & (F.col("queueOffset") >= 0)).select("topic", "queueId", first).distinct()
