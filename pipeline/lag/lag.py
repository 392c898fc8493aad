"""`pullsim lag`: consume_lag as people know it from mqadmin consumerProgress.

Broker source (4.9.3): ConsumerProgressSubCommand.execute of the tools, AdminBrokerProcessor.getConsumeStats.
Rule: a row a queue, sorted, and the sum of the differences below.
Surprise: mqadmin takes a queue without a stored offset for one at offset 0 and counts all of its messages. Here its lag is not known, and
the sum says so.
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

# what it takes to show lag, and to know the names of groups and topics
LAG_READS = "consume_lag, consumer_offset, subscription_group, subscription, queue, topic_config"


def queue_lags(
    spark: SparkSession, *, group: str | None, topic: str | None, until: dt.datetime | None, broker: str | None = None
) -> DataFrame:
    """Rows of consume_lag, sorted by broker, group, topic and queue.

    Args:
        spark: session with the lake's views.
        group: only this group.
        topic: only this topic.
        until: count waiting time to this moment instead of the store's last message.
        broker: only this broker, which the lake has.

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
    """A column of ms since 1970 as text for people; NULL past the year 9999: a time from bytes that are no message can be any number."""
    return F.when(F.col(millis) <= LAST_OF_YEAR_9999, F.date_format(F.timestamp_millis(millis), "yyyy-MM-dd HH:mm:ss"))


def lag_rows(
    spark: SparkSession, *, group: str | None, topic: str | None, until: dt.datetime | None, broker: str | None = None
) -> DataFrame:
    """What `queue_lags` gives, under the column names of mqadmin consumerProgress."""
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
    """The line below the table: the sum of the known differences, and what it leaves out or nets off.

    Args:
        diffs: lag of each queue, None where it is not known.
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
    """Refuse a name that no table of the lake has.

    Args:
        spark: session with the lake's views.
        column: of the tables.
        what: it is a name of.
        name: that was asked for.
        tables: that may have it.

    Raises:
        LakeError: none has it; the nearest known ones are told.
    """
    listed = reduce(DataFrame.union, (spark.table(table).select(column) for table in tables))
    known = sorted(row[0] for row in listed.dropna().distinct().collect())
    if name in known:
        return
    near = ", ".join(map(repr, nearest(name, known)))
    raise LakeError(f"the lake knows no {what} {name!r}; " + (f"the nearest known: {near}" if near else f"it knows no {what} at all"))
