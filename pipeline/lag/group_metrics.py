"""Gauges of each group and of the lake: the group's status, waiting messages and dead letters, and how old the lake is. No Spark here.

Rules: an unknown value has no gauge: a group whose lag is unknown has no gauge of waiting messages, but one of its status, UNKNOWN. If
there are too many groups, those in trouble come first. The broker's own groups are left out: for example, CID_RMQ_SYS_REVIVE_GROUP of 5.x
stores the last offset that it processed, not the next one, so one message always waits.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import Metric

from pipeline.delta.delta_sql import literal
from pipeline.lag.lag_metrics import GROUPS_MAX, LagMetrics, lag_metrics, left_out, left_out_family
from pipeline.lag.lag_sql import IN_TROUBLE, OF_USERS
from pipeline.lake.asking import AskAll, Row
from pipeline.serving.metrics import metric

_DEFAULT_CLUSTER: Final = "DefaultCluster"
# columns of group_overview -> gauge and its meaning
_OF_GROUPS: Final = {
    "lag": ("waiting_messages", "Messages that wait for a group on its topics; a queue with an offset past the end counts as 0."),
    "retryLag": ("retry_waiting_messages", "Messages that wait on the retry topic of a group, likewise."),
    "dlqMessages": ("dead_letters", "Messages in the dead letter topic of a group that the store still has."),
    "queuesUnknown": ("queues_unknown", "Queues of a group whose lag is not known."),
    "clients": ("clients", "Clients of a group that had not left when the capture ended."),
}


def all_metrics(ask: AskAll, broker: str | None, now: dt.datetime) -> list[Metric]:
    """Return the gauges of groups, of lag and of the lake.

    Args:
        ask: runs queries on the lake, at the version to read.
        broker: the only broker; None for all.
        now: wall clock.
    """
    mine = "true" if broker is None else f"brokerName = {literal(broker)}"
    brokers, groups, [lake] = ask(
        (
            f"SELECT brokerName, properties, maxStoreTimestamp FROM broker WHERE {mine} ORDER BY brokerName",
            f"""\
SELECT brokerName, consumerGroup, status, {", ".join(_OF_GROUPS)}, lagMillisMax, count(*) OVER () AS inAll
FROM group_overview
WHERE {mine} AND {OF_USERS}
ORDER BY
  CASE WHEN {IN_TROUBLE} THEN 0 WHEN status = 'WARN' THEN 1 ELSE 2 END,
  lag DESC NULLS LAST, consumerGroup, brokerName
LIMIT {GROUPS_MAX}""",
            "SELECT max(version) AS version FROM lake_version",
        )
    )
    clusters = {row["brokerName"]: dict(row["properties"] or {}).get("brokerClusterName", _DEFAULT_CLUSTER) for row in brokers}
    lag = lag_metrics(ask, clusters) if clusters else LagMetrics((), 0, 0)
    counts = {"groups": lag.groups_left_out, "topics": lag.topics_left_out, "statuses": left_out(groups, GROUPS_MAX)}
    return [
        *_of_groups(groups, clusters),
        *lag.families,
        left_out_family(counts, {}),
        _gauge("lake_version", "Version of the lake that the gauges are of.", [({}, lake["version"])]),
        _gauge("lag_report_time_seconds", "When the gauges were made.", [({}, now.timestamp())]),
        _gauge(
            "store_last_message_time_seconds",
            "When the last message was stored that the lake has of a broker.",
            [(_at_broker(row, clusters), row["maxStoreTimestamp"] / 1000) for row in brokers if row["maxStoreTimestamp"] is not None],
        ),
    ]


def _of_groups(rows: Sequence[Row], clusters: Mapping[str, str]) -> list[Metric]:
    def labels(row: Row) -> dict[str, str]:
        return _at_broker(row, clusters) | {"group": row["consumerGroup"]}

    def values(column: str, of: Callable[[Any], float] = float) -> list[tuple[dict[str, str], float]]:
        return [(labels(row), of(row[column])) for row in rows if row[column] is not None]

    status = "1 for the status of a group: OK, UNKNOWN, WARN, STOP, STALL or REWIND, as in group_status."
    waited = "The longest time that a next message of a group has waited, until the last message of the store."
    return [
        _gauge("group_status", status, [(labels(row) | {"status": row["status"]}, 1.0) for row in rows]),
        *(_gauge(f"group_{name}", text, values(column)) for column, (name, text) in _OF_GROUPS.items()),
        _gauge("group_waited_seconds", waited, values("lagMillisMax", lambda millis: millis / 1000)),
    ]


def _at_broker(row: Row, clusters: Mapping[str, str]) -> dict[str, str]:
    # a broker of captured traffic alone has no properties
    return {"cluster": clusters.get(row["brokerName"], _DEFAULT_CLUSTER), "broker": row["brokerName"]}


def _gauge(name: str, text: str, series: Sequence[tuple[dict[str, str], float]]) -> Metric:
    return metric("gauge", f"pullsim_{name}", text, series)
