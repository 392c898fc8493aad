"""The tables of simulations: the runs of each variant, and the events of each run."""

from __future__ import annotations

from pipeline.schema.table import QUEUE_ID, RUN_ID, Column, Table, nullable

_RUN = (
    RUN_ID,
    Column("variant", "INT", "number of the variant, from 0"),
    Column("seed", "BIGINT", "seed of the run"),
)
_BROKER = Column("brokerName", "STRING", "broker of the scenario")
_GROUP = Column("consumerGroup", "STRING", "group that consumes")
_TOPIC = Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group included)")
_AT = Column("atMillis", "BIGINT", "virtual time since the simulation began, ms")

SIMULATION_RUN = Table(
    "simulation_run",
    "One row per finished simulation: a variant with a seed.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        Column("topic", "STRING", "topic that the group consumes"),
        Column("scenario", "STRING", "text of the scenario file"),
        Column("given", "MAP<STRING, STRING>", "values that --vary set in the scenario"),
        nullable("beginsMillis", "BIGINT", "time at which virtual time begins, ms since 1970; NULL if messages come at rates"),
        Column("endedMillis", "BIGINT", "virtual time at which the simulation ended, ms"),
        Column(
            "consumedAll",
            "BOOLEAN",
            "whether all messages were consumed and committed; false if the simulation was stopped at the scenario's until",
        ),
        nullable(
            "caughtUpMillis",
            "BIGINT",
            "virtual time of the first lag sample from which on no message of the topic had waited longer than "
            "10 s, ms; NULL if one had at the last sample",
        ),
        Column("maxLag", "BIGINT", "greatest number of uncommitted messages of the topic in a lag sample"),
        Column("lastLag", "BIGINT", "number of uncommitted messages of the topic in the last lag sample"),
        Column("pulls", "BIGINT", "number of answered pulls"),
        Column("pullsFound", "BIGINT", "number of answered pulls that found messages"),
        Column("flowControl", "BIGINT", "how often a client did not pull because it held too many messages (flow control)"),
        Column("delivered", "BIGINT", "messages passed to a listener; a message counts each time it is passed"),
        Column("duplicates", "BIGINT", "messages passed to a listener that had been passed before, from the same queue and offset"),
        Column("succeeded", "BIGINT", "messages consumed with success"),
        Column("sentBack", "BIGINT", "messages that were sent back: they came to the retry topic, or still wait for it"),
        Column("deadLetters", "BIGINT", "messages that were given up; if the group broadcasts, all messages that failed"),
        Column("notCounted", "BIGINT", "messages whose result came too late, because the queue was dropped or the client was gone"),
        Column("clients", "INT", "clients that were running at the end"),
        Column("idleClients", "INT", "clients that were running at the end and never had a message"),
        Column("events", "BIGINT", "events that the simulation processed"),
    ),
    key=("runId", "variant", "seed"),
    checks=(
        "caughtUpMillis BETWEEN 0 AND endedMillis",
        "lastLag BETWEEN 0 AND maxLag",
        "pullsFound BETWEEN 0 AND pulls",
        "duplicates BETWEEN 0 AND delivered",
    ),
)

CONSUMPTION = Table(
    "consumption",
    "One row per message that a listener got in a simulation, if the scenario asks for these rows.",
    (
        _BROKER,
        *_RUN,
        _TOPIC,
        QUEUE_ID,
        Column("queueOffset", "BIGINT", "offset of the message in the queue"),
        Column("firstQueueId", "INT", "queueId of the queue to which the message was sent first"),
        Column("firstQueueOffset", "BIGINT", "offset of the message in the queue to which it was sent first"),
        Column("reconsumeTimes", "INT", "how often the message was tried before"),
        Column("clientId", "STRING", "id of the client that got the message"),
        Column("pulledMicros", "BIGINT", "virtual time at which the client got the message, microseconds"),
        Column("startedMicros", "BIGINT", "virtual time at which the listener got the message, microseconds"),
        Column("endedMicros", "BIGINT", "virtual time at which the listener's result counted, microseconds"),
        Column(
            "result",
            "STRING",
            "CONSUME_SUCCESS; RECONSUME_LATER; DROPPED: the client had given up the queue meanwhile; LOST: the client was gone",
        ),
    ),
    checks=(
        "pulledMicros <= startedMicros",
        "startedMicros <= endedMicros",
        "result IN ('CONSUME_SUCCESS', 'RECONSUME_LATER', 'DROPPED', 'LOST')",
    ),
)

SIMULATED_LAG = Table(
    "simulated_lag",
    "Lag and offsets over time in a simulation, one row per queue and lag sample.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        _TOPIC,
        QUEUE_ID,
        _AT,
        Column("brokerOffset", "BIGINT", "end of the queue: offset after its last message"),
        nullable("consumerOffset", "BIGINT", "offset that the group has committed to the broker; NULL if there is none"),
        Column(
            "reachedOffset",
            "BIGINT",
            "offset that the client has reached but may not have committed yet; if the group broadcasts, the least offset of its clients",
        ),
        Column(
            "lag",
            "BIGINT",
            "consumer lag in messages: brokerOffset - consumerOffset, or brokerOffset if consumerOffset is NULL; "
            "if the group broadcasts, brokerOffset - reachedOffset",
        ),
        nullable(
            "waitedMillis",
            "BIGINT",
            "how long the message at reachedOffset has waited, ms; 0 if there is no such message; NULL if the "
            "message was there at the start",
        ),
    ),
    key=("runId", "variant", "seed", "brokerName", "topic", "queueId", "atMillis"),
    checks=("coalesce(lag = brokerOffset - consumerOffset, lag IN (brokerOffset, brokerOffset - reachedOffset))", "waitedMillis >= 0"),
)

REBALANCE_EVENT = Table(
    "rebalance_event",
    "One row per rebalance in a simulation in which a client took or gave up queues of a topic; also one "
    "if a client gives up a queue to begin it anew.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group included)"),
        _AT,
        Column("clientId", "STRING", "client that rebalanced"),
        Column("clients", "INT", "number of clients that the rebalancing client found in the group"),
        Column("taken", "ARRAY<STRING>", "queues that the client took, as brokerName/queueId"),
        Column("dropped", "ARRAY<STRING>", "queues that the client gave up, as brokerName/queueId"),
    ),
)

DEAD_LETTER = Table(
    "dead_letter",
    "One row per message that became a dead letter in a simulation, if the scenario asks for consumption.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        Column("topic", "STRING", "topic to which the message was sent first"),
        QUEUE_ID,
        Column("queueOffset", "BIGINT", "offset of the message in the queue to which it was sent first"),
        _AT,
        Column("reconsumeTimes", "INT", "how often the message was tried"),
    ),
)

SIMULATED_TRANSACTIONS = Table(
    "simulated_transactions",
    "One row per simulation whose messages were sent in transactions: what became of the transactions by the scenario's until.",
    (
        _BROKER,
        *_RUN,
        Column("topic", "STRING", "topic that the messages were for"),
        Column("sent", "BIGINT", "half messages that producers sent"),
        Column("committed", "BIGINT", "transactions whose message came to the topic"),
        Column(
            "committedAgain",
            "BIGINT",
            "messages that came to the topic once more, because the broker asked a producer that had already ended the half message",
        ),
        Column("rolledBack", "BIGINT", "transactions that were rolled back"),
        Column("checked", "BIGINT", "how often the broker put a half message back and asked its producer"),
        Column("givenUp", "BIGINT", "half messages that went to TRANS_CHECK_MAX_TIME_TOPIC"),
        Column("undecided", "BIGINT", "transactions that were neither ended nor given up"),
        nullable(
            "commitMillis50",
            "BIGINT",
            "time from storing a half message to its commit, ms: median of the committed ones; NULL if none was committed",
        ),
        nullable(
            "commitMillis99",
            "BIGINT",
            "time from storing a half message to its commit, ms: 99th percentile of the committed ones; NULL if none was committed",
        ),
        nullable(
            "commitMillisMax", "BIGINT", "time from storing a half message to its commit, ms: the longest; NULL if none was committed"
        ),
    ),
    key=("runId", "variant", "seed"),
    checks=(
        "sent BETWEEN committed + rolledBack + undecided AND committed + rolledBack + undecided + givenUp",
        "commitMillis50 <= commitMillis99",
        "commitMillis99 <= commitMillisMax",
    ),
)

SIMULATED = (SIMULATION_RUN, CONSUMPTION, SIMULATED_LAG, REBALANCE_EVENT, DEAD_LETTER, SIMULATED_TRANSACTIONS)
