"""The tables of answered scenarios: requests and answers, the broker's state over time, and the events that it stored."""

from __future__ import annotations

from pipeline.schema.table import QUEUE_ID, RUN_ID, Column, Table, nullable

_BROKER = Column("brokerName", "STRING", "broker that was asked")
_WHERE = (
    _BROKER,
    RUN_ID,
    Column("scenario", "STRING", "name of the scenario; each has a broker of its own"),
    Column("line", "BIGINT", "its line in the file"),
    Column("step", "INT", "the step, from 1; 0 for what comes before"),
    Column("at", "BIGINT", "time of the scenario's clock, ms"),
)

SCENARIO_STEP = Table(
    "scenario_step",
    "One row a step of a scenario: what was asked of the broker, and what it answered.",
    (
        *_WHERE,
        Column("op", "STRING", "kind of the step"),
        Column("asked", "STRING", "the step without its result, as JSON"),
        nullable("result", "STRING", "the result as JSON; NULL where the step has none, or its answer is collected by a later step"),
    ),
    checks=("step >= 1",),
)

BROKER_HISTORY = Table(
    "broker_history",
    "One row a change of what a pull depends on. A request sees, of each kind and name, the last row before it.",
    (
        *_WHERE,
        Column("kind", "STRING", "setting, topic_config, subscription_group, registration, unregistration, consumer_offset or message"),
        Column("name", "STRING", "of the setting, topic or group"),
        nullable("topic", "STRING", "of a topic, registration, offset or message"),
        nullable("queueId", "INT", "of an offset or a message"),
        nullable("queueOffset", "BIGINT", "the offset that was committed, or the message's own"),
        Column("row", "STRING", "all of it as JSON, by the broker's names"),
    ),
    checks=(
        "step >= 0",
        "kind IN ('setting', 'topic_config', 'subscription_group', 'registration', 'unregistration', 'consumer_offset', 'message')",
    ),
)

OFFSET_MOVED_EVENT = Table(
    "offset_moved_event",
    "One row an OFFSET_MOVED event: a pull that the broker sent to another offset.",
    (
        *_WHERE,
        Column("consumerGroup", "STRING", "of the pull"),
        Column("topic", "STRING", "topic, as the broker spells it"),
        QUEUE_ID,
        Column("offsetRequest", "BIGINT", "offset asked for"),
        Column("offsetNew", "BIGINT", "offset that the broker gave instead"),
    ),
)

ANSWERED_SCENARIOS = (SCENARIO_STEP, BROKER_HISTORY, OFFSET_MOVED_EVENT)
