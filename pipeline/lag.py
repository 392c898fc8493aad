"""`pullsim lag`: consume_lag under the column names of mqadmin consumerProgress."""

from __future__ import annotations

import datetime as dt

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def lag_rows(spark: SparkSession, *, group: str | None, topic: str | None, until: dt.datetime | None) -> DataFrame:
    """The lag table.

    Args:
        spark: session with the lake's views.
        group: only this group.
        topic: only this topic.
        until: count waiting time to this moment instead of the store's last message.
    """
    rows = spark.table("consume_lag")
    if group is not None:
        rows = rows.where(F.col("consumerGroup") == group)
    if topic is not None:
        rows = rows.where(F.col("topic") == topic)
    lag_millis = F.col("lagMillis")
    if until is not None:
        waited = F.lit(int(until.timestamp() * 1000)) - F.col("asOf")
        lag_millis = F.when(F.col("lag") == 0, F.lit(0)).otherwise(F.col("lagMillis") + waited)
    return rows.orderBy("brokerName", "consumerGroup", "topic", "queueId").select(
        F.col("consumerGroup").alias("Group"),
        F.col("topic").alias("Topic"),
        F.col("brokerName").alias("Broker Name"),
        F.col("queueId").alias("QID"),
        F.col("brokerOffset").alias("Broker Offset"),
        F.col("consumerOffset").alias("Consumer Offset"),
        F.col("lag").alias("Diff"),
        F.date_format(F.timestamp_millis("lastConsumedTimestamp"), "yyyy-MM-dd HH:mm:ss").alias("LastTime"),
        (lag_millis / 1000).cast("DECIMAL(20,3)").alias("Lag Seconds"),
        F.col("lagBytes").alias("Lag Bytes"),
        F.col("reason").alias("Reason"),
    )
