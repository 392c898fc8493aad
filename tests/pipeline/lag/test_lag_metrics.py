"""How far groups are behind as gauges of rocketmq-exporter: names, labels, sums, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.lag import lag_metrics as module
from pipeline.lag.lag_metrics import LagMetrics, lag_metrics
from pipeline.lag.metrics import metrics_text
from tests.runs.prometheus import Metric, parse, series

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAGS = """
    SELECT * FROM VALUES
        ('a', 'orders', 'shop', 0, 90L, 10L, 7L),
        ('a', 'orders', 'shop', 1, 100L, -2L, 0L),
        ('a', 'orders', 'shop', 2, NULL, NULL, NULL),
        ('a', 'other', 'shop', 0, NULL, NULL, NULL),
        ('a', 'other', 'pay', 0, 5L, 0L, 0L),
        ('a', 'orders', '%RETRY%orders', 0, 1L, 3L, 9L),
        ('a', 'dead', '%DLQ%orders', 0, 0L, 4L, NULL),
        ('b', 'orders', 'shop', 0, 1L, 1000L, 1L)
    lags(brokerName, consumerGroup, topic, queueId, consumerOffset, lag, lagMillis)
"""
QUEUES = """
    SELECT * FROM VALUES
        ('a', 'shop', 0, 100L), ('a', 'shop', 1, 98L), ('a', 'shop', 2, 7L), ('a', 'pay', 0, 5L),
        ('a', '%RETRY%orders', 0, 4L), ('a', '%DLQ%orders', 0, 4L), ('b', 'shop', 0, 1001L)
    queues(brokerName, topic, queueId, maxOffset)
"""


@pytest.fixture
def views(spark: SparkSession) -> SparkSession:
    spark.sql(LAGS).createOrReplaceTempView("consume_lag")
    spark.sql(QUEUES).createOrReplaceTempView("queue")
    return spark


def read(found: LagMetrics) -> dict[str, Metric]:
    return parse(metrics_text(found.families))


def test_the_gauges_have_the_names_and_labels_of_the_exporter(views: SparkSession) -> None:
    found = lag_metrics(views, "a", "c1")
    assert (found.groups_left_out, found.topics_left_out) == (0, 0)
    metrics = read(found)
    assert {metric.type for metric in metrics.values()} == {"gauge"}
    diff = ("group", "topic", "countOfOnlineConsumers", "msgModel")
    group = ("cluster", "broker", "topic", "group")
    topic = ("cluster", "broker", "topic")
    assert {
        name: series(metric, *labels)
        for (name, metric), labels in zip(
            metrics.items(), [diff] * 3 + [group] * 2 + [topic] * 2 + [("cluster", "broker", "group")], strict=True
        )
    } == {
        # 10 - 2, the third queue is not known
        "rocketmq_group_diff": {("orders", "shop", "", "1"): 8, ("other", "pay", "", "1"): 0},
        "rocketmq_group_retrydiff": {("orders", "%RETRY%orders", "", "1"): 3},
        "rocketmq_group_dlqdiff": {("dead", "%DLQ%orders", "", "1"): 4},
        "rocketmq_consumer_offset": {
            ("c1", "a", "shop", "orders"): 190,
            ("c1", "a", "pay", "other"): 5,
            ("c1", "a", "%RETRY%orders", "orders"): 1,
            ("c1", "a", "%DLQ%orders", "dead"): 0,
        },
        "rocketmq_group_get_latency_by_storetime": {
            ("c1", "a", "shop", "orders"): 7,
            ("c1", "a", "pay", "other"): 0,
            ("c1", "a", "%RETRY%orders", "orders"): 9,
        },
        "rocketmq_producer_offset": {("c1", "a", "shop"): 205, ("c1", "a", "pay"): 5},
        "rocketmq_topic_retry_offset": {("c1", "a", "%RETRY%orders"): 4},
        "rocketmq_topic_dlq_offset": {("c1", "a", "orders"): 4},
    }


def test_those_furthest_behind_are_told_where_there_are_too_many(views: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    found = lag_metrics(views, "a", "c1")
    assert (found.groups_left_out, found.topics_left_out) == (3, 3)
    metrics = read(found)
    offsets = series(metrics["rocketmq_consumer_offset"], "group", "topic")
    assert set(offsets) == {("orders", "shop"), ("dead", "%DLQ%orders")}
    assert list(metrics) == [
        "rocketmq_group_diff",
        "rocketmq_group_dlqdiff",
        "rocketmq_consumer_offset",
        "rocketmq_group_get_latency_by_storetime",
        "rocketmq_topic_dlq_offset",
    ]
