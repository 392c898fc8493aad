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
_AT = Column("atMillis", "BIGINT", "ms of virtual time since the simulation began")

SIMULATION_RUN = Table(
    "simulation_run",
    "One row a simulation that ran to its end: a variant with a seed.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        Column("topic", "STRING", "topic that it consumes"),
        Column("scenario", "STRING", "text of the scenario file"),
        Column("given", "MAP<STRING, STRING>", "what --vary set in it"),
        nullable("beginsMillis", "BIGINT", "ms since 1970 at which virtual time begins; NULL where messages come at rates"),
        Column("endedMillis", "BIGINT", "ms of virtual time at which it ended"),
        Column("consumedAll", "BOOLEAN", "all that ever came was consumed and committed; else it was cut at the scenario's until"),
        nullable(
            "caughtUpMillis", "BIGINT", "ms until the look from which on no message had waited for 10 s; NULL where one had at the end"
        ),
        Column("maxLag", "BIGINT", "greatest number of messages that were not committed, of all looks"),
        Column("lastLag", "BIGINT", "the same at the end"),
        Column("pulls", "BIGINT", "pulls that were answered"),
        Column("pullsFound", "BIGINT", "those that brought messages"),
        Column("flowControl", "BIGINT", "how often a client held too much to pull"),
        Column("delivered", "BIGINT", "messages given to a listener, again and again ones included"),
        Column("duplicates", "BIGINT", "those that were given before, from the same queue and offset"),
        Column("succeeded", "BIGINT", "messages consumed with success"),
        Column("sentBack", "BIGINT", "messages that came to the retry topic, or still wait for it"),
        Column("deadLetters", "BIGINT", "messages that were given up; where the group broadcasts, all that failed"),
        Column("notCounted", "BIGINT", "messages whose result came too late: the queue or the client was gone"),
        Column("clients", "INT", "clients that were there at the end"),
        Column("idleClients", "INT", "those that never had a message"),
        Column("events", "BIGINT", "events of the simulation"),
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
    "One row a message that a listener was given in a simulation, where the scenario asks for it.",
    (
        _BROKER,
        *_RUN,
        _TOPIC,
        QUEUE_ID,
        Column("queueOffset", "BIGINT", "offset in that queue"),
        Column("firstQueueId", "INT", "queue to which the message was sent first"),
        Column("firstQueueOffset", "BIGINT", "its offset there"),
        Column("reconsumeTimes", "INT", "how often it was tried before"),
        Column("clientId", "STRING", "client that had it"),
        Column("pulledMicros", "BIGINT", "microseconds of virtual time at which it came to the client"),
        Column("startedMicros", "BIGINT", "at which the listener was given it"),
        Column("endedMicros", "BIGINT", "at which the listener's result counted"),
        Column(
            "result", "STRING", "CONSUME_SUCCESS, RECONSUME_LATER, DROPPED (the queue was given up meanwhile) or LOST (the client was gone)"
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
    "One row a queue and look at lag of a simulation: lag and offsets over time.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        _TOPIC,
        QUEUE_ID,
        _AT,
        Column("brokerOffset", "BIGINT", "maxOffset of the queue"),
        nullable("consumerOffset", "BIGINT", "offset that the broker has of the group; NULL where it has none"),
        Column(
            "reachedOffset",
            "BIGINT",
            "offset that the client has reached and may not have told yet; where the group broadcasts, its client furthest behind",
        ),
        Column("lag", "BIGINT", "brokerOffset less consumerOffset; where the group broadcasts, less reachedOffset"),
        nullable(
            "waitedMillis",
            "BIGINT",
            "how long the message at reachedOffset has waited, 0 without one; NULL where it was there at the start",
        ),
    ),
    key=("runId", "variant", "seed", "brokerName", "topic", "queueId", "atMillis"),
    checks=("coalesce(lag = brokerOffset - consumerOffset, lag IN (brokerOffset, brokerOffset - reachedOffset))", "waitedMillis >= 0"),
)

REBALANCE_EVENT = Table(
    "rebalance_event",
    "One row a rebalance in a simulation in which a client took or gave up queues of a topic; one too where it gives one up to begin anew.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group included)"),
        _AT,
        Column("clientId", "STRING", "client that rebalanced"),
        Column("clients", "INT", "clients that it found in the group"),
        Column("taken", "ARRAY<STRING>", "queues that it took, as brokerName/queueId"),
        Column("dropped", "ARRAY<STRING>", "queues that it gave up"),
    ),
)

DEAD_LETTER = Table(
    "dead_letter",
    "One row a message that came to the dead letters in a simulation, where the scenario asks for consumption.",
    (
        _BROKER,
        *_RUN,
        _GROUP,
        Column("topic", "STRING", "topic to which it was sent first"),
        QUEUE_ID,
        Column("queueOffset", "BIGINT", "its offset there"),
        _AT,
        Column("reconsumeTimes", "INT", "how often it was tried"),
    ),
)

SIMULATED_TRANSACTIONS = Table(
    "simulated_transactions",
    "One row a simulation whose messages were sent in transactions: what became of these by the scenario's until.",
    (
        _BROKER,
        *_RUN,
        Column("topic", "STRING", "topic for which the messages were"),
        Column("sent", "BIGINT", "half messages that producers sent"),
        Column("committed", "BIGINT", "transactions whose message came to the topic"),
        Column(
            "committedAgain",
            "BIGINT",
            "messages that came to it once more, as their producer had ended the half message and was asked all the same",
        ),
        Column("rolledBack", "BIGINT", "transactions that were rolled back"),
        Column("checked", "BIGINT", "how often the broker put a half message back and asked its producer"),
        Column("givenUp", "BIGINT", "half messages that went to TRANS_CHECK_MAX_TIME_TOPIC"),
        Column("undecided", "BIGINT", "transactions that were neither ended nor given up"),
        nullable("commitMillis50", "BIGINT", "ms from storing a half message to the commit, of half of those committed; NULL without one"),
        nullable("commitMillis99", "BIGINT", "the same, of 99 of 100"),
        nullable("commitMillisMax", "BIGINT", "the same, at most"),
    ),
    key=("runId", "variant", "seed"),
    checks=(
        "sent BETWEEN committed + rolledBack + undecided AND committed + rolledBack + undecided + givenUp",
        "commitMillis50 <= commitMillis99",
        "commitMillis99 <= commitMillisMax",
    ),
)

SIMULATED = (SIMULATION_RUN, CONSUMPTION, SIMULATED_LAG, REBALANCE_EVENT, DEAD_LETTER, SIMULATED_TRANSACTIONS)
