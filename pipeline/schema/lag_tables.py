"""The table of lag over time: the rows of consume_lag at each observation."""

from __future__ import annotations

from pipeline.schema.table import QUEUE_ID, Column, Table, nullable

LAG_HISTORY = Table(
    "lag_history",
    "consume_lag as it was observed again and again: a row a queue and observation. An observation has all queues of a broker.",
    (
        Column("brokerName", "STRING", "broker whose store it is"),
        Column("consumerGroup", "STRING", "name of the group"),
        Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group included)"),
        QUEUE_ID,
        Column("observedAt", "BIGINT", "when it was observed, ms: a broker has one observation at a time"),
        nullable("consumerOffset", "BIGINT", "next offset that the group would consume; NULL where it stored none"),
        Column("brokerOffset", "BIGINT", "end of the queue"),
        Column("minOffset", "BIGINT", "begin of the queue"),
        nullable("lag", "BIGINT", "brokerOffset - consumerOffset, negative where the offset lay past the end"),
        nullable("lagMillis", "BIGINT", "how long the next message had waited, ms; 0 where lag is 0"),
        nullable("asOf", "BIGINT", "the greatest storeTimestamp of the broker then, ms: how fresh the observed store was"),
        nullable("reason", "STRING", "why something is NULL or odd, as in consume_lag"),
        Column("lakeVersion", "BIGINT", "version of the lake that was there; what the observing run itself changed is observed too"),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId", "observedAt"),
    checks=("minOffset BETWEEN 0 AND brokerOffset", "lag = try_subtract(brokerOffset, consumerOffset)"),
)

OBSERVED = (LAG_HISTORY,)
