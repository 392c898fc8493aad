"""Consumer lag of one broker, as the gauges of apache/rocketmq-exporter.

Source (rocketmq-exporter): names and labels are those of RMQMetricsCollector, sums those of MetricsCollectTask.collectTopicOffset and
collectConsumerOffset. A retry topic and a dead letter topic have metrics of their own.
Surprise: the exporter counts a queue without a committed offset as one at offset 0, and measures waiting time until now. Here such a queue
is left out, as in consume_lag, and waiting time ends at the store's last message. A store has no data about online clients, so that label
is empty. Broadcasting groups keep their offsets at the clients, so every group with an offset in the store is a clustering group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline.lag.metrics import metric

# greatest number of pairs of group and topic, and of topics: each is a series that Prometheus stores
GROUPS_MAX = 1000
TOPICS_MAX = 1000

# tables and views that the metrics read
LAG_METRICS_READ = "consume_lag, queue"
_RETRY, _DLQ = "%RETRY%", "%DLQ%"
# ordinal of MessageModel.CLUSTERING
_CLUSTERING = "1"


@dataclass(frozen=True, slots=True)
class LagMetrics:
    """The gauges, and the numbers of pairs of group and topic and of topics that were left out."""

    families: tuple[Metric, ...]
    groups_left_out: int
    topics_left_out: int


def lag_metrics(spark: SparkSession, broker: str, cluster: str) -> LagMetrics:
    """Return the gauges of a broker, of at most GROUPS_MAX groups, those with the greatest lag.

    Args:
        spark: session with the lake's views.
        broker: name of the broker.
        cluster: the broker's brokerClusterName.
    """
    lags = spark.table("consume_lag").where(F.col("brokerName") == broker).groupBy("consumerGroup", "topic")
    sums = lags.agg(F.try_sum("lag").alias("lag"), F.try_sum("consumerOffset").alias("offset"), F.max("lagMillis").alias("lagMillis"))
    groups, groups_left_out = _first(sums, GROUPS_MAX, F.desc_nulls_last("lag"), F.asc("consumerGroup"), F.asc("topic"))
    queues = spark.table("queue").where(F.col("brokerName") == broker).groupBy("topic")
    topics, topics_left_out = _first(queues.agg(F.sum("maxOffset").alias("offset")), TOPICS_MAX, F.asc("topic"))

    at_broker = {"cluster": cluster, "broker": broker}
    families = [*_of_groups(groups, at_broker), *_of_topics(topics, at_broker)]
    return LagMetrics(tuple(families), groups_left_out, topics_left_out)


def _first(rows: DataFrame, most: int, *order: object) -> tuple[list[Row], int]:
    """Return the first `most` rows in an order, and the number of the other rows."""
    found = rows.orderBy(*order).limit(most + 1).collect()  # type: ignore[arg-type]
    return found[:most], rows.count() - most if len(found) > most else 0


def _of_groups(rows: Sequence[Row], at_broker: dict[str, str]) -> list[Metric]:
    def diff(row: Row) -> dict[str, str]:
        return {"group": row["consumerGroup"], "topic": row["topic"], "countOfOnlineConsumers": "", "msgModel": _CLUSTERING}

    def of_group(row: Row) -> dict[str, str]:
        return at_broker | {"topic": row["topic"], "group": row["consumerGroup"]}

    retry, dlq, others = _by_kind(rows)
    millis = "How long the next message of a group has waited in ms, until the last message of the store."
    return [
        _gauge("rocketmq_group_diff", "Messages that a group is behind.", others, "lag", diff),
        _gauge("rocketmq_group_retrydiff", "Messages of its retry topic that a group is behind.", retry, "lag", diff),
        _gauge("rocketmq_group_dlqdiff", "Messages of its dead letter topic that a group is behind.", dlq, "lag", diff),
        _gauge("rocketmq_consumer_offset", "Offsets that a group has stored, all queues together.", rows, "offset", of_group),
        _gauge("rocketmq_group_get_latency_by_storetime", millis, rows, "lagMillis", of_group),
    ]


def _of_topics(rows: Sequence[Row], at_broker: dict[str, str]) -> list[Metric]:
    def of_topic(row: Row) -> dict[str, str]:
        return at_broker | {"topic": row["topic"]}

    def of_dlq(row: Row) -> dict[str, str]:
        return at_broker | {"group": row["topic"].replace(_DLQ, "")}

    retry, dlq, others = _by_kind(rows)
    return [
        _gauge("rocketmq_producer_offset", "Max offsets of a topic, all queues together.", others, "offset", of_topic),
        _gauge("rocketmq_topic_retry_offset", "Max offsets of a retry topic, all queues together.", retry, "offset", of_topic),
        _gauge("rocketmq_topic_dlq_offset", "Max offsets of a dead letter topic, all queues together.", dlq, "offset", of_dlq),
    ]


def _by_kind(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of retry topics, of dead letter topics, and of other topics."""
    retry = [row for row in rows if row["topic"].startswith(_RETRY)]
    dlq = [row for row in rows if row["topic"].startswith(_DLQ)]
    return retry, dlq, [row for row in rows if not row["topic"].startswith((_RETRY, _DLQ))]


def _gauge(name: str, text: str, rows: Sequence[Row], value: str, labels: Callable[[Row], dict[str, str]]) -> Metric:
    """Return a gauge with the rows whose value is not NULL."""
    return metric("gauge", name, text, ((labels(row), row[value]) for row in rows if row[value] is not None))
