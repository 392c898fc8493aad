"""The tables of captured traffic: pulls with the broker's answers, offsets, subscriptions of groups, and unreadable bytes."""

from __future__ import annotations

from pipeline.schema.table import Column, Table, nullable

# greatest number of unreadable bytes that a row keeps
RAW_BYTES_MAX = 4096
_BROKER = Column("brokerName", "STRING", "broker that got the request")
_TOPIC = nullable("topic", "STRING", "topic, as the broker spells it (%RETRY%group included); NULL if the request has none")
_QUEUE = nullable("queueId", "INT", "number of the queue in its topic; NULL if the request has none")
_GROUP = nullable("consumerGroup", "STRING", "name of the consumer group; NULL if the request has none")
_SOURCE = (
    Column("source", "STRING", "captured file from which the row comes"),
    Column("sourceDigest", "STRING", "SHA-256 of the captured file"),
)
_FROM = (
    Column(
        "requestId",
        "STRING",
        "id of the request: digest of the file, connection, place in its stream, and opaque; the same each time the file is read",
    ),
    *_SOURCE,
    Column(
        "sequence",
        "BIGINT",
        "place of the request in the capture: number of the packet that completed it * 1048576 + number within that packet",
    ),
    Column("connection", "STRING", "the two ends of the connection, with a number if the same ends connected again"),
    Column("client", "STRING", "address of the client that sent the request"),
)

PULL_REQUEST = Table(
    "pull_request",
    "One row per captured PULL_MESSAGE request, with the broker's answer. A field that the request lacks "
    "is NULL, as it is null to the broker.",
    (
        _BROKER,
        _TOPIC,
        _QUEUE,
        *_FROM,
        nullable("opaque", "INT", "number that the client gave the request"),
        Column("arrivalMicros", "BIGINT", "when the packet that completes the request was captured, microseconds since 1970"),
        _GROUP,
        nullable("queueOffset", "BIGINT", "offset from which the pull asked for messages"),
        nullable("maxMsgNums", "INT", "number of messages that the pull asked for at most"),
        nullable("sysFlag", "INT", "bits: 1 commit, 2 suspend, 4 subscription, 8 class filter, 16 lite"),
        nullable("commitOffset", "BIGINT", "offset to commit; used if sysFlag has bit 1"),
        nullable("suspendTimeoutMillis", "BIGINT", "how long the broker may hold the pull, ms; used if sysFlag has bit 2"),
        nullable("subscription", "STRING", "filter expression; used if sysFlag has bit 4"),
        nullable("subVersion", "BIGINT", "version of the subscription, ms since 1970 by the client's clock"),
        nullable("expressionType", "STRING", "type of the filter: TAG or SQL92; NULL means TAG"),
        nullable(
            "registration",
            "STRING",
            "what the heartbeats before the answer registered: SUBSCRIBED, NO_TOPIC or NO_GROUP; NULL if sysFlag has bit 4",
        ),
        nullable(
            "registeredSubString", "STRING", "filter expression that the group's heartbeats registered for the topic; NULL if none is known"
        ),
        nullable("registeredExpressionType", "STRING", "type of the filter that the heartbeats registered; NULL if none is known"),
        nullable(
            "registeredSubVersion",
            "BIGINT",
            "version of the subscription that the heartbeats registered, ms since 1970 by the client's clock; NULL if none is known",
        ),
        nullable("registeredClassFilterMode", "BOOLEAN", "class filter mode that the heartbeats registered; NULL if none is known"),
        nullable(
            "registeredCodeSet",
            "ARRAY<INT>",
            "hash codes of the tags that the heartbeats registered, as the client sent them; NULL if none are known",
        ),
        nullable("registeredFilterVersion", "BIGINT", "version of the group's filter data for the topic; NULL if there is none"),
        nullable("registeredMessageModel", "STRING", "message model of the group: BROADCASTING or CLUSTERING; NULL if none is known"),
        nullable("recordedCode", "INT", "response code of the broker's answer; NULL if no answer was captured"),
        nullable("recordedRemark", "STRING", "remark of the broker's answer; NULL if it has none"),
        nullable(
            "recordedNextBeginOffset",
            "BIGINT",
            "offset from which the client should pull next, in the broker's answer; NULL if the answer has none",
        ),
        nullable("recordedMinOffset", "BIGINT", "begin of the queue (min offset) in the broker's answer; NULL if the answer has none"),
        nullable("recordedMaxOffset", "BIGINT", "end of the queue (max offset) in the broker's answer; NULL if the answer has none"),
        nullable(
            "recordedSuggestWhichBrokerId",
            "BIGINT",
            "id of the broker from which the client should pull next, in the broker's answer; NULL if the answer has none",
        ),
        nullable(
            "recordedBodyLength", "INT", "bytes of the messages in the broker's answer; 0 if it has none; NULL if no answer was captured"
        ),
        nullable("recordedBodySha256", "STRING", "SHA-256 of the answer's message records as sent; NULL if the answer has none"),
        nullable(
            "answerMicros",
            "BIGINT",
            "when the packet that completes the answer was captured, microseconds since 1970; NULL if no answer was captured",
        ),
        Column("held", "BOOLEAN", "whether the broker held the pull (long polling), as far as the wire shows it"),
    ),
    key=("brokerName", "requestId"),
    checks=("registration IN ('SUBSCRIBED', 'NO_TOPIC', 'NO_GROUP')", "recordedBodyLength >= 0", "length(recordedBodySha256) = 64"),
)

OFFSET_HISTORY = Table(
    "offset_history",
    "Captured offsets of groups: committed by UPDATE_CONSUMER_OFFSET and by pulls, or returned by QUERY_CONSUMER_OFFSET.",
    (
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        *_FROM,
        Column("origin", "STRING", "request that has the offset: UPDATE_CONSUMER_OFFSET, PULL_MESSAGE or QUERY_CONSUMER_OFFSET"),
        Column("micros", "BIGINT", "when the request was captured, or for a query its answer, microseconds since 1970"),
        nullable(
            "consumerOffset",
            "BIGINT",
            "next offset that the group will consume, as committed or returned; NULL for a query that found none",
        ),
        nullable("code", "INT", "response code of the answer; NULL if no answer was captured"),
    ),
    checks=("origin IN ('UPDATE_CONSUMER_OFFSET', 'PULL_MESSAGE', 'QUERY_CONSUMER_OFFSET')",),
)

OFFSET_RESET = Table(
    "offset_reset",
    "Offsets that the broker ordered a client to commit for a group (RESET_CONSUMER_CLIENT_OFFSET), one "
    "row per queue. An administrator reset the group, for example with mqadmin resetOffsetByTime. The "
    "client commits the offsets about 10 s later.",
    (
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        *_FROM,
        Column("micros", "BIGINT", "when the order was captured, microseconds since 1970"),
        Column("consumerOffset", "BIGINT", "offset that the client has to commit"),
    ),
)

SUBSCRIPTION = Table(
    "subscription",
    "Subscriptions of groups in captured heartbeats, one row per topic, and clients that left: one row "
    "per group of a client that unregistered or whose connection ended.",
    (
        _BROKER,
        _GROUP,
        _TOPIC,
        *_FROM,
        Column(
            "event", "STRING", "HEART_BEAT: the client sent a heartbeat; UNREGISTER_CLIENT: it unregistered; CLOSED: its connection ended"
        ),
        Column("micros", "BIGINT", "when the event was captured, microseconds since 1970"),
        nullable("answerMicros", "BIGINT", "when the answer to the request was captured, microseconds since 1970; NULL if there is none"),
        nullable("clientId", "STRING", "id that the client gives itself; NULL if event is no HEART_BEAT"),
        nullable("consumeType", "STRING", "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull); NULL if event is no HEART_BEAT"),
        nullable("messageModel", "STRING", "BROADCASTING or CLUSTERING; NULL if event is no HEART_BEAT"),
        nullable(
            "subString",
            "STRING",
            "filter expression. This column, topic, and the columns after this one are NULL if the group "
            "subscribes to no topic, or if event is no HEART_BEAT",
        ),
        nullable("expressionType", "STRING", "type of the filter: TAG or SQL92; NULL if there is no subscription"),
        nullable(
            "subVersion", "BIGINT", "version of the subscription, ms since 1970 by the client's clock; NULL if there is no subscription"
        ),
        nullable("classFilterMode", "BOOLEAN", "whether a filter class of the client decides; NULL if there is no subscription"),
        nullable("tagsSet", "ARRAY<STRING>", "tags in the filter, as the client sent them; NULL if there is no subscription"),
        nullable("codeSet", "ARRAY<INT>", "hash codes of the tags, as the client sent them; NULL if there is no subscription"),
    ),
    checks=("event IN ('HEART_BEAT', 'UNREGISTER_CLIENT', 'CLOSED')",),
)

BAD_REQUEST = Table(
    "bad_request",
    "Parts of a source that could not be read: packets, stretches of connections, frames. The rest of the source was read.",
    (
        _BROKER,
        *_SOURCE,
        Column("position", "BIGINT", "position in the file, in bytes, of the packet; for a frame, of the packet that completed it"),
        Column("error", "STRING", "what was expected and what was found"),
        Column("raw", "BINARY", f"the unreadable bytes, {RAW_BYTES_MAX} at most"),
    ),
    checks=("position >= 0",),
)

CAPTURED = (PULL_REQUEST, OFFSET_HISTORY, OFFSET_RESET, SUBSCRIPTION, BAD_REQUEST)
