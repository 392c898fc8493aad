"""SHA-256 of the body that the broker sends with an answer: the records of its messages from the log, concatenated.

Broker source (4.9.3): PullMessageProcessor.readGetMessageResult, ManyMessageTransfer: both send the buffers of the result unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.rows.log_records import RECORD_COLUMNS, encoded_records
from pipeline.schema import tables as t

_RECORD = "physicOffset BIGINT, size INT, record BINARY"


def with_body_sha256(broker: OpenedBroker, answers: DataFrame) -> DataFrame:
    """Add to answers a column `bodySha256`; NULL if there is no message, or an entry's bytes are no record of commit_log.

    `answers` have `seq` and `entries`; they are read twice.
    """
    entries = answers.select("seq", F.posexplode("entries").alias("place", "entry")).select(
        "seq", "place", F.col("entry.physicOffset").alias("physicOffset"), F.col("entry.size").alias("size")
    )
    found = entries.join(_records(broker, entries), ["physicOffset", "size"], "left")
    ordered = F.transform(F.sort_array(F.collect_list(F.struct("place", "record"))), lambda one: one["record"])
    whole = F.aggregate(ordered, F.lit(b""), _joined)
    no_record = F.count(F.when(F.col("record").isNull(), True)) > 0
    bodies = found.groupBy("seq").agg(F.when(~no_record, F.sha2(whole, 256)).alias("bodySha256"))
    return answers.join(bodies, "seq", "left")


def _joined(body: Column, record: Column) -> Column:
    return F.concat(body, record)


def _records(broker: OpenedBroker, entries: DataFrame) -> DataFrame:
    """The records of the log from the first to the last entry."""
    at = entries.agg(F.min("physicOffset").alias("first"), F.max("physicOffset").alias("last")).first()
    first, last = (0, -1) if at is None or at["first"] is None else (at["first"], at["last"])
    of_log = broker.table(t.COMMIT_LOG).where(F.col("physicOffset").between(first, last))
    row = broker.table(t.BROKER).select("mappedFileSizeCommitLog").first()
    file_size = 0 if row is None else row[0]
    return of_log.select(*RECORD_COLUMNS).mapInArrow(partial(encoded_batches, file_size), _RECORD)


def encoded_batches(file_size: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The bytes of the records of rows of commit_log: physicOffset, size and `record`."""
    for batch in batches:
        if len(batch):
            content, ends = encoded_records(batch, file_size)
            buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content)]
            records = pa.Array.from_buffers(pa.binary(), len(batch), buffers)
            columns = [batch.column("physicOffset"), batch.column("storeSize"), records]
            yield pa.RecordBatch.from_arrays(columns, names=["physicOffset", "size", "record"])
