"""Adds the batches of a followed log to the tables of the broker, each batch in one commit.

Rule: the progress is the end of the log in the lake's row of broker. A batch that was committed before a crash adds nothing when it runs
again; a batch that was not committed is written again.
If records cannot just be added, the whole store is imported again, and follow_event has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipeline.files.store_files import StoreFiles
from pipeline.follow.follow_metrics import Followed, FollowedBatch
from pipeline.follow.followed_timer import FollowedTimer
from pipeline.follow.growth import QUEUE_KEY, SEGMENT_KEY, Growth
from pipeline.follow.log_tail import Event, LogTail
from pipeline.importing.import_store import Imported
from pipeline.lag.lag_history import append_observation
from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import COMPACTED_EVERY, LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.rows.config_tables import TABLES_OF_5, config_files, config_rows
from pipeline.schema import tables as t
from pipeline.schema.follow_tables import FOLLOW_EVENT
from pipeline.schema.lag_tables import LAG_HISTORY
from pipeline.settings.quantities import milliseconds
from pipeline.stream.batch_work import BatchWork
from pipeline.tasks.computed_once import computed_once, kept
from pipeline.tasks.local_rows import frame_of
from store_format.errors import ConfigFileError
from store_format.layout import CQ_STORE_UNIT_SIZE

QUEUE_OFFSETS = "QUEUE_OFFSETS"
_TABLES_AT_ONCE = 4
# tables to which each batch adds files
_GROWING = (t.COMMIT_LOG, t.COMMIT_LOG_SEGMENT, t.CONSUME_QUEUE_PROPERTIES, t.CONSUME_QUEUE, LAG_HISTORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a batch added: messages, the end of the log that the lake now has, and whether the whole store was imported again."""

    messages: int
    log_end: int
    is_whole: bool = False


@dataclass(slots=True, kw_only=True)
class FollowBatches(BatchWork):
    """Adds the batches of one stream; Spark calls it with each batch. `import_again` imports the whole store into a lake."""

    store: StoreFiles
    broker: str
    run_id: str
    timer: FollowedTimer
    import_again: Callable[[Lake], Imported]
    progress: Callable[[str], None]
    done: Followed = field(default_factory=Followed)
    _config: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Add the batch with a number to the lake."""
        with self.at_work():
            self.require_go_on()
            self._take(self.newest_lake(batch.sparkSession), batch, number)

    def _take(self, lake: Lake, batch: DataFrame, number: int) -> None:
        started = self.now()
        row = OpenedBroker(lake, self.broker).row()
        assert row is not None
        with kept(batch.where(F.col("event").isNotNull() | (F.col("physicOffset") >= row["maxPhyOffset"]))) as records:
            added = self._add(lake, row, records, number)
        followed = FollowedBatch(
            number=number,
            started=started,
            seconds=(self.now() - started).total_seconds(),
            messages=added.messages,
            bytes=max(added.log_end - row["maxPhyOffset"], 0),
            is_whole=added.is_whole,
        )
        self.done = self.done.plus(followed, lake_version=lake.at.version, log_end=added.log_end)
        self.progress(f"batch {number}: {followed.messages:,} messages added in {followed.seconds:.1f} s")

    def _add(self, lake: Lake, row: dict[str, Any], records: DataFrame, number: int) -> Added:
        """Add a batch's records to the lake."""
        event = F.min(F.when(F.col("event").isNotNull(), F.struct("physicOffset", "event", "eventText"))).alias("event")
        end = F.max(F.col("physicOffset") + F.col("storeSize")).alias("end")
        facts = records.agg(F.count("*").alias("count"), event, end, F.max("storeTimestamp").alias("newest")).first()
        assert facts is not None
        if facts["event"] is not None:
            offset, kind, text = facts["event"]
            return self._import_again(lake, Event(kind=kind, physic_offset=offset, text=text), number)
        growth = Growth(OpenedBroker(lake, self.broker), row["mappedFileSizeConsumeQueue"] // CQ_STORE_UNIT_SIZE, records)
        odd = growth.queues_that_do_not_follow().orderBy("topic", "queueId").first() if facts["count"] else None
        if odd is not None:
            text = f"queue {odd['queueId']} of {odd['topic']} goes on at {odd['first']}, its entries so far end at {odd['maxOffset']}"
            return self._import_again(lake, Event(kind=QUEUE_OFFSETS, physic_offset=row["maxPhyOffset"], text=text), number)
        self._write(lake, row, growth, facts, number)
        return Added(messages=facts["count"], log_end=row["maxPhyOffset"] if facts["end"] is None else facts["end"])

    def _import_again(self, lake: Lake, event: Event, number: int) -> Added:
        self.progress(f"{event.kind}: {event.text}; importing the whole store again")
        before = OpenedBroker(lake, self.broker).table(t.COMMIT_LOG).count()
        imported = self.import_again(lake)
        lake = self.newest_lake(lake.spark)  # the driver may have imported without Spark, into another Lake object
        writer = LakeWriter(lake, run_id=self.run_id, what="follow", broker=self.broker)
        told = (self.broker, self.run_id, number, event.kind, event.physic_offset, event.text, imported.max_phy_offset, self.now())
        writer.prepare(FOLLOW_EVENT)
        writer.merge(FOLLOW_EVENT, lake.spark.createDataFrame([told], FOLLOW_EVENT.schema), ("brokerName", "runId", "batchId"))
        writer.commit(self.now())
        return Added(messages=max(imported.messages - before, 0), log_end=imported.max_phy_offset, is_whole=True)

    def _write(self, lake: Lake, row: dict[str, Any], growth: Growth, facts: Row, number: int) -> None:
        writer = LakeWriter(lake, run_id=self.run_id, what="follow", broker=self.broker)
        writer.expect_commit()
        steps = self._config_steps(lake, writer)
        # without records, the tables of a store that was never followed stay those of its import
        with_timer = (facts["count"] > 0 or row["followedFrom"] is not None) and self.timer.are_due()
        if facts["count"]:
            steps += self._record_steps(writer, row, growth, facts)
        if with_timer:
            steps.append(partial(self.timer.replace_rows, writer))
        if facts["count"] or with_timer:
            steps.append(self._broker_step(writer, row, growth, facts, with_timer=with_timer))
        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            running = [pool.submit(step) for step in steps]
            try:
                for step in running:
                    step.result()
            finally:
                pool.shutdown(cancel_futures=True)
        if steps:
            append_observation(writer, milliseconds(self.now()))
            if number % COMPACTED_EVERY == COMPACTED_EVERY - 1:
                for table in _GROWING:
                    writer.prepare(table)
                    writer.compact(table)
            writer.commit(self.now())

    def _record_steps(self, writer: LakeWriter, row: dict[str, Any], growth: Growth, facts: Row) -> list[Callable[[], None]]:
        segments = computed_once(growth.segments())
        files = LogTail(self.store, row["mappedFileSizeCommitLog"], self.timer.settings.version).files()
        added = {
            t.COMMIT_LOG: growth.commit_log(),
            t.COMMIT_LOG_SEGMENT: growth.commit_log_segments(),
            t.CONSUME_QUEUE_PROPERTIES: growth.properties(),
            t.CONSUME_QUEUE: growth.consume_queue(segments),
        }

        def add(table: t.Table, rows: DataFrame) -> None:
            writer.prepare(table)
            writer.append(table, rows)

        def merge(table: t.Table, rows: DataFrame, keys: Sequence[str]) -> None:
            writer.prepare(table)
            writer.merge(table, rows, keys)

        return [
            *(partial(add, table, rows) for table, rows in added.items()),
            partial(merge, t.CONSUME_QUEUE_SEGMENT, segments, SEGMENT_KEY),
            partial(merge, t.QUEUE, growth.queues(), QUEUE_KEY),
            partial(writer.replace_rows, t.STORE_FILE, growth.log_files(files, facts["end"]), {"kind": "commitlog"}),
        ]

    def _broker_step(self, writer: LakeWriter, row: dict[str, Any], growth: Growth, facts: Row, *, with_timer: bool) -> Callable[[], None]:
        files = LogTail(self.store, row["mappedFileSizeCommitLog"], self.timer.settings.version).files()
        least = files[0].from_offset if files else row["minPhyOffset"]
        end = facts["end"] if facts["count"] else row["maxPhyOffset"]
        grown = growth.broker_row(row, least, end, facts["newest"], with_timer=with_timer)
        return partial(writer.replace_rows, t.BROKER, grown)

    def _config_steps(self, lake: Lake, writer: LakeWriter) -> list[Callable[[], None]]:
        """The steps that write the rows of the files under config/ that changed since the last batch."""
        entries = [entry for entry in self.store.folder("config") if not entry.is_folder]
        found = {entry.name: (entry.length, entry.mtime_ms) for entry in entries}
        known = self._config
        enable_lmq = self.timer.settings.value("enableLmq")
        changed = [
            table
            for table, names in config_files(enable_lmq=enable_lmq).items()
            if any(found.get(one) != known.get(one) for name in names for one in (name, f"{name}.bak"))
        ]
        if not changed:
            return []
        try:
            tables = config_rows(self.store, self.broker, enable_lmq=enable_lmq).tables
        except ConfigFileError as error:  # the broker is writing the file; the next batch reads it
            self.progress(str(error))
            return []
        self._config = found
        # most lakes have no table of 5.x; without rows, none is made
        there = [table for table in changed if table not in TABLES_OF_5 or tables[table].num_rows or table.name in lake.at.tables]
        return [partial(self._put_config, writer, table, tables[table]) for table in there]

    def _put_config(self, writer: LakeWriter, table: t.Table, rows: pa.Table) -> None:
        """Replace the rows of a table; merge consumer offsets, so that readers of the table's changes see which offsets a batch changed."""
        if table is t.CONSUMER_OFFSET:
            writer.prepare(table)
            writer.merge(table, frame_of(writer.spark, rows), table.key, all_of=self.broker)
        else:
            writer.replace_rows(table, rows)
