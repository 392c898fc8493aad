"""The table of events of followed stores."""

from __future__ import annotations

from pipeline.schema.table import RUN_ID, Column, Table

FOLLOW_EVENT = Table(
    "follow_event",
    "Events in the log of a followed broker after which its whole store had to be imported again.",
    (
        Column("brokerName", "STRING", "broker that the row is about"),
        RUN_ID,
        Column("batchId", "BIGINT", "number of the run's batch that found the event"),
        Column("event", "STRING", "TRUNCATED, CLEANED, ODD_RECORD, ODD_TOPIC, MULTI_DISPATCH or QUEUE_OFFSETS"),
        Column("physicOffset", "BIGINT", "offset in the commit log where the event was found"),
        Column("text", "STRING", "the event in words"),
        Column("maxPhyOffset", "BIGINT", "end of the commit log after the import that followed"),
        Column("seenAt", "TIMESTAMP", "when the event was found, by the wall clock"),
    ),
    checks=("event IN ('TRUNCATED', 'CLEANED', 'ODD_RECORD', 'ODD_TOPIC', 'MULTI_DISPATCH', 'QUEUE_OFFSETS')",),
)

FOLLOWED = (FOLLOW_EVENT,)
