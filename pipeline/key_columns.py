"""Columns that many tables have: whose row it is, and of which queue or run."""

from __future__ import annotations

from pipeline.table import Column

BROKER_NAME = Column("brokerName", "STRING", "broker whose store it is; a slave's store has a name of its own")
TOPIC = Column("topic", "STRING", "topic, as the broker spells it (%RETRY%group, %DLQ%group included)")
QUEUE_ID = Column("queueId", "INT", "queue of the topic")
RUN_ID = Column("runId", "STRING", "the run that wrote the row")
