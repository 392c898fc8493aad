"""The tables of replays: what was run, and how each pull was answered."""

from __future__ import annotations

from pipeline.table import Column, Table

_BROKER = Column("brokerName", "STRING", "broker whose store it is; a slave's store has a name of its own")
_TOPIC = Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group, %DLQ%group included)")
_QUEUE = Column("queueId", "INT", "queue of the topic")
_QUEUE_KEY = (_BROKER, _TOPIC, _QUEUE)
_RUN = Column("runId", "STRING", "the run that wrote the row")

REPLAY_RUN = Table(
    "replay_run",
    "One row a finished replay, or a stream from its first batch on.",
    (
        _BROKER,
        _RUN,
        Column("source", "STRING", "file, folder or table of the requests"),
        Column("sourceDigest", "STRING", "SHA-256 of the file"),
        Column("settings", "MAP<STRING, STRING>", "settings that were given"),
        Column("at", "STRING", "snapshot, request-time or recorded-max"),
        Column("lakeVersion", "BIGINT", "version of the lake that was read"),
        Column("startedAt", "TIMESTAMP", "wall clock"),
        Column("finishedAt", "TIMESTAMP", "wall clock; NULL while a stream goes on"),
    ),
    key=("brokerName", "runId"),
)

ENTRIES_TYPE = "ARRAY<STRUCT<queueOffset: BIGINT, physicOffset: BIGINT, size: INT>>"

PULL_RESPONSE = Table(
    "pull_response",
    "One row an answered pull request: what the broker would have answered.",
    (
        *_QUEUE_KEY,
        _RUN,
        Column("requestId", "STRING", "digest of the source and the line: the same whenever the source is read"),
        Column("consumerGroup", "STRING", "of the request"),
        Column("queueOffset", "BIGINT", "offset asked for"),
        Column("maxMsgNums", "INT", "messages asked for"),
        Column("status", "STRING", "GetMessageStatus; NULL where the store answers null, throws, or we cannot answer"),
        Column("code", "INT", "response code that goes with the status"),
        Column("nextBeginOffset", "BIGINT", "offset to ask for next"),
        Column("minOffset", "BIGINT", "of the queue"),
        Column("maxOffset", "BIGINT", "of the queue"),
        Column("messageCount", "INT", "messages given"),
        Column("bufferTotalSize", "INT", "their bytes"),
        Column("suggestPullingFromSlave", "BOOLEAN", "the last entry read lies on disk"),
        Column("msgCount4Commercial", "INT", "messages counted in units of 64 KiB"),
        Column("diskFallBehind", "BIGINT", "bytes between the last entry read and the log's end; NULL where not recorded"),
        Column("exception", "STRING", "class that the store throws"),
        Column("error", "STRING", "why there is no answer"),
        Column("bodySha256", "STRING", "SHA-256 of the records of its messages as the broker sends them; of captured pulls only"),
        Column("heldMillis", "BIGINT", "when a pull that was held (long polling) began to wait, ms; NULL for all others"),
        Column("wokenMillis", "BIGINT", "when a pull that was held was asked again and answered, ms; the store was asked as of then"),
        Column("entries", ENTRIES_TYPE, "entries given, in order"),
    ),
    key=("brokerName", "runId", "requestId"),
)

REPLAYED = (REPLAY_RUN, PULL_RESPONSE)
