"""`pullsim lag`: consume_lag in the form of mqadmin consumerProgress.

Broker source (4.9.3): ConsumerProgressSubCommand.execute of the tools, AdminBrokerProcessor.getConsumeStats.
Rule: a row for each queue, sorted, and below them the sum of the differences.
Surprise: mqadmin counts a queue without a committed offset as one at offset 0, with all messages as lag. Here the lag of this queue is
unknown, and the line with the sum reports how many such queues it leaves out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.lag.lag_sql import GROUPS, TOPICS, AskedLag, require_name
from pipeline.lake.asking import known_names
from pipeline.settings.quantities import LAST_OF_YEAR_9999

# tables and views that are read for lag, and for the names of groups and topics
LAG_READS = f"consume_lag, {', '.join(sorted({*GROUPS[2], *TOPICS[2]}))}"


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
    if group is not None:
        require_known(spark, GROUPS[0], GROUPS[1], group, GROUPS[2])
    if topic is not None:
        require_known(spark, TOPICS[0], TOPICS[1], topic, TOPICS[2])
    return spark.sql(AskedLag(broker=broker, group=group, topic=topic, until=until).queue_lags)


def time_in_utc(millis: str) -> Column:
    """Return a column of ms since 1970 as text in UTC; NULL after the year 9999, as bytes that are no message can give any time."""
    return F.when(F.col(millis) <= LAST_OF_YEAR_9999, F.date_format(F.timestamp_millis(millis), "yyyy-MM-dd HH:mm:ss"))


def lag_rows(
    spark: SparkSession, *, group: str | None, topic: str | None, until: dt.datetime | None, broker: str | None = None
) -> DataFrame:
    """Return the rows of `queue_lags` with the column names of mqadmin consumerProgress; arguments and errors are those of `queue_lags`."""
    queue_lags(spark, broker=broker, group=group, topic=topic, until=until)  # the names are known
    return spark.sql(AskedLag(broker=broker, group=group, topic=topic, until=until).consumer_progress)


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
    require_name(what, name, [row[0] for row in spark.sql(known_names(column, tables)).collect()])
