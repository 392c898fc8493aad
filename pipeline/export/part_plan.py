"""Chooses the messages of a part of a store, and plans the place of each message in the new commit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.settings.settings import nearest
from pipeline.tasks.computed_once import computed_once
from store_format.errors import StoreError
from store_format.layout import BLANK_SIZE

# number of chunks of a file of the old log: the messages of a chunk stay together, so at most one chunk's bytes of a new file stay unused
_CHUNKS_A_FILE = 64
_QUEUE = ("topic", "queueId")


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of a part: a queue offset, or a storeTimestamp in ms."""

    value: int
    is_time: bool

    @property
    def of_entry(self) -> Column:
        """The column of an entry to compare with the bound; a storeTimestamp is NULL if the log no longer has the message."""
        return F.col("storeTimestamp" if self.is_time else "queueOffset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The messages of a part: of `topics` (of all topics if it is empty), in each queue from `first` on and before `after`.

    With times, a queue's part goes from its first to its last message of that time span, with all messages between them.
    """

    topics: tuple[str, ...] = ()
    first: Bound | None = None
    after: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """The plan of the new commit log, which ends at `end` and begins with its second file.

    `chunks` has (file, chunk, offset) of each chunk of a file of the old log, with the offset of its first message in the new log; `blanks`
    has (offset, length) of each BLANK. The files of both logs have `file_size` bytes.
    """

    chunks: tuple[tuple[int, int, int], ...]
    blanks: tuple[tuple[int, int], ...]
    end: int
    file_size: int

    @property
    def files(self) -> range:
        """The offsets of the new log's files."""
        return range(self.file_size, self.end, self.file_size)


def plan_log(chunks: Sequence[tuple[int, int, int]], file_size: int) -> LogPlan:
    """The plan that puts chunks (file, chunk, bytes) of the old log one after the other, each inside one new file.

    Raises:
        StoreError: a chunk is longer than a file.
    """
    end = file_size
    placed, blanks = [], []
    for file, chunk, length in chunks:
        rest = file_size - end % file_size
        if length + BLANK_SIZE > file_size:
            expected = f"messages that leave {BLANK_SIZE} bytes of a file of {file_size}"
            raise StoreError("commit_log", expected, f"{length} bytes of them in file {file}")
        if length + BLANK_SIZE > rest:
            blanks.append((end, rest))
            end += rest
        placed.append((file, chunk, end))
        end += length
    return LogPlan(chunks=tuple(placed), blanks=tuple(blanks), end=end, file_size=file_size)


def entries_of_part(broker: OpenedBroker, part: Part) -> DataFrame:
    """The entries of a part: topic, queueId, queueOffset, physicOffset, size, tagsCode, storeTimestamp.

    Raises:
        LakeError: a topic has no queue, or the part has no entry.
        StoreError: the message of an entry is not in the commit log.
    """
    _require_topics(broker, part.topics)
    # without an extension unit the entry itself has the tag's hash code
    code = F.coalesce(F.col("extUnit.tagsCode"), F.col("tagsCode")).alias("tagsCode")
    every = broker.table(t.CONSUME_QUEUE).select(*_QUEUE, "queueOffset", "physicOffset", "size", code, "storeTimestamp")
    if part.topics:
        every = every.where(F.col("topic").isin(list(part.topics)))
    begins = F.lit(True) if part.first is None else part.first.of_entry >= part.first.value
    ends = F.lit(True) if part.after is None else part.after.of_entry < part.after.value
    # a queue's part begins with an entry whose message the log still has
    first = F.min(F.when(begins & F.isnotnull("storeTimestamp"), F.col("queueOffset")))
    spans = every.groupBy(*_QUEUE).agg(first.alias("begin"), F.max(F.when(ends, F.col("queueOffset"))).alias("stop"))
    inside = F.col("queueOffset").between(F.col("begin"), F.col("stop"))
    entries = computed_once(every.join(spans.where("begin <= stop"), [*_QUEUE]).where(inside).drop("begin", "stop"))
    if entries.isEmpty():
        raise LakeError(f"{broker.lake.root}: expected messages of broker {broker.name!r} to export, found none in that part")
    log = broker.table(t.COMMIT_LOG).select("physicOffset", F.col("storeSize").alias("size"))
    lost = entries.join(log, ["physicOffset", "size"], "left_anti").orderBy(*_QUEUE, "queueOffset").first()
    if lost is not None:
        found = f"none of {lost['size']} bytes at {lost['physicOffset']}"
        where = f"{lost['topic']}/{lost['queueId']}, offset {lost['queueOffset']}"
        raise StoreError("consume_queue", f"the message of {where}, in the commit log", found, hint="leave it out with --from or --to")
    return entries


def _require_topics(broker: OpenedBroker, topics: Sequence[str]) -> None:
    if not topics:
        return
    known = [row["topic"] for row in broker.table(t.QUEUE).select("topic").distinct().toLocalIterator()]
    for topic in topics:
        if topic not in known:
            near = nearest(topic, known, 1)
            hint = f"; is it {near[0]!r}?" if near else ""
            raise LakeError(f"{broker.lake.root}: expected a topic of broker {broker.name!r} that has queues, found {topic!r}{hint}")


def moved_messages(entries: DataFrame, file_size: int) -> tuple[LogPlan, DataFrame]:
    """The plan of the new log for the messages of `entries`, and physicOffset, newOffset, size and storeTimestamp of each message."""
    position = F.col("physicOffset") % file_size
    messages = (
        entries.groupBy("physicOffset", "size")
        .agg(F.max("storeTimestamp").alias("storeTimestamp"))
        .withColumn("file", F.floor(F.col("physicOffset") / file_size))
        .withColumn("chunk", F.floor(position * _CHUNKS_A_FILE / file_size))
    )
    sums = messages.groupBy("file", "chunk").agg(F.sum("size").alias("bytes")).orderBy("file", "chunk").collect()
    plan = plan_log([(row["file"], row["chunk"], row["bytes"]) for row in sums], file_size)
    starts = entries.sparkSession.createDataFrame(plan.chunks, "file BIGINT, chunk BIGINT, start BIGINT")
    before = Window.partitionBy("file", "chunk").orderBy("physicOffset").rowsBetween(Window.unboundedPreceding, -1)
    offset = F.col("start") + F.coalesce(F.sum("size").over(before), F.lit(0))
    moved = messages.join(F.broadcast(starts), ["file", "chunk"]).withColumn("newOffset", offset)
    return plan, computed_once(moved.select("physicOffset", "newOffset", "size", "storeTimestamp"))
