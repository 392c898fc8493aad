"""Long polling in a stream: pulls that may wait are kept in Spark's state until they are woken.

Broker source (4.9.3): PullRequestHoldService (pullRequestTable, run, checkHoldRequest, notifyMessageArriving), ManyPullRequest.
Rule: the current time is the latest timestamp of all requests and heartbeats so far, of any queue. A pull that may wait is kept under its
topic and queue until a message, a sweep or its timeout wakes it, as in a replay; then it is released once. The batch that answers the pull
decides whether it waited at all, and what it gets.
Surprise: the state sees the time of the previous batch. So Spark runs one more batch, without requests, after the time has advanced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, StatefulProcessorHandle, TimerValues

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.held_pulls import Polling, lacks_timeout, may_wait, with_wakes
from pipeline.settings.settings import BrokerSettings
from udfs.pull.pull_request_hold import NEVER

_QUEUE: Final = {"topic": "STRING", "queueId": "INT"}
# columns of a kept pull
KEPT: Final = _QUEUE | {
    "seq": "BIGINT",
    "consumerGroup": "STRING",
    "queueOffset": "BIGINT",
    "maxMsgNums": "INT",
    "filterType": "STRING",
    "expression": "STRING",
    "registered": "BOOLEAN",
    "timestamp": "BIGINT",
    "sysFlag": "INT",
    "suspendTimeoutMillis": "BIGINT",
    "recordedMaxOffset": "BIGINT",
    "source": "STRING",
    "sourceDigest": "STRING",
    "config": "STRING",
}
KEPT_SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in KEPT.items())
# the greatest time in ms that Spark can represent as a timestamp
_CLOCK_MAX = 253_402_300_799_999


def with_released(requests: DataFrame, broker: OpenedBroker, settings: BrokerSettings) -> DataFrame:
    """A stream of new requests and of kept requests that are woken; the column `released` is true for the latter.

    Args:
        requests: rows of STREAM_SCHEMA of request_stream.
        broker: the broker whose store is read.
        settings: of the broker.
    """
    clock = F.timestamp_millis(F.least(F.greatest("timestamp", F.lit(0)), F.lit(_CLOCK_MAX)))
    timed = requests.withColumn("clock", clock).withWatermark("clock", "0 seconds").drop("clock")
    waiting = timed.where(F.col("error").isNull() & F.col("timestamp").isNotNull() & may_wait() & ~lacks_timeout())
    kept = waiting.select(*KEPT)
    # filters that look into messages are not evaluated here: the sweep after a message wakes such a pull early enough
    wakes = with_wakes(broker, kept, settings=settings.pull_settings(), polling=Polling.of(settings), into_messages=False)
    grouped = wakes.groupBy(*_QUEUE)
    released = grouped.transformWithState(PullRequestTable(), KEPT_SCHEMA, "append", "EventTime")
    fresh = timed.withColumn("released", F.lit(False))
    return fresh.unionByName(released.withColumn("released", F.lit(True)), allowMissingColumns=True)


class PullRequestTable(StatefulProcessor):
    """Keeps the pulls of one queue, each until the moment at which it is woken.

    Its input are rows of `with_wakes`, one or more for each pull. Its output are rows of KEPT_SCHEMA, one for each released pull.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._held = handle.getMapState("pullRequestTable", "wakes BIGINT, sourceDigest STRING, seq BIGINT", KEPT_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802 (Spark's name)
        """Keep new pulls; release at once those whose moment has passed or never comes."""
        now = timerValues.getCurrentWatermarkInMs()
        for wakes, pull in _least_moments(rows).values():
            if wakes <= now or wakes == NEVER:
                yield _released(pull)
            else:
                self._held.updateValue((wakes, pull[_DIGEST], pull[_SEQ]), pull)
                self._handle.registerTimer(wakes)

    def handleExpiredTimer(  # noqa: N802 (Spark's name)
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Release the pulls whose moment has come."""
        now = expiredTimerInfo.getExpiryTimeInMs()
        for place, pull in list(self._held.iterator()):
            if place[0] <= now:
                self._held.removeKey(place)
                yield _released(tuple(pull))

    def close(self) -> None:
        """Do nothing, as no resource is open."""


_SEQ, _DIGEST = list(KEPT).index("seq"), list(KEPT).index("sourceDigest")


def _least_moments(rows: Iterator[Row]) -> dict[tuple[str, int], tuple[int, tuple[Any, ...]]]:
    """For each pull (sourceDigest, seq): the least moment of its rows, and the pull."""
    found: dict[tuple[str, int], tuple[int, tuple[Any, ...]]] = {}
    for row in rows:
        pull = tuple(row[name] for name in KEPT)
        same = pull[_DIGEST], pull[_SEQ]
        if same not in found or row["wakes"] < found[same][0]:
            found[same] = row["wakes"], pull
    return found


def _released(pull: tuple[Any, ...]) -> Row:
    return Row(*KEPT)(*pull)
