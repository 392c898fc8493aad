"""`pullsim retention`: which messages groups will lose to the deletion of old files, when, and which fileReservedTime would prevent it.

The driver forecasts the deletion of each file of the commit log (one for each GiB). A row for each group and queue is then joined with the
queue's messages in each file. Columns that need no forecast come from the view retention_risk.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.lag.lag import LAG_READS, require_known, time_in_utc
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.views import create_views
from pipeline.settings.quantities import LAST_OF_YEAR_9999
from pipeline.settings.settings import BrokerSettings, camel_case
from udfs.cleaning.clean_commit_log import CleanSettings
from udfs.cleaning.log_retention import Deletion, Disk, LogFile, Outlook, Share, aged_from, file_deletions, loss_of

NOT_DELETED, NO_RATE, IN_TIME, NO_FILE = "NOT_DELETED", "NO_RATE", "IN_TIME", "NO_FILE"
_READS = f"retention_risk, log_file_deletion, store_file, consume_queue, broker, {LAG_READS}"
_LATE = 86_400_000  # ms; a file's last write may be this much later than its last message
_RISK = (
    *("brokerName", "consumerGroup", "topic", "queueId", "consumerOffset", "minOffset", "brokerOffset", "lostMessages"),
    "consumerOffsetPerHour AS consumedPerHour",
    "CASE WHEN reason IN ('NO_OFFSET', 'NO_QUEUE', 'NOTHING_WAITS') THEN reason END AS whyNot",
    "greatest(consumerOffset, minOffset) AS nextOffset",
)
_SHARES = """
WITH wanted AS (
  SELECT r.brokerName, r.topic, r.queueId, min(r.nextOffset) AS nextOffset, any_value(b.mappedFileSizeCommitLog) AS fileSize
  FROM risk r JOIN broker b ON b.brokerName = r.brokerName
  WHERE r.whyNot IS NULL
  GROUP BY r.brokerName, r.topic, r.queueId
), share AS (
  SELECT
    e.topic, e.queueId, e.physicOffset - e.physicOffset % w.fileSize AS from_offset,
    min(e.queueOffset) AS first, max(e.queueOffset) + 1 AS end, sum(e.size) AS size
  FROM consume_queue e
  JOIN wanted w
    ON e.brokerName = w.brokerName AND e.topic = w.topic AND e.queueId = w.queueId AND e.queueOffset >= w.nextOffset
  WHERE e.size < 2147483647
  GROUP BY ALL
)
SELECT topic, queueId, array_sort(collect_list(struct(from_offset, first, end, size))) AS shares FROM share GROUP BY topic, queueId"""
_NOT_TOLD = ("whyNot", "nextOffset")
_FORECAST = {
    "nextFile": "BIGINT",
    "deletedAt": "BIGINT",
    "cause": "STRING",
    "lossAt": "BIGINT",
    "lossMessages": "BIGINT",
    "lossBytes": "BIGINT",
    "minOffsetThen": "BIGINT",
    "neededReservedHours": "BIGINT",
    "reason": "STRING",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionQuestion:
    """The arguments of a forecast of deletions.

    Attributes:
        settings: settings of the broker.
        zone: time zone of the broker's clock.
        group: only this group; None for all.
        at: start of the forecast, ms; None for the time of the store's last message.
        rate: messages a second that each group consumes of each queue; None for the rates in lag_history.
        growth: growth of the log, bytes a second; None for the growth in its last day.
        disk_size: bytes of the disk; None for a disk that is never full.
        disk_used: used bytes of the disk; None for the bytes of the store.
    """

    settings: BrokerSettings
    zone: dt.tzinfo
    group: str | None = None
    at: int | None = None
    rate: float | None = None
    growth: float | None = None
    disk_size: int | None = None
    disk_used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast of a broker's commit log.

    Attributes:
        outlook: input of the forecast.
        deletions: first offset of a file -> its deletion.
        aging: first offset of a file -> when it begins to age.
        times_are_late: whether files were last written after the store's last message, because a copy did not keep their times.
    """

    outlook: Outlook
    deletions: Mapping[int, Deletion]
    aging: Mapping[int, int | None]
    times_are_late: bool


def retention(broker: OpenedBroker, question: RetentionQuestion) -> tuple[Forecast, DataFrame]:
    """Return the forecast of a broker's commit log, and a row for each group and queue; docs/retention.md has the columns.

    Raises:
        LakeError: the lake has no file of the log or not the group, or the time or the disk's size is impossible.
    """
    spark = create_views(broker.lake, _READS)
    if question.group is not None:
        require_known(spark, "consumerGroup", "consumer group", question.group, ("consumer_offset", "subscription_group", "subscription"))
    forecast = _forecast(spark, broker.name, question)
    return forecast, _losses(spark, broker.name, question, forecast)


def _forecast(spark: SparkSession, broker: str, question: RetentionQuestion) -> Forecast:
    mine = F.col("brokerName") == broker
    (known,) = spark.table("broker").where(mine).collect()
    since = known["maxStoreTimestamp"] if question.at is None else question.at
    if not 0 <= since <= LAST_OF_YEAR_9999:
        raise LakeError(f"expected a time from 1970 to the year 9999 to look ahead from, in ms, found {since}; give one with --at")
    stored = spark.table("store_file").where(mine)
    # a file that the broker created at its start has no modification time
    modified = F.when(F.col("mtimeMs") > 0, F.col("mtimeMs")).otherwise(since)
    log = stored.where("kind = 'commitlog'").select("fromOffset", modified, "length").orderBy("fromOffset").collect()
    if not log:
        raise LakeError(f"expected files of the commit log of broker {broker!r} in store_file, found none; import the store")
    files = [LogFile(*row) for row in log]
    growth = question.growth
    if growth is None:
        (found,) = spark.table("log_file_deletion").where(mine).agg(F.max("growth").alias("growth")).collect()
        growth = found["growth"]
    room = files[-1].from_offset + files[-1].length - known["maxPhyOffset"]
    outlook = Outlook(
        since=since,
        zone=question.zone,
        settings=CleanSettings(**{field.name: question.settings.value(camel_case(field.name)) for field in fields(CleanSettings)}),
        growth=growth,
        fills_at=since + int(room * 1000 / growth) if growth > 0 else None,
        disk=None if question.disk_size is None else _disk(question.disk_size, question.disk_used, stored),
    )
    return Forecast(
        outlook=outlook,
        deletions=dict(zip((file.from_offset for file in files), file_deletions(files, outlook), strict=False)),
        aging=aged_from(files, outlook),
        times_are_late=any(file.modified > known["maxStoreTimestamp"] + _LATE for file in files[:-1]),
    )


def _disk(size: int, used: int | None, files: DataFrame) -> Disk:
    if used is None:
        (found,) = files.agg(F.sum("length").alias("used")).collect()
        used = found["used"] or 0
    if used > size:
        raise LakeError(f"expected a disk of at least {used} bytes, which are used, found --disk-size {size}")
    return Disk(size, used)


def _losses(spark: SparkSession, broker: str, question: RetentionQuestion, forecast: Forecast) -> DataFrame:
    risks = spark.table("retention_risk").where(F.col("brokerName") == broker).selectExpr(*_RISK)
    if question.group is not None:
        risks = risks.where(F.col("consumerGroup") == question.group)
    if question.rate is not None:
        risks = risks.withColumn("consumedPerHour", F.lit(question.rate * 3600))
    risks.createOrReplaceTempView("risk")
    shares = spark.sql(_SHARES)
    types = dict(risks.drop(*_NOT_TOLD).dtypes) | _FORECAST
    given = risks.join(shares, ["topic", "queueId"], "left").select(*risks.columns, "shares")
    found = given.mapInArrow(partial(_foreseen, forecast), ", ".join(f"{name} {kind}" for name, kind in types.items()))
    return found.orderBy(F.col("lossAt").asc_nulls_last(), F.col("deletedAt").asc_nulls_last(), "consumerGroup", "topic", "queueId")


def _foreseen(forecast: Forecast, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        known = batch.drop_columns([*_NOT_TOLD, "shares"])
        rows = batch.select([*_NOT_TOLD, "shares", "consumedPerHour", "minOffset"])
        forecasts = [_row(forecast, **row) for row in rows.to_pylist()]
        kinds = {"BIGINT": pa.int64(), "STRING": pa.string()}
        columns = [pa.array([row.get(name) for row in forecasts], kinds[kind]) for name, kind in _FORECAST.items()]
        yield pa.RecordBatch.from_arrays([*known.columns, *columns], [*known.schema.names, *_FORECAST])


def _row(
    forecast: Forecast,
    *,
    whyNot: str | None,
    nextOffset: int,
    shares: list[dict[str, int]] | None,
    consumedPerHour: float | None,
    minOffset: int,
) -> dict[str, Any]:
    if whyNot:
        return {"reason": whyNot}
    mine = [Share(**share) for share in shares or () if share["end"] > nextOffset]
    if not mine:
        return {"reason": NO_FILE}
    rate = None if consumedPerHour is None else consumedPerHour / 3600
    loss = loss_of(mine, nextOffset, rate, forecast.outlook, forecast.deletions, forecast.aging, minOffset)
    return {
        "nextFile": loss.next_file,
        "deletedAt": loss.deletion.time if loss.deletion else None,
        "cause": loss.deletion.cause if loss.deletion else None,
        "lossAt": loss.loss_at,
        "lossMessages": loss.messages,
        "lossBytes": loss.size,
        "minOffsetThen": loss.min_offset,
        "neededReservedHours": loss.needed_reserved_hours,
        "reason": NO_RATE if rate is None else None if loss.loss_at is not None else IN_TIME if loss.deletion else NOT_DELETED,
    }


def for_people(rows: DataFrame) -> DataFrame:
    """Return the rows with their times as texts in UTC."""
    return rows.withColumns({name: time_in_utc(name) for name in ("deletedAt", "lossAt")})
