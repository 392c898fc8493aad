"""Pull requests x tables -> what the broker would have answered.

Requests are packed by the segment of entries that they start in, get the bounds of their queue, meet that segment, and are answered by the
kernel: a small join, and a shuffle of few large rows. (Of those that see the store as of their time, the queue's end and the log's end are
joined before.) Nothing is sorted that is sorted on disk, and no step depends on the size of the store but
the reading of segments. To meet is to follow in a task (`meeting`), or to be read there (`segment_files`).
Requests whose filter looks into messages go the same way beside the others, and meet the verdicts on their segment's entries as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.as_of import with_bounds_as_of, with_bounds_behind
from pipeline.replay.entry_colocation import behind
from pipeline.replay.expression_filters import (
    SPLIT_SCHEMA,
    filter_rules,
    looks_into_messages,
    split_by_condition,
    with_filter_text,
    with_verdicts,
)
from pipeline.replay.kernel_batches import MEETING_KEY, Answering, answer_batches
from pipeline.replay.segment_files import segment_tasks
from pipeline.replay.touched_segments import TouchedSegments, those_asked, touched_segments
from pipeline.requests.packing import NO_KEY, NONE, SCHEMA, Col, Matrix, Packed, Place, pack, packed_again
from pipeline.rows.queue_batches import SCAN_ENTRIES, SEGMENT_ENTRIES, segment_of
from pipeline.schema import tables as t
from pipeline.settings.replica_lag import NOT_BEHIND, Behind
from pipeline.settings.settings import PullSettings
from store_format.layout import CQ_STORE_UNIT_SIZE
from udfs.pull.get_message import CommitLogFiles

At = Literal["snapshot", "request-time", "recorded-max"]

# what a request must have to be packed
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
    "suggestPullingFromSlave BOOLEAN, msgCount4Commercial INT, messagesOnDisk INT, diskFallBehind BIGINT, exception STRING, "
    f"error STRING, entries {t.ENTRIES_TYPE}"
)
# it pays to look at the requests first, for the segments that they need, where there are so many entries, and so many for each request
_MANY_ENTRIES = 1_000_000
_ENTRIES_A_REQUEST = 5
_BLOCK = "struct<firstQueueOffset: BIGINT, entryCount: INT, entries: BINARY, extUnits: BINARY>"


class Finish(Protocol):
    """What a task makes of the answers that it has, before they leave Python; sent to Spark's workers."""

    @property
    def schema(self) -> str:
        """Columns of the rows that it makes."""

    def batches(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that it makes of batches of ANSWER_SCHEMA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProfile:
    """What is known of requests before they are answered; a replay leaves out the steps that no request needs.

    Attributes:
        into_messages: whether a request may have a filter that looks into messages.
        far: whether a request may need more messages than the entries of one segment are sure to hold.
        about: the number of requests, about; None where the number is not known.
        asked: the segments that the requests start in, and perhaps more, as `touched_segments` gives them; None where they are not known.
    """

    into_messages: bool = True
    far: bool = True
    about: int | None = None
    asked: pa.Table | None = None

    def under(self, settings: PullSettings, filters: frozenset[str] | None = None) -> RequestProfile:
        """The profile of the requests under a broker's settings; `filters` are the kinds of filters that are answered, None for all.

        With filterSupportRetry a TAG filter on a retry topic looks into messages too.
        """
        looks = self.into_messages and (filters is None or "SQL92" in filters)
        return replace(self, into_messages=looks or settings.filter_support_retry)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStore:
    """What all requests of a replay share: the broker's log, the sizes of files, entries of all queues, the greatest maxOffset."""

    log_end: int
    entries: int
    max_offset: int
    entries_a_file: int
    log: CommitLogFiles

    @property
    def log_start(self) -> int:
        """Where the commit log begins."""
        return int(self.log.starts[0]) if len(self.log.starts) else self.log_end

    @property
    def segments_a_file(self) -> int:
        """Segments of a full queue file."""
        return -(-self.entries_a_file // SEGMENT_ENTRIES)


def broker_store(broker: OpenedBroker) -> BrokerStore:
    """The store of one broker as the tables hold it.

    Raises:
        LakeError: there is none, or it was imported as it was found: what it would answer, only a start tells.
    """
    return broker.remembered("store", (t.BROKER, t.STORE_FILE, t.QUEUE), lambda: _read_store(broker))


def _read_store(broker: OpenedBroker) -> BrokerStore:
    row = broker.row()
    if row is None:
        raise LakeError(f"{broker.lake.root}: no broker {broker.name!r}")
    if row["asFound"]:
        raise broker.not_started()
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
    )


def replay(
    broker: OpenedBroker,
    requests: DataFrame,
    *,
    at: At,
    settings: PullSettings,
    with_entries: bool,
    profile: RequestProfile,
    lacks: Behind = NOT_BEHIND,
    finish: Finish | None = None,
) -> DataFrame:
    """Answer requests.

    Args:
        broker: whose store answers.
        requests: rows of REQUEST_COLUMNS; `seq` is unique, `expression` the TAG filter or NULL.
        at: what of the store a request sees: all of it, what was there at its time, or up to the recorded maxOffset.
        settings: the broker's.
        with_entries: give the entries, not just their number and size.
        profile: of the requests. Where filters may look into messages, the requests have `filterType` (NULL without a filter)
            and `registered`, and `expression` is of that type.
        lacks: how far the answering broker is behind the store; not where `at` is recorded-max, and in time where it is request-time.
        finish: what the tasks that answer make of their answers.

    Returns:
        Rows of ANSWER_SCHEMA, one a request, in no order; or rows of the schema of `finish`.
    """
    parts = meet(broker, requests, at=at, settings=settings, with_entries=with_entries, profile=profile, lacks=lacks)
    schema = ANSWER_SCHEMA if finish is None else finish.schema
    answers = [rows.mapInArrow(partial(_finished_answers, answering, finish), schema) for answering, rows in parts]
    return reduce(DataFrame.unionByName, answers)


def _finished_answers(answering: Answering, finish: Finish | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    answers = answer_batches(answering, batches)
    return answers if finish is None else finish.batches(answers)


def meet(
    broker: OpenedBroker,
    requests: DataFrame,
    *,
    at: At,
    settings: PullSettings,
    with_entries: bool,
    profile: RequestProfile,
    whole_files: bool = False,
    lacks: Behind = NOT_BEHIND,
) -> list[tuple[Answering, DataFrame]]:
    """Packed requests behind the entries that they scan, as `answering.met` takes them.

    The arguments are those of `replay`; with `whole_files` each request meets all entries of the queue file that it starts in.
    """
    store = broker_store(broker)
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    more, tasks = profile.far or whole_files, None
    few = store.entries >= max(_MANY_ENTRIES, (profile.about or 0) * _ENTRIES_A_REQUEST)
    if few:
        touched = partial(touched_segments, requests, entries_a_file=store.entries_a_file)
        known = None if whole_files or profile.asked is None else TouchedSegments("segment", profile.asked)
        asked = known or touched(whole_files=whole_files)
        more = whole_files or (profile.far and _may_be_far(asked))
        asked = touched(whole_files=True) if more and not whole_files else asked
        tasks = segment_tasks(broker, asked)
        segments = segments if tasks else those_asked(segments, asked)

    def entries_met(placed: DataFrame, requests: DataFrame, *then_by: str) -> DataFrame:
        if tasks:
            return tasks.before(placed, MEETING_KEY, *then_by)
        return _behind_entries(segments, placed, _far(requests, store, whole_files) if more else None, *then_by)

    answering = Answering.of(settings, store.entries_a_file, store.log, with_entries=with_entries)
    answering = replace(answering, segment_files=tasks.paths if tasks else ())
    placed = partial(_placed, broker, store, at, lacks, whole_files, few)
    by_tag = requests.where(~looks_into_messages(settings)) if profile.into_messages else requests
    met = [(answering, entries_met(placed(by_tag), by_tag))]
    if profile.into_messages:
        rules = filter_rules(broker, settings)
        others = with_filter_text(requests.where(looks_into_messages(settings)))
        split = placed(others).mapInArrow(partial(split_by_condition, rules), SPLIT_SCHEMA)
        first_segment = F.expr(f"key DIV {store.entries_a_file} * {store.segments_a_file}")
        of_a_file = F.sequence(first_segment, first_segment + (store.segments_a_file - 1))
        judged = with_verdicts(broker, split, rules, F.when(F.col("wide"), of_a_file).otherwise(F.array("key")))
        met.append((replace(answering, rules=rules), entries_met(judged, others, "condition")))
    return met


def _may_be_far(asked: TouchedSegments) -> bool:
    """Whether requests may need more than the entries of a segment."""
    return asked.some is None or (pc.max(asked.some["maxMsgNums"]).as_py() or 0) > SCAN_ENTRIES


def _placed(
    broker: OpenedBroker, store: BrokerStore, at: At, lacks: Behind, whole_files: bool, few: bool, requests: DataFrame
) -> DataFrame:
    """Requests packed, with the bounds that they see, by the segment that they start in."""
    if lacks.millis:
        requests = requests.withColumn("timestamp", F.expr(f"coalesce(try_subtract(timestamp, {lacks.millis}L), timestamp)"))
    place = partial(by_segment, store, whole_files)
    bounded = _bounded(broker, store, at, place, few, requests)
    if not lacks.bytes:
        return bounded
    queues = requests.select("topic", "queueId").distinct()
    return with_bounds_behind(broker, store.log_start, lacks.bytes, bounded, queues, place)


def _bounded(broker: OpenedBroker, store: BrokerStore, at: At, place: Place, few: bool, requests: DataFrame) -> DataFrame:
    packed = requests.select(*REQUEST_COLUMNS).mapInArrow(partial(pack, place), SCHEMA)
    bounded = packed.join(queue_bounds(broker), ["topic", "queueId"], "left").withColumn("logEnd", F.lit(store.log_end).cast("BIGINT"))
    if at == "request-time":
        times = requests.agg(F.min("timestamp"), F.max("timestamp")).collect()[0] if few else None
        return with_bounds_as_of(broker, store.log_start, bounded, place, times)
    if at == "recorded-max":
        return bounded.mapInArrow(partial(_packed_again, partial(_cut_at_recorded, place)), SCHEMA)
    return bounded


def queue_bounds(broker: OpenedBroker) -> DataFrame:
    """Topic, queueId, minOffset and maxOffset of each queue: rows that the driver has read, so that Spark need not."""
    columns = ["topic", "queueId", "minOffset", "maxOffset"]
    spark = broker.lake.spark
    return broker.remembered("bounds", (t.QUEUE,), lambda: spark.createDataFrame(broker.rows(t.QUEUE).select(columns)))


def by_segment(store: BrokerStore, whole_files: bool, matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The segment that each request starts in, or the queue file where it needs more of that (`wide`); -1 beyond all queues."""
    offsets, entries = matrix[:, Col.OFFSET], store.entries_a_file
    wide = whole_files | (matrix[:, Col.MAX_MSG_NUMS] > SCAN_ENTRIES)
    keys = np.where(wide, offsets // entries * entries, segment_of(offsets, entries))
    keys[(offsets < 0) | (offsets >= store.max_offset)] = NO_KEY
    return keys, wide


def _cut_at_recorded(place: Place, matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What `place` says, and in the matrix each queue's end where it was recorded."""
    recorded, end = matrix[:, Col.RECORDED_MAX], matrix[:, Col.MAX_OFFSET]
    matrix[:, Col.MAX_OFFSET] = np.where(recorded == NONE, end, np.minimum(recorded, end))
    return place(matrix)


def _packed_again(place: Place, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packed rows whose matrix has all bounds, by the key that `place` says."""
    rows = (Packed.of(row) for batch in batches for row in batch.to_pylist())
    return packed_again((packed, *place(packed.matrix)) for packed in rows)


def _behind_entries(segments: DataFrame, placed: DataFrame, far: DataFrame | None, *then_by: str) -> DataFrame:
    """Packed rows, those of one key behind a row with the entries they need, if there are any, and in the order of more columns.

    These are one segment, or for a wide row all segments of the queue file, one of those in `far`. Without `far` there are no wide rows.
    """
    block = F.struct("firstQueueOffset", "entryCount", "entries", "extUnits").cast(_BLOCK)
    blocks = segments.select(
        "topic", "queueId", F.col("segment").alias("key"), F.expr("FALSE").alias("wide"), F.array(block).alias("blocks")
    )
    if far is not None:
        in_files = segments.join(F.broadcast(far), ["topic", "queueId", "fileFirstOffset"], "left_semi")
        of_file = in_files.groupBy("topic", "queueId", F.col("fileFirstOffset").alias("key"), F.expr("TRUE").alias("wide"))
        blocks = blocks.unionByName(of_file.agg(F.sort_array(F.collect_list(block)).alias("blocks")))
    return behind(blocks, placed, MEETING_KEY, *then_by)


def _far(requests: DataFrame, store: BrokerStore, whole_files: bool) -> DataFrame:
    """The queue files, by their first offset, that requests start in which need more of them than a segment; or those of all requests."""
    first = F.expr(f"queueOffset DIV {store.entries_a_file} * {store.entries_a_file}").alias("fileFirstOffset")
    need_more = F.lit(True) if whole_files else F.col("maxMsgNums") > SCAN_ENTRIES
    return requests.where(need_more & (F.col("queueOffset") >= 0)).select("topic", "queueId", first).distinct()
