"""`pullsim lag`: consume_lag in the form of mqadmin consumerProgress.

Broker source (4.9.3): ConsumerProgressSubCommand.execute of the tools, AdminBrokerProcessor.getConsumeStats.
Rule: a row for each queue, sorted, and below them the sum of the differences.
Surprise: mqadmin counts a queue without a committed offset as one at offset 0, with all messages as lag. Here the lag of this queue is
unknown, and the line with the sum reports how many such queues it leaves out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.lake.lake import LakeError
from pipeline.settings.quantities import LAST_OF_YEAR_9999
from pipeline.settings.settings import nearest

# tables and views that are read for lag, and for the names of groups and topics
LAG_READS = "consume_lag, consumer_offset, subscription_group, subscription, queue, topic_config"


def queue_lags(
    spark: SparkSession, *, group: str | None, topic: str | None, until: dt.datetime | None, broker: str | None = None
) -> DataFrame:
    """Return the rows of consume_lag, sorted by broker, group, topic and queue.

    Args:
        spark: session with the lake's views.
        group: only this group, None for all.
        topic: only this topic, None for all.
        until: end of waiting times; None for the time of the store's last message.
        broker: only this broker, which the lake has; None for all.

    Raises:
        LakeError: the lake does not know the group or the topic.
    """
    rows = spark.table("consume_lag")
    if broker is not None:
        rows = rows.where(F.col("brokerName") == broker)
    if group is not None:
        require_known(spark, "consumerGroup", "consumer group", group, ("consumer_offset", "subscription_group", "subscription"))
        rows = rows.where(F.col("consumerGroup") == group)
    if topic is not None:
        require_known(spark, "topic", "topic", topic, ("consumer_offset", "queue", "topic_config"))
        rows = rows.where(F.col("topic") == topic)
    if until is not None:
        waited = F.try_subtract(F.lit(int(until.timestamp() * 1000)), F.col("asOf"))
        later = F.when(F.col("lag") == 0, F.col("lagMillis")).otherwise(F.try_add("lagMillis", waited))
        rows = rows.withColumn("lagMillis", later)
    return rows.orderBy("brokerName", "consumerGroup", "topic", "queueId")


def time_in_utc(millis: str) -> Column:
    """Return a column of ms since 1970 as text in UTC; NULL after the year 9999, as bytes that are no message can give any time."""
    return F.when(F.col(millis) <= LAST_OF_YEAR_9999, F.date_format(F.timestamp_millis(millis), "yyyy-MM-dd HH:mm:ss"))


def lag_rows(
    spark: SparkSession, *, group: str | None, topic: str | None, until: dt.datetime | None, broker: str | None = None
) -> DataFrame:
    """Return the rows of `queue_lags` with the column names of mqadmin consumerProgress."""
    last_time = time_in_utc("lastConsumedTimestamp")
    return queue_lags(spark, broker=broker, group=group, topic=topic, until=until).select(
        F.col("consumerGroup").alias("Group"),
        F.col("topic").alias("Topic"),
        F.col("brokerName").alias("Broker Name"),
        F.col("queueId").alias("QID"),
        F.col("brokerOffset").alias("Broker Offset"),
        F.col("consumerOffset").alias("Consumer Offset"),
        F.col("lag").alias("Diff"),
        F.coalesce(last_time, F.lit("N/A")).alias("LastTime"),
        (F.col("lagMillis") / 1000).cast("DECIMAL(20,3)").alias("Lag Seconds"),
        F.col("lagBytes").alias("Lag Bytes"),
        F.coalesce("reason", F.lit("")).alias("Reason"),
    )


def diff_total(diffs: Sequence[int | None]) -> str:
    """Return the line below the table: the sum of known lags, and how many queues have unknown or negative lag.

    Args:
        diffs: lag of each queue, None if it is unknown.
    """
    known = [diff for diff in diffs if diff is not None]
    below = [diff for diff in known if diff < 0]
    notes = []
    if not diffs:
        notes.append("no offset is stored")
    if len(known) < len(diffs):
        notes.append(f"{len(diffs) - len(known)} of {len(diffs)} queues left out: their lag is not known")
    if below:
        notes.append(f"{len(below)} of {len(diffs)} queues below zero take {-sum(below)} off")
    return f"Diff Total: {sum(known)}" + (f" ({'; '.join(notes)})" if notes else "")


def require_known(spark: SparkSession, column: str, what: str, name: str, tables: Sequence[str]) -> None:
    """Raise LakeError if no table of the lake has a name.

    Args:
        spark: session with the lake's views.
        column: column of the tables that has names.
        what: kind of the name, for the message.
        name: the name.
        tables: the tables to search.

    Raises:
        LakeError: no table has the name; the message has the most similar known names.
    """
    listed = reduce(DataFrame.union, (spark.table(table).select(column) for table in tables))
    known = sorted(row[0] for row in listed.dropna().distinct().collect())
    if name in known:
        return
    near = ", ".join(map(repr, nearest(name, known)))
    raise LakeError(f"the lake knows no {what} {name!r}; " + (f"the nearest known: {near}" if near else f"it knows no {what} at all"))
