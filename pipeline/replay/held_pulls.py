"""Pulls of files that the broker holds: which they are, when they are asked again, and that they are answered as of then.

Broker source (4.9.3): PullMessageProcessor.processRequest, case PULL_NOT_FOUND; PullRequestHoldService; NotifyMessageArrivingListener.
Rule: a pull with the suspend bit that finds nothing as of its time waits. What arrives are the entries of its queue, each at its
storeTimestamp. `woken_at` says when the pull is asked again, and it is answered as of that moment, whatever comes out.
Surprise: the log does not tell when the broker's service began to sweep: sweeps are taken to be at the whole multiples of their interval
since 1970.

A run of packed entries says when they would wake a pull; the least moment of all runs counts. So a pull meets the runs in which its wait
lies, one row each, and nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.expression_filters import filter_rules, looks_into_messages
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings, PullSettings
from store_format.queue.consume_queue import units_of
from store_format.queue.packed_ext_units import join_units
from store_format.remoting.headers import PullSysFlag
from udfs.filters.message_filter import ExpressionMessageFilter
from udfs.pull import get_message as gm
from udfs.pull.codes import ResponseCode
from udfs.pull.pull_filter import FilterRules, PullFilter, PullFilterError, entry_verdicts, tag_codes, with_units
from udfs.pull.pull_request_hold import NEVER, Arrivals, HeldRequest, is_swept, polling_time, sweep_interval, woken_at

# what a row of with_wakes needs of a run of entries, and of their properties
_RUN = ("firstQueueOffset", "entryCount", "entries", "extUnits", "storeTimestamps")
_PROPERTIES = ("partFirstOffset", "lengths", "properties")
_QUEUE = ("topic", "queueId")
TIMEOUT_NEEDED = 'a "suspendTimeoutMillis" in the request, whose sysFlag asks to be held'
_OF_REQUEST = ("seq", *_QUEUE, "consumerGroup", "queueOffset", "maxMsgNums", "heldMillis")
# in place of an answer
NEVER_WOKEN = "NEVER_WOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """The settings that say who waits how long: longPollingEnable, shortPollingTimeMills, and whether brokerRole is SLAVE."""

    long_polling_enable: bool
    short_polling_time_mills: int
    is_slave: bool

    @classmethod
    def of(cls, settings: BrokerSettings) -> Polling:
        """Those of a broker."""
        value = settings.value
        return cls(
            long_polling_enable=value("longPollingEnable"),
            short_polling_time_mills=value("shortPollingTimeMills"),
            is_slave=value("brokerRole") == "SLAVE",
        )

    @property
    def interval(self) -> int:
        """Between two sweeps, ms."""
        short = self.short_polling_time_mills
        return max(sweep_interval(long_polling_enable=self.long_polling_enable, short_polling_time_mills=short), 1)

    @property
    def arrivals_wake(self) -> bool:
        """Whether the pulls that wait are told of a message that arrives."""
        return self.long_polling_enable and not self.is_slave

    def time(self, suspend_timeout_millis: int) -> int:
        """How long a pull is ready to wait, ms."""
        return polling_time(
            suspend_timeout_millis, long_polling_enable=self.long_polling_enable, short_polling_time_mills=self.short_polling_time_mills
        )


def may_wait() -> Column:
    """Which requests ask to be held where nothing is found."""
    return F.coalesce(F.col("sysFlag").bitwiseAND(F.lit(int(PullSysFlag.SUSPEND))) != 0, F.lit(False))


def lacks_timeout() -> Column:
    """Which requests ask to be held without saying for how long; the broker throws for them."""
    return may_wait() & F.col("suspendTimeoutMillis").isNull()


def not_found(answers: DataFrame) -> DataFrame:
    """The answers that a pull with the suspend bit does not get, but waits."""
    return answers.where(F.col("error").isNull() & (F.col("code") == F.lit(int(ResponseCode.PULL_NOT_FOUND))))


def without_never_woken(answers: DataFrame) -> DataFrame:
    """Answers with wokenMillis (NEVER where nothing wakes the pull), such pulls with an error instead of an answer."""
    never = F.coalesce(F.col("wokenMillis") == F.lit(NEVER), F.lit(False))
    errors = F.when(never, F.lit(NEVER_WOKEN)).otherwise(F.col("error")).alias("error")
    own = {"error": errors} | {name: F.col(name) for name in _OF_REQUEST}
    return answers.select(*[own.get(name, F.when(~never, F.col(name)).alias(name)) for name in answers.columns])


def with_wakes(broker: OpenedBroker, held: DataFrame, *, settings: PullSettings, polling: Polling, into_messages: bool) -> DataFrame:
    """When each of some held pulls is asked again, as far as each run of entries tells it.

    Args:
        broker: whose store it is.
        held: rows with the columns of a request (SCHEMA of request_lines) and any others, held at their `timestamp`.
        settings: of the scan.
        polling: who waits how long.
        into_messages: whether filters may look into messages; else those that do are taken to match no message, so that the sweep
            behind a message asks their pulls again.

    Returns:
        Rows of `held` with `wakes` (ms, NEVER where nothing wakes the pull), one or more for each pull, of which the least counts.
    """
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    runs = segments.select(*_QUEUE, F.col("segment").alias("run"), *_RUN)
    indexed = held.join(_index(segments), list(_QUEUE), "left").withColumn("run", F.explode_outer(_runs_of_wait(polling))).drop("index")
    met = indexed.join(runs, [*_QUEUE, "run"], "left")
    if into_messages:
        parts = broker.table(t.CONSUME_QUEUE_PROPERTIES)
        part = parts.select(*_QUEUE, F.col("segment").alias("asked"), F.col("firstQueueOffset").alias("partFirstOffset"), *_PROPERTIES[1:])
        met = met.withColumn("asked", F.when(looks_into_messages(settings), F.col("run"))).join(part, [*_QUEUE, "asked"], "left")
    else:
        met = met.withColumns(dict.fromkeys(_PROPERTIES, F.lit(None)))
    met = met.select(*held.columns, *_RUN, *_PROPERTIES)
    waking = Waking(filter_rules(broker, settings), polling, with_extension=settings.enable_consume_queue_ext)
    schema = StructType([*held.schema.fields]).add("wakes", LongType())
    return met.mapInArrow(partial(_wakes, waking, held.columns), schema)


def _index(segments: DataFrame) -> DataFrame:
    """The runs of each queue in order, with the least stamp of each."""
    of_run = F.struct("segment", "minStoreTimestamp")
    return segments.groupBy(*_QUEUE).agg(F.sort_array(F.collect_list(of_run)).alias("index"))


def _runs_of_wait(polling: Polling) -> Column:
    """The runs that hold a message of the time in which a pull may wait: those between the last one that begins before it and its end."""
    waits = F.col("suspendTimeoutMillis") if polling.long_polling_enable else F.lit(polling.short_polling_time_mills)
    until = F.coalesce(F.try_add(F.try_add("timestamp", waits), F.lit(polling.interval)), F.lit(NEVER))

    def is_of_wait(one: Column, number: Column) -> Column:
        ends = F.get("index", number + 1)["minStoreTimestamp"]
        return (one["minStoreTimestamp"] <= until) & (ends.isNull() | (ends > F.col("timestamp")))

    return F.transform(F.filter("index", is_of_wait), lambda one: one["segment"])


@dataclass(frozen=True, slots=True)
class Waking:
    """What the waits of all pulls share."""

    rules: FilterRules
    polling: Polling
    with_extension: bool

    def moment(self, row: dict[str, Any]) -> int:
        """When a held pull is asked again, as far as one run of entries tells it."""
        try:
            wanted = self._filter(row)
        except PullFilterError:  # the broker refuses it instead
            return int(row["timestamp"])
        arrivals, matches = (_NONE, np.empty(0, np.bool_)) if row["entries"] is None else self._arrivals(row, wanted)
        pull = HeldRequest(
            request=None,
            timeout_millis=self.polling.time(row["suspendTimeoutMillis"]),
            suspend_timestamp=row["timestamp"],
            pull_from_this_offset=row["queueOffset"],
            message_filter=wanted,
        )
        interval = self.polling.interval
        wakes = woken_at(
            pull,
            arrivals,
            matches,
            first_sweep=0,
            interval=interval if is_swept(row["topic"]) else 0,
            wakes=self.polling.arrivals_wake,
        )
        return min(wakes, NEVER)

    def _filter(self, row: dict[str, Any]) -> ExpressionMessageFilter:
        if row["filterType"] is None:
            return ExpressionMessageFilter(None, None, self.rules.manager.bloom_filter)
        group = row["consumerGroup"] if row["registered"] else None
        asked = PullFilter(expression_type=row["filterType"], expression=row["expression"], registered_by=group)
        return self.rules.message_filter(row["topic"], asked)

    def _arrivals(self, row: dict[str, Any], wanted: ExpressionMessageFilter) -> tuple[Arrivals, NDArray[np.bool_]]:
        """The messages of a run, and which of them match."""
        count = row["entryCount"]
        stamps = np.frombuffer(row["storeTimestamps"], "<i8")[:count]
        offsets = row["firstQueueOffset"] + 1 + np.arange(count, dtype=np.int64)
        # one is there as soon as a later one is
        arrivals = Arrivals(times=np.minimum.accumulate(stamps[::-1])[::-1], offsets=offsets)
        packed = np.frombuffer(row["entries"], np.uint8)
        units = join_units([(row["extUnits"], len(units_of(packed)), count)]) if self.with_extension else None
        tags_codes = units_of(packed)["tagsCode"].astype(np.int64)[:count]
        codes, matches = tag_codes(wanted), self._by_messages(row, wanted, count)
        if codes is not None:
            matches &= np.isin((tags_codes if units is None else with_units(tags_codes, units)).astype(np.int32), codes)
        verdicts = entry_verdicts(wanted, units, None)
        return arrivals, matches & (verdicts == gm.MATCHES) if len(verdicts) else matches

    def _by_messages(self, row: dict[str, Any], wanted: ExpressionMessageFilter, count: int) -> NDArray[np.bool_]:
        """Which messages of a run match by what stands in them, of those whose properties the row has."""
        condition = wanted.commit_log_condition()
        if condition is None:
            return np.ones(count, np.bool_)
        out = np.zeros(count, np.bool_)
        if row["lengths"] is not None:
            lengths = np.frombuffer(row["lengths"], "<i4")
            verdicts = self.rules.verdicts(row["topic"], condition, lengths, np.frombuffer(row["properties"], np.uint8))
            first = row["partFirstOffset"] - row["firstQueueOffset"]
            known = verdicts[: max(count - first, 0)]
            out[first : first + len(known)] = known == gm.MATCHES
        return out


_NONE = Arrivals(times=np.empty(0, np.int64), offsets=np.empty(0, np.int64))


def _wakes(waking: Waking, columns: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        moments = [waking.moment(row) for row in batch.to_pylist()]
        yield batch.select(columns).append_column("wakes", pa.array(moments, pa.int64()))
