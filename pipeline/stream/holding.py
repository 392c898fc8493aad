"""Long polling in a stream: pulls that may wait are kept in Spark's state until they are woken.

Broker source (4.9.3): PullRequestHoldService (pullRequestTable, run, checkHoldRequest, notifyMessageArriving), ManyPullRequest.
Rule: the current time is the latest timestamp of all requests and heartbeats so far, of any queue. A pull that may wait is kept until a
message, a sweep or its timeout wakes it, as in a replay; then it is released once. The batch that answers the pull decides whether it
waited at all, and what it gets.
Surprise: the state sees the time of the previous batch. So Spark runs one more batch, without requests, after the time has advanced.
Surprise: with transformWithState, each task of each batch would leave a socket open (SPARK-58932, not fixed in 4.2.0).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.held_pulls import Polling, lacks_timeout, may_wait, with_wakes
from pipeline.settings.settings import BrokerSettings
from udfs.pull.pull_request_hold import NEVER

# columns of a kept pull
KEPT: Final = {
    "seq": "BIGINT",
    "topic": "STRING",
    "queueId": "INT",
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
# number of lines of a file whose pulls are kept together, whatever their queues: half a MB without long filters and configurations
_LINES_TOGETHER = 1 << 10
# pulls that are kept together: a JSON object from each pull to the ms when it is woken; Spark 4.2.0 does not read an array type here
_STATE = "kept STRING"
# the greatest time in ms that Spark can represent as a timestamp
_CLOCK_MAX = 253_402_300_799_999
# metadata by which Spark recognizes a column with a watermark
_WATERMARK = {"spark.watermarkDelayMs": 0}


def with_released(requests: DataFrame, broker: OpenedBroker, settings: BrokerSettings) -> DataFrame:
    """A stream of new requests and of kept requests that are woken; the column `released` is true for the woken ones.

    Args:
        requests: rows of STREAM_SCHEMA of request_stream.
        broker: the broker whose store is read.
        settings: settings of the broker.
    """
    clock = F.timestamp_millis(F.least(F.greatest("timestamp", F.lit(0)), F.lit(_CLOCK_MAX)))
    timed = requests.withColumn("clock", clock).withWatermark("clock", "0 seconds").drop("clock")
    waiting = timed.where(F.col("error").isNull() & F.col("timestamp").isNotNull() & may_wait() & ~lacks_timeout())
    kept = waiting.select(*KEPT)
    # filters that look into messages are not evaluated here: the sweep after a message wakes a pull with one early enough
    wakes = with_wakes(broker, kept, settings=settings.pull_settings(), polling=Polling.of(settings), into_messages=False)
    together = wakes.select("sourceDigest", _block(), "wakes", _as_text(), _no_clock())
    grouped = together.groupBy("sourceDigest", "block")
    texts = grouped.applyInPandasWithState(hold, "pull STRING", _STATE, "append", GroupStateTimeout.EventTimeTimeout)
    released = texts.select(F.from_json("pull", KEPT_SCHEMA).alias("pull")).select("pull.*")
    fresh = timed.withColumn("released", F.lit(False))
    return fresh.unionByName(released.withColumn("released", F.lit(True)), allowMissingColumns=True)


def _block() -> Column:
    return F.expr(f"seq DIV {_LINES_TOGETHER}").alias("block")


def _as_text() -> Column:
    """A pull as JSON: pandas has no integers beside NULL."""
    return F.to_json(F.struct(*KEPT)).alias("pull")


def _no_clock() -> Column:
    """A NULL time with a watermark. Only with such a column can the state see the watermark; as it is NULL, Spark drops no pull as late."""
    return F.lit(None).cast("TIMESTAMP").alias("clock", metadata=_WATERMARK)


def hold(_key: tuple[str, int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Keep new pulls, and release the pulls that are woken by now and those that nothing will wake.

    Args:
        frames: rows of `wakes`, ms, and `pull`; one or more for each new pull, of which the least `wakes` counts.
        state: the kept pulls, as _STATE says; its time is the clock of the stream.

    Yields:
        A frame with the released pulls.
    """
    now = state.getCurrentWatermarkMs()
    moments = dict[str, int]()
    for frame in frames:
        for wakes, pull in zip(frame["wakes"].tolist(), frame["pull"].tolist(), strict=True):
            moments[pull] = min(wakes, moments.get(pull, NEVER))
    if state.exists:
        moments |= json.loads(state.get[0])
    kept = {pull: wakes for pull, wakes in moments.items() if now < wakes < NEVER}
    if kept:
        state.update((json.dumps(kept),))
        state.setTimeoutTimestamp(max(min(kept.values()) - 1, 1))  # it times out once the clock is later than this time
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"pull": [pull for pull in moments if pull not in kept]}, dtype=object)
