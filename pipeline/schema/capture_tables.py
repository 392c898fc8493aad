"""The tables of captured traffic: pulls with the broker's answers, offsets, subscriptions of groups, and unreadable bytes."""

from __future__ import annotations

from pipeline.schema.table import Column, Table, nullable

# greatest number of unreadable bytes that a row keeps
RAW_BYTES_MAX = 4096
_BROKER = Column("brokerName", "STRING", "broker that was asked")
_TOPIC = nullable("topic", "STRING", "topic, as the broker spells it (%RETRY%group included)")
_QUEUE = nullable("queueId", "INT", "queue of the topic")
_GROUP = nullable("consumerGroup", "STRING", "consumer group")
_SOURCE = (
    Column("source", "STRING", "file that was captured"),
    Column("sourceDigest", "STRING", "SHA-256 of the file"),
)
_FROM = (
    Column("requestId", "STRING", "digest of the file, connection, place in its stream, and opaque: the same whenever the file is read"),
    *_SOURCE,
    Column("sequence", "BIGINT", "place of the request in the capture: packet that completed it * 1048576 + number in that packet"),
    Column("connection", "STRING", "the two ends, and a number where the same ends connected again"),
    Column("client", "STRING", "address of who sent the request"),
)

PULL_REQUEST = Table(
    "pull_request",
    "One row a PULL_MESSAGE on the wire, with the broker's answer. What the request lacks is NULL, as it is null to the broker.",
    (
        _BROKER,
        _TOPIC,
        _QUEUE,
        *_FROM,
        nullable("opaque", "INT", "number of the request in its client"),
        Column("arrivalMicros", "BIGINT", "when the packet that completes the request was captured, microseconds since 1970"),
        _GROUP,
        nullable("queueOffset", "BIGINT", "offset asked for"),
        nullable("maxMsgNums", "INT", "messages asked for"),
        nullable("sysFlag", "INT", "1 commit, 2 suspend, 4 subscription, 8 class filter, 16 lite"),
        nullable("commitOffset", "BIGINT", "offset to commit, with bit 1"),
        nullable("suspendTimeoutMillis", "BIGINT", "how long to wait for messages, with bit 2"),
        nullable("subscription", "STRING", "filter expression, with bit 4"),
        nullable("subVersion", "BIGINT", "version of the subscription, ms of the client's clock"),
        nullable("expressionType", "STRING", "TAG or SQL92; NULL means TAG"),
        nullable("registration", "STRING", "SUBSCRIBED, NO_TOPIC or NO_GROUP by the heartbeats before the answer; NULL with bit 4"),
        nullable("registeredSubString", "STRING", "the group's expression for the topic, from its heartbeats"),
        nullable("registeredExpressionType", "STRING", "its type"),
        nullable("registeredSubVersion", "BIGINT", "its version, ms of the client's clock"),
        nullable("registeredClassFilterMode", "BOOLEAN", "its class filter mode"),
        nullable("registeredCodeSet", "ARRAY<INT>", "hash codes of its tags, as the client sent them"),
        nullable("registeredFilterVersion", "BIGINT", "version of the group's filter data for the topic; NULL where there is none"),
        nullable("registeredMessageModel", "STRING", "BROADCASTING or CLUSTERING, of the group"),
        nullable("recordedCode", "INT", "code of the broker's answer; NULL where the capture has none"),
        nullable("recordedRemark", "STRING", "remark of the answer"),
        nullable("recordedNextBeginOffset", "BIGINT", "offset to ask for next"),
        nullable("recordedMinOffset", "BIGINT", "of the queue"),
        nullable("recordedMaxOffset", "BIGINT", "of the queue"),
        nullable("recordedSuggestWhichBrokerId", "BIGINT", "broker to pull from next"),
        nullable("recordedBodyLength", "INT", "bytes of the messages; 0 for none"),
        nullable("recordedBodySha256", "STRING", "SHA-256 of the messages' records as sent; NULL for none"),
        nullable("answerMicros", "BIGINT", "when the packet that completes the answer was captured"),
        Column("held", "BOOLEAN", "whether the broker held the pull (long polling), as far as the wire shows it"),
    ),
    key=("brokerName", "requestId"),
    checks=("registration IN ('SUBSCRIBED', 'NO_TOPIC', 'NO_GROUP')", "recordedBodyLength >= 0", "length(recordedBodySha256) = 64"),
)

OFFSET_HISTORY = Table(
    "offset_history",
    "Offsets of groups as they went over the wire: committed by UPDATE_CONSUMER_OFFSET and with pulls, told by QUERY_CONSUMER_OFFSET.",
    (
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        *_FROM,
        Column("origin", "STRING", "UPDATE_CONSUMER_OFFSET, PULL_MESSAGE or QUERY_CONSUMER_OFFSET"),
        Column("micros", "BIGINT", "when the request was captured, of a query when its answer was; microseconds since 1970"),
        nullable("consumerOffset", "BIGINT", "the offset; NULL for a query that found none"),
        nullable("code", "INT", "code of the answer; NULL where none was captured"),
    ),
    checks=("origin IN ('UPDATE_CONSUMER_OFFSET', 'PULL_MESSAGE', 'QUERY_CONSUMER_OFFSET')",),
)

OFFSET_RESET = Table(
    "offset_reset",
    "Offsets to which the broker told a client to move a group (RESET_CONSUMER_CLIENT_OFFSET), a row a queue: an administrator reset it, "
    "such as with mqadmin resetOffsetByTime. The client commits them some ten seconds later.",
    (
        _BROKER,
        _GROUP,
        _TOPIC,
        _QUEUE,
        *_FROM,
        Column("micros", "BIGINT", "when it was captured, microseconds since 1970"),
        Column("consumerOffset", "BIGINT", "the offset"),
    ),
)

SUBSCRIPTION = Table(
    "subscription",
    "What heartbeats told of groups, a row a topic, and who left: a row a group of a client that unregistered or whose connection ended.",
    (
        _BROKER,
        _GROUP,
        _TOPIC,
        *_FROM,
        Column("event", "STRING", "HEART_BEAT, UNREGISTER_CLIENT or CLOSED"),
        Column("micros", "BIGINT", "when it was captured, microseconds since 1970"),
        nullable("answerMicros", "BIGINT", "when its answer was; NULL where there is none"),
        nullable("clientId", "STRING", "id that the client gives itself"),
        nullable("consumeType", "STRING", "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)"),
        nullable("messageModel", "STRING", "BROADCASTING or CLUSTERING"),
        nullable("subString", "STRING", "filter expression; topic and all that follows are NULL where a group subscribes to nothing"),
        nullable("expressionType", "STRING", "TAG or SQL92"),
        nullable("subVersion", "BIGINT", "version of the subscription, ms of the client's clock"),
        nullable("classFilterMode", "BOOLEAN", "class filter mode"),
        nullable("tagsSet", "ARRAY<STRING>", "tags"),
        nullable("codeSet", "ARRAY<INT>", "hash codes of the tags, as the client sent them"),
    ),
    checks=("event IN ('HEART_BEAT', 'UNREGISTER_CLIENT', 'CLOSED')",),
)

BAD_REQUEST = Table(
    "bad_request",
    "What could not be read of a source: packets, stretches of connections, frames. The rest of the source was read all the same.",
    (
        _BROKER,
        *_SOURCE,
        Column("position", "BIGINT", "byte in the file: of the packet, for a frame of the one that completed it"),
        Column("error", "STRING", "what was expected and what was found"),
        Column("raw", "BINARY", f"the bytes, {RAW_BYTES_MAX} at most"),
    ),
    checks=("position >= 0",),
)

CAPTURED = (PULL_REQUEST, OFFSET_HISTORY, OFFSET_RESET, SUBSCRIPTION, BAD_REQUEST)
