"""Tables of a broker with many entries and groups, written by pyarrow without a store, in the form of an import."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.stand import BROKER
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import LAKE_VERSION, PARTITION_COLUMNS, TABLES, TABLES_VERSION, Table

TOPICS = QUEUES = 10
SIZE, MILLIS = 100, 1_700_000_000_000


def write_tables(lake: Path, *, entries: int, groups: int) -> None:
    """Write a lake of 100 queues with so many entries in all, one a ms; each group has an offset of each queue."""
    of_queue = entries // (TOPICS * QUEUES)
    numbers = np.arange(of_queue)
    queues = [(f"topic-{topic:02d}", queue) for topic in range(TOPICS) for queue in range(QUEUES)]
    for topic, queue in queues:
        _append(
            lake,
            "consume_queue",
            of_queue,
            topic=[topic] * of_queue,
            queueId=np.full(of_queue, queue),
            queueOffset=numbers,
            physicOffset=numbers * SIZE,
            size=np.full(of_queue, SIZE),
            tagsCode=np.zeros(of_queue, np.int64),
            storeTimestamp=MILLIS + numbers,
            bytesBefore=numbers * SIZE,
        )
    topics, ids = [topic for topic, _ in queues], [queue for _, queue in queues]
    zeros = [0] * len(queues)
    _append(lake, "queue", len(queues), topic=topics, queueId=ids, minOffset=zeros, maxOffset=[of_queue] * len(queues))
    counts = {"entryBytes": [of_queue * SIZE] * len(queues), "entryCount": [of_queue] * len(queues)}
    _append(lake, "consume_queue_segment", len(queues), topic=topics, queueId=ids, fileFirstOffset=zeros, **counts)
    _append(lake, "broker", 1, maxStoreTimestamp=[MILLIS + of_queue - 1])
    offsets = np.random.default_rng(1).integers(0, of_queue, groups * len(queues))
    names = [f"group-{group:04d}" for group in range(groups) for _ in queues]
    _append(lake, "consumer_offset", len(offsets), consumerGroup=names, topic=topics * groups, queueId=ids * groups, consumerOffset=offsets)
    found = ("consume_queue", "queue", "consume_queue_segment", "broker", "consumer_offset")
    versions = [(name, DeltaTable(str(lake / name)).version()) for name in found]
    now = dt.datetime.now(dt.UTC)
    row = {"version": 1, "runId": "bench", "what": "import", "brokerName": BROKER, "tables": versions, "committedAt": now}
    table = pa.Table.from_pylist([row | {"tablesVersion": TABLES_VERSION}], arrow_schema(LAKE_VERSION))
    write_deltalake(str(lake / LAKE_VERSION.name), table)


def _append(lake: Path, name: str, rows: int, **columns: Any) -> None:
    table = TABLES[name]
    write_deltalake(
        str(lake / name),
        _whole(table, rows, columns | {"brokerName": [BROKER] * rows}),
        mode="append",
        partition_by=list(PARTITION_COLUMNS) if table.by_queue else None,
    )


def _whole(table: Table, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """Rows with all columns of a table; those that are not given are NULL."""
    schema = arrow_schema(table)
    return pa.table([pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(rows, one.type) for one in schema], schema)
