"""The table of events of followed stores."""

from __future__ import annotations

from pipeline.schema.table import RUN_ID, Column, Table

FOLLOW_EVENT = Table(
    "follow_event",
    "What happened to the log of a followed broker so that its store had to be imported again as a whole.",
    (
        Column("brokerName", "STRING", "broker whose store it is"),
        RUN_ID,
        Column("batchId", "BIGINT", "batch of the run that found it"),
        Column("event", "STRING", "TRUNCATED, CLEANED, ODD_RECORD, ODD_TOPIC, MULTI_DISPATCH or QUEUE_OFFSETS"),
        Column("physicOffset", "BIGINT", "offset in the commit log that it is about"),
        Column("text", "STRING", "the same in words"),
        Column("maxPhyOffset", "BIGINT", "end of the commit log after the import"),
        Column("seenAt", "TIMESTAMP", "wall clock"),
    ),
    checks=("event IN ('TRUNCATED', 'CLEANED', 'ODD_RECORD', 'ODD_TOPIC', 'MULTI_DISPATCH', 'QUEUE_OFFSETS')",),
)

FOLLOWED = (FOLLOW_EVENT,)
