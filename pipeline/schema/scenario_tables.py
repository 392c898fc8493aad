"""The tables of answered scenarios: requests and answers, the broker's state over time, and the events that it stored."""

from __future__ import annotations

from pipeline.schema.table import QUEUE_ID, RUN_ID, Column, Table, nullable

_BROKER = Column("brokerName", "STRING", "broker that got the request")
_WHERE = (
    _BROKER,
    RUN_ID,
    Column("scenario", "STRING", "name of the scenario; each scenario has a broker of its own"),
    Column("line", "BIGINT", "line of the scenario in its file"),
    Column("step", "INT", "number of the step, from 1; 0 for the state before the first step"),
    Column("at", "BIGINT", "time by the scenario's clock, ms"),
)

SCENARIO_STEP = Table(
    "scenario_step",
    "One row per step of a scenario: the request to the broker, and the broker's answer.",
    (
        *_WHERE,
        Column("op", "STRING", "kind of the step"),
        Column("asked", "STRING", "the step without its result, as JSON"),
        nullable("result", "STRING", "result of the step, as JSON; NULL if the step has none, or if a later step collects its answer"),
    ),
    checks=("step >= 1",),
)

BROKER_HISTORY = Table(
    "broker_history",
    "One row per change of a value on which pulls depend. A request sees the last row before it of each kind and name.",
    (
        *_WHERE,
        Column(
            "kind",
            "STRING",
            "kind of the value: setting, topic_config, subscription_group, registration, unregistration, consumer_offset or message",
        ),
        Column("name", "STRING", "name of the setting, topic or group"),
        nullable("topic", "STRING", "topic of a topic_config, registration, offset or message; NULL for other kinds"),
        nullable("queueId", "INT", "queueId of an offset or a message; NULL for other kinds"),
        nullable("queueOffset", "BIGINT", "offset that was committed, or the message's own offset; NULL for other kinds"),
        Column("row", "STRING", "the whole value as JSON, with the broker's field names"),
    ),
    checks=(
        "step >= 0",
        "kind IN ('setting', 'topic_config', 'subscription_group', 'registration', 'unregistration', 'consumer_offset', 'message')",
    ),
)

OFFSET_MOVED_EVENT = Table(
    "offset_moved_event",
    "One row per OFFSET_MOVED event: a pull that the broker sent to another offset.",
    (
        *_WHERE,
        Column("consumerGroup", "STRING", "group that pulled"),
        Column("topic", "STRING", "topic, as the broker spells it"),
        QUEUE_ID,
        Column("offsetRequest", "BIGINT", "offset from which the pull asked for messages"),
        Column("offsetNew", "BIGINT", "offset to which the broker sent the pull"),
    ),
)

ANSWERED_SCENARIOS = (SCENARIO_STEP, BROKER_HISTORY, OFFSET_MOVED_EVENT)
