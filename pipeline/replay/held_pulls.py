"""Held pulls: which pulls of a file the broker holds, and when it wakes each (runs it again).

Broker source (4.9.3): PullMessageProcessor.processRequest, case PULL_NOT_FOUND; PullRequestHoldService; NotifyMessageArrivingListener.
Rule: a pull with the suspend bit that finds no message as of its time waits. Each entry of its queue arrives at its storeTimestamp.
`woken_at` gives the moment when the pull is woken; the pull is answered as of this moment, whatever it finds.
Surprise: the log does not show when the broker's hold service started to sweep. Sweeps are assumed at the multiples of their interval since
1970.

Each pull is joined with the segments ("runs") of entries that arrive while it may wait, one row for each. A row gives the moment at which
its entries would wake the pull; the least moment counts. So nothing is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from udfs.broker.broker_rules import BrokerRules
from udfs.filters.message_filter import ExpressionMessageFilter
from udfs.pull import get_message as gm
from udfs.pull.codes import ResponseCode
from udfs.pull.pull_filter import FilterRules, PullFilter, PullFilterError, entry_verdicts, tag_codes, with_units
from udfs.pull.pull_request_hold import NEVER, Arrivals, HeldRequest, is_swept, polling_time, sweep_interval, woken_at

# columns of a segment of entries, and of the properties of its messages, that with_wakes needs
_RUN = ("firstQueueOffset", "entryCount", "entries", "extUnits", "storeTimestamps")
_PROPERTIES = ("partFirstOffset", "lengths", "properties")
_QUEUE = ("topic", "queueId")
# the values of these columns for a pull during whose wait no message may arrive
NO_RUN: Final[Mapping[str, Any]] = dict.fromkeys((*_RUN, *_PROPERTIES))
TIMEOUT_NEEDED = 'a "suspendTimeoutMillis" in the request, whose sysFlag asks to be held'
# columns that the answer to a pull that is never woken keeps; its other columns are NULL
OF_REQUEST = ("seq", *_QUEUE, "consumerGroup", "queueOffset", "maxMsgNums", "heldMillis")
# error code of a held pull that is never woken
NEVER_WOKEN = "NEVER_WOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """Settings that determine how long a pull waits.

    Attributes:
        long_polling_enable: longPollingEnable.
        short_polling_time_mills: shortPollingTimeMills.
        arrivals_wake: whether an arriving message wakes the pulls that wait for it.
        enable_lmq: enableLmq.
    """

    long_polling_enable: bool
    short_polling_time_mills: int
    arrivals_wake: bool
    enable_lmq: bool

    @classmethod
    def of(cls, settings: BrokerSettings) -> Polling:
        """The polling settings of a broker."""
        value = settings.value
        is_deaf = value("brokerRole") == "SLAVE" and not BrokerRules.of(settings.version).arrivals_wake_on_slaves
        return cls(
            long_polling_enable=value("longPollingEnable"),
            short_polling_time_mills=value("shortPollingTimeMills"),
            arrivals_wake=value("longPollingEnable") and not is_deaf,
            enable_lmq=value("enableLmq"),
        )

    @property
    def interval(self) -> int:
        """Time between two sweeps in ms."""
        short = self.short_polling_time_mills
        return max(sweep_interval(long_polling_enable=self.long_polling_enable, short_polling_time_mills=short), 1)

    def until(self, timestamp: int, suspend_timeout_millis: int) -> int:
        """The last moment, ms, at which a message may wake a pull that waits from `timestamp` on."""
        waits = suspend_timeout_millis if self.long_polling_enable else self.short_polling_time_mills
        until = timestamp + waits + self.interval
        return until if max(abs(timestamp + waits), abs(until)) <= NEVER else NEVER

    def time(self, suspend_timeout_millis: int) -> int:
        """How long a pull with this suspendTimeoutMillis waits at most, in ms."""
        return polling_time(
            suspend_timeout_millis, long_polling_enable=self.long_polling_enable, short_polling_time_mills=self.short_polling_time_mills
        )


def may_wait() -> Column:
    """Whether a request has the suspend bit, so that the broker holds it when it finds no message."""
    return F.coalesce(F.col("sysFlag").bitwiseAND(F.lit(int(PullSysFlag.SUSPEND))) != 0, F.lit(False))


def may_wait_here(requests: pa.Table) -> pa.ChunkedArray:
    """As `may_wait`, for requests on the driver."""
    bits = pc.bit_wise_and(requests["sysFlag"], pa.scalar(int(PullSysFlag.SUSPEND), requests["sysFlag"].type))
    return pc.fill_null(pc.not_equal(bits, 0), fill_value=False)


def lacks_timeout() -> Column:
    """Whether a request has the suspend bit but no suspendTimeoutMillis; the broker throws an exception for such a request."""
    return may_wait() & F.col("suspendTimeoutMillis").isNull()


def lacks_timeout_here(requests: pa.Table) -> pa.ChunkedArray:
    """As `lacks_timeout`, for requests on the driver."""
    return pc.and_(may_wait_here(requests), pc.is_null(requests["suspendTimeoutMillis"]))


def not_found(answers: DataFrame) -> DataFrame:
    """The answers with the code PULL_NOT_FOUND; a pull with the suspend bit waits instead of getting one."""
    return answers.where(F.col("error").isNull() & (F.col("code") == F.lit(int(ResponseCode.PULL_NOT_FOUND))))


def without_never_woken(answers: DataFrame) -> DataFrame:
    """Replace the answers to pulls that are never woken (wokenMillis = NEVER) by the error NEVER_WOKEN."""
    never = F.coalesce(F.col("wokenMillis") == F.lit(NEVER), F.lit(False))
    errors = F.when(never, F.lit(NEVER_WOKEN)).otherwise(F.col("error")).alias("error")
    own = {"error": errors} | {name: F.col(name) for name in OF_REQUEST}
    return answers.select(*[own.get(name, F.when(~never, F.col(name)).alias(name)) for name in answers.columns])


def with_wakes(broker: OpenedBroker, held: DataFrame, *, settings: PullSettings, polling: Polling, into_messages: bool) -> DataFrame:
    """Find when held pulls are woken, for each segment of entries separately.

    Args:
        broker: the broker whose store is read.
        held: rows with the columns of request_lines.SCHEMA and any others; a pull starts to wait at its `timestamp`.
        settings: of the scan.
        polling: polling settings of the broker.
        into_messages: whether to evaluate filters that look into messages; if not, such a filter matches no message, and its pull is
            woken by the first sweep after a message.

    Returns:
        Rows of `held` with `wakes` in ms, NEVER if nothing wakes the pull. A pull has one or more rows; its least `wakes` counts.
    """
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    runs = segments.select(*_QUEUE, F.col("segment").alias("run"), *_RUN)
    indexed = held.join(_index(segments), list(_QUEUE), "left").withColumn("run", F.explode_outer(_runs_of_wait(polling))).drop("index")
    joined = indexed.join(runs, [*_QUEUE, "run"], "left")
    if into_messages:
        parts = broker.table(t.CONSUME_QUEUE_PROPERTIES)
        part = parts.select(*_QUEUE, F.col("segment").alias("ofRun"), F.col("firstQueueOffset").alias("partFirstOffset"), *_PROPERTIES[1:])
        joined = joined.withColumn("ofRun", F.when(looks_into_messages(settings), F.col("run"))).join(part, [*_QUEUE, "ofRun"], "left")
    else:
        joined = joined.withColumns(dict.fromkeys(_PROPERTIES, F.lit(None)))
    joined = joined.select(*held.columns, *_RUN, *_PROPERTIES)
    waking = Waking(filter_rules(broker, settings), polling, with_extension=settings.enable_consume_queue_ext)
    schema = StructType([*held.schema.fields]).add("wakes", LongType())
    return joined.mapInArrow(partial(_wakes, waking, held.columns), schema)


def _index(segments: DataFrame) -> DataFrame:
    """For each queue, the array `index`: its segments in order, each with its least storeTimestamp."""
    of_run = F.struct("segment", "minStoreTimestamp")
    return segments.groupBy(*_QUEUE).agg(F.sort_array(F.collect_list(of_run)).alias("index"))


def _runs_of_wait(polling: Polling) -> Column:
    """The segments with a message that may arrive while a pull waits, from the `index` of its queue."""
    waits = F.col("suspendTimeoutMillis") if polling.long_polling_enable else F.lit(polling.short_polling_time_mills)
    until = F.coalesce(F.try_add(F.try_add("timestamp", waits), F.lit(polling.interval)), F.lit(NEVER))

    def is_of_wait(one: Column, number: Column) -> Column:
        ends = F.get("index", number + 1)["minStoreTimestamp"]
        return (one["minStoreTimestamp"] <= until) & (ends.isNull() | (ends > F.col("timestamp")))

    return F.transform(F.filter("index", is_of_wait), lambda one: one["segment"])


@dataclass(frozen=True, slots=True)
class Waking:
    """Finds when held pulls are woken.

    Attributes:
        rules: the broker's filters.
        polling: polling settings of the broker.
        with_extension: whether entries may have extension units.
    """

    rules: FilterRules
    polling: Polling
    with_extension: bool

    def moment(self, row: dict[str, Any]) -> int:
        """When a held pull is woken, in ms; `row` has the pull and one segment of entries."""
        try:
            wanted = self._filter(row)
        except PullFilterError:  # the broker refuses the pull instead of holding it
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
            interval=interval if is_swept(row["topic"], enable_lmq=self.polling.enable_lmq) else 0,
            wakes=self.polling.arrivals_wake,
        )
        return min(wakes, NEVER)

    def _filter(self, row: dict[str, Any]) -> ExpressionMessageFilter:
        if row["filterType"] is None:
            return ExpressionMessageFilter(None, None, self.rules.manager.bloom_filter)
        group = row["consumerGroup"] if row["registered"] else None
        pull_filter = PullFilter(expression_type=row["filterType"], expression=row["expression"], registered_by=group)
        return self.rules.message_filter(row["topic"], pull_filter)

    def _arrivals(self, row: dict[str, Any], wanted: ExpressionMessageFilter) -> tuple[Arrivals, NDArray[np.bool_]]:
        """The arrivals of a segment's messages, and which of them match the filter `wanted`."""
        count = row["entryCount"]
        stamps = np.frombuffer(row["storeTimestamps"], "<i8")[:count]
        offsets = row["firstQueueOffset"] + 1 + np.arange(count, dtype=np.int64)
        # a message is visible as soon as a later message of its queue is
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
        """Which messages of a segment match the filter's condition on properties; False for messages whose properties the row lacks."""
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
