"""The table of lag over time: the rows of consume_lag at each observation."""

from __future__ import annotations

from pipeline.schema.table import QUEUE_ID, Column, Table, nullable

LAG_HISTORY = Table(
    "lag_history",
    "Rows of consume_lag, observed at different times: one row per group, queue and observation. An "
    "observation has all queues of a broker.",
    (
        Column("brokerName", "STRING", "broker that the row is about"),
        Column("consumerGroup", "STRING", "name of the consumer group"),
        Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group included)"),
        QUEUE_ID,
        Column("observedAt", "BIGINT", "when the lag was observed, ms since 1970; a broker has one observation per time"),
        nullable("consumerOffset", "BIGINT", "next offset that the group will consume; NULL if the group stored none"),
        Column("brokerOffset", "BIGINT", "end of the queue: offset after its last message"),
        Column("minOffset", "BIGINT", "begin of the queue: offset of its first message that can be consumed"),
        nullable(
            "lag",
            "BIGINT",
            "consumer lag in messages: brokerOffset - consumerOffset. Negative if consumerOffset lies past the "
            "end of the queue; NULL if the group stored no offset, or if no BIGINT holds the difference",
        ),
        nullable("lagMillis", "BIGINT", "consumer lag in ms: how long the next message had waited; 0 if lag is 0; NULL if unknown"),
        nullable("asOf", "BIGINT", "the greatest storeTimestamp of the broker at the observation, ms: how fresh the observed store was"),
        nullable("reason", "STRING", "why a column is NULL or odd, as in consume_lag"),
        Column(
            "lakeVersion", "BIGINT", "version of the lake before the observing run; the observation includes what that run itself changed"
        ),
    ),
    key=("brokerName", "consumerGroup", "topic", "queueId", "observedAt"),
    checks=("minOffset BETWEEN 0 AND brokerOffset", "lag = try_subtract(brokerOffset, consumerOffset)"),
)

OBSERVED = (LAG_HISTORY,)
