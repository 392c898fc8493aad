"""The tables of replays: what was run, and how each pull was answered."""

from __future__ import annotations

from dataclasses import replace

from pipeline.schema.table import BROKER_NAME, QUEUE_ID, RUN_ID, TOPIC, Column, Table

# a request may lack them
_QUEUE_KEY = (BROKER_NAME, replace(TOPIC, nullable=True), replace(QUEUE_ID, nullable=True))

REPLAY_RUN = Table(
    "replay_run",
    "One row a finished replay, or a stream from its first batch on.",
    (
        BROKER_NAME,
        RUN_ID,
        Column("source", "STRING", "file, folder or table of the requests"),
        Column("sourceDigest", "STRING", "SHA-256 of the file", nullable=True),
        Column("settings", "MAP<STRING, STRING>", "settings that were given, and `behind` where a slave answered that was"),
        Column("at", "STRING", "snapshot, request-time or recorded-max"),
        Column("lakeVersion", "BIGINT", "version of the lake that was read"),
        Column("startedAt", "TIMESTAMP", "wall clock"),
        Column("finishedAt", "TIMESTAMP", "wall clock; NULL while a stream goes on", nullable=True),
    ),
    key=("brokerName", "runId"),
    checks=("at IN ('snapshot', 'request-time', 'recorded-max')",),
)

ENTRIES_TYPE = "ARRAY<STRUCT<queueOffset: BIGINT, physicOffset: BIGINT, size: INT>>"

PULL_RESPONSE = Table(
    "pull_response",
    "One row an answered pull request: what the broker would have answered.",
    (
        *_QUEUE_KEY,
        RUN_ID,
        Column("requestId", "STRING", "digest of the source and the line: the same whenever the source is read"),
        Column("consumerGroup", "STRING", "of the request", nullable=True),
        Column("queueOffset", "BIGINT", "offset asked for", nullable=True),
        Column("maxMsgNums", "INT", "messages asked for", nullable=True),
        Column("status", "STRING", "GetMessageStatus; NULL where the store answers null, throws, or we cannot answer", nullable=True),
        Column("code", "INT", "response code that goes with the status", nullable=True),
        Column("nextBeginOffset", "BIGINT", "offset to ask for next", nullable=True),
        Column("minOffset", "BIGINT", "of the queue", nullable=True),
        Column("maxOffset", "BIGINT", "of the queue", nullable=True),
        Column("messageCount", "INT", "messages given", nullable=True),
        Column("bufferTotalSize", "INT", "their bytes", nullable=True),
        Column("suggestPullingFromSlave", "BOOLEAN", "the last entry read lies on disk", nullable=True),
        Column("msgCount4Commercial", "INT", "messages counted in units of 64 KiB", nullable=True),
        Column("diskFallBehind", "BIGINT", "bytes between the last entry read and the log's end; NULL where not recorded", nullable=True),
        Column("exception", "STRING", "class that the store throws", nullable=True),
        Column("error", "STRING", "why there is no answer", nullable=True),
        Column(
            "bodySha256", "STRING", "SHA-256 of the records of its messages as the broker sends them; of captured pulls only", nullable=True
        ),
        Column("heldMillis", "BIGINT", "when a pull that was held (long polling) began to wait, ms; NULL for all others", nullable=True),
        Column(
            "wokenMillis",
            "BIGINT",
            "when a pull that was held was asked again and answered, ms; the store was asked as of then",
            nullable=True,
        ),
        Column("entries", ENTRIES_TYPE, "entries given, in order", nullable=True),
    ),
    key=("brokerName", "runId", "requestId"),
    stats=("brokerName", "runId", "topic", "queueId", "queueOffset"),
    checks=("(status = 'FOUND') = (messageCount > 0)", "messageCount = array_size(entries)", "wokenMillis >= heldMillis"),
)

REPLAYED = (REPLAY_RUN, PULL_RESPONSE)
