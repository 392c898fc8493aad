"""Consumer lag of brokers, as the gauges of apache/rocketmq-exporter. No Spark here.

Source (rocketmq-exporter): names and labels are those of RMQMetricsCollector, sums those of MetricsCollectTask.collectTopicOffset and
collectConsumerOffset. A retry topic and a dead letter topic have metrics of their own.
Surprise: the exporter counts a queue without a committed offset as one at offset 0, and measures waiting time until now. Here such a queue
is left out, as in consume_lag, and waiting time ends at the store's last message. A store has no data about online clients, so that label
is empty. Broadcasting groups keep their offsets at the clients, so every group with an offset in the store is a clustering group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from pipeline.delta.delta_sql import literal
from pipeline.lake.asking import AskAll, Row
from pipeline.serving.metrics import metric

# greatest number of pairs of group and topic, and of topics: each is a series that Prometheus stores
GROUPS_MAX = 1000
TOPICS_MAX = 1000

_RETRY, _DLQ = "%RETRY%", "%DLQ%"
# ordinal of MessageModel.CLUSTERING
_CLUSTERING = "1"


@dataclass(frozen=True, slots=True)
class LagMetrics:
    """The gauges, and the numbers of pairs of group and topic and of topics that were left out."""

    families: tuple[Metric, ...]
    groups_left_out: int
    topics_left_out: int


def lag_metrics(ask: AskAll, clusters: Mapping[str, str]) -> LagMetrics:
    """Return the gauges of brokers: of the GROUPS_MAX pairs of group and topic with the greatest lag, and of TOPICS_MAX topics.

    Args:
        ask: runs queries on the lake.
        clusters: brokerClusterName of each broker.
    """
    brokers = f"brokerName IN ({', '.join(map(literal, clusters))})"
    groups, topics = ask((_of_a_group(brokers), _of_a_topic(brokers)))
    families = [*_of_groups(groups, clusters), *_of_topics(topics, clusters)]
    return LagMetrics(tuple(families), left_out(groups, GROUPS_MAX), left_out(topics, TOPICS_MAX))


def _of_a_group(brokers: str) -> str:
    return f"""\
SELECT *, count(*) OVER () AS inAll
FROM (
  SELECT
    brokerName, consumerGroup, topic, try_sum(lag) AS lag, try_sum(consumerOffset) AS stored, max(lagMillis) AS lagMillis
  FROM consume_lag
  WHERE {brokers}
  GROUP BY brokerName, consumerGroup, topic
)
ORDER BY lag DESC NULLS LAST, consumerGroup, topic, brokerName
LIMIT {GROUPS_MAX}"""


def _of_a_topic(brokers: str) -> str:
    return f"""\
SELECT *, count(*) OVER () AS inAll
FROM (SELECT brokerName, topic, sum(maxOffset) AS stored FROM queue WHERE {brokers} GROUP BY brokerName, topic)
ORDER BY topic, brokerName
LIMIT {TOPICS_MAX}"""


def left_out(rows: Sequence[Row], most: int) -> int:
    """Return how many rows a query of at most `most` rows left out; its column inAll has the number of all rows."""
    return max(int(rows[0]["inAll"]) - most, 0) if rows else 0


def left_out_family(counts: Mapping[str, int], labels: dict[str, str]) -> Metric:
    """Return the metric that counts what the gauges leave out, by kind, for example groups."""
    series = ((labels | {"of": kind}, count) for kind, count in counts.items())
    return metric("gauge", "pullsim_lag_left_out", "Number of groups or topics that the gauges of consumer lag leave out.", series)


def _of_groups(rows: Sequence[Row], clusters: Mapping[str, str]) -> list[Metric]:
    def diff(row: Row) -> dict[str, str]:
        return {"group": row["consumerGroup"], "topic": row["topic"], "countOfOnlineConsumers": "", "msgModel": _CLUSTERING}

    def of_group(row: Row) -> dict[str, str]:
        return _at_broker(row, clusters) | {"topic": row["topic"], "group": row["consumerGroup"]}

    retry, dlq, others = (_of_all_brokers(some) for some in _by_kind(rows))
    millis = "How long the next message of a group has waited in ms, until the last message of the store."
    return [
        _gauge("rocketmq_group_diff", "Lag of a group on a topic, in messages.", others, "lag", diff),
        _gauge("rocketmq_group_retrydiff", "Lag of a group on its retry topic, in messages.", retry, "lag", diff),
        _gauge("rocketmq_group_dlqdiff", "Lag of a group on its dead letter topic, in messages.", dlq, "lag", diff),
        _gauge("rocketmq_consumer_offset", "Offsets that a group has stored, all queues together.", rows, "stored", of_group),
        _gauge("rocketmq_group_get_latency_by_storetime", millis, rows, "lagMillis", of_group),
    ]


def _at_broker(row: Row, clusters: Mapping[str, str]) -> dict[str, str]:
    return {"cluster": clusters[row["brokerName"]], "broker": row["brokerName"]}


def _of_all_brokers(rows: Sequence[Row]) -> list[Row]:
    """The lag of each group and topic on all brokers together: the exporter's labels of a lag name no broker."""
    sums: dict[tuple[str, str], int | None] = {}
    for row in rows:
        key = row["consumerGroup"], row["topic"]
        known = [lag for lag in (sums.get(key), row["lag"]) if lag is not None]
        sums[key] = sum(known) if known else None
    return [{"consumerGroup": group, "topic": topic, "lag": lag} for (group, topic), lag in sums.items()]


def _of_topics(rows: Sequence[Row], clusters: Mapping[str, str]) -> list[Metric]:
    def of_topic(row: Row) -> dict[str, str]:
        return _at_broker(row, clusters) | {"topic": row["topic"]}

    def of_dlq(row: Row) -> dict[str, str]:
        return _at_broker(row, clusters) | {"group": row["topic"].removeprefix(_DLQ)}

    retry, dlq, others = _by_kind(rows)
    return [
        _gauge("rocketmq_producer_offset", "Max offsets of a topic, all queues together.", others, "stored", of_topic),
        _gauge("rocketmq_topic_retry_offset", "Max offsets of a retry topic, all queues together.", retry, "stored", of_topic),
        _gauge("rocketmq_topic_dlq_offset", "Max offsets of a dead letter topic, all queues together.", dlq, "stored", of_dlq),
    ]


def _by_kind(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows of retry topics, of dead letter topics, and of other topics."""
    retry = [row for row in rows if row["topic"].startswith(_RETRY)]
    dlq = [row for row in rows if row["topic"].startswith(_DLQ)]
    return retry, dlq, [row for row in rows if not row["topic"].startswith((_RETRY, _DLQ))]


def _gauge(name: str, text: str, rows: Sequence[Row], value: str, labels: Callable[[Row], dict[str, str]]) -> Metric:
    """Return a gauge with the rows whose value is not NULL."""
    return metric("gauge", name, text, ((labels(row), row[value]) for row in rows if row[value] is not None))
