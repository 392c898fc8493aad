"""Counts the records that the broker's start would dispatch again: those after the last message in any consume queue."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.files.store_files import StoreFiles
from store_format.files.mapped_files import MappedFile
from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.commit_log import WALK_BATCH, walk
from store_format.record import record_columns as rc
from store_format.store_paths import COMMIT_LOG


def undispatched_records(spark: SparkSession, store: StoreFiles, files: tuple[MappedFile, ...], reput_from: int) -> int:
    """The number of records from offset `reput_from` on that would become queue entries; prepared and rolled back ones never do."""
    undispatched = [file for file in files if file.from_offset + file.wrote > reput_from]
    rows = spark.createDataFrame(
        [(file.name, file.from_offset, file.wrote) for file in undispatched], "name STRING, fromOffset BIGINT, wrote BIGINT"
    )
    counted = rows.repartition(len(undispatched), "name").mapInArrow(partial(_count, store, reput_from), "records BIGINT")
    row = counted.agg(F.sum("records")).first()
    return 0 if row is None or row[0] is None else int(row[0])


def _count(store: StoreFiles, reput_from: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            content = store.content(COMMIT_LOG, row["name"])
            at, found = max(reput_from - row["fromOffset"], 0), 0
            while True:
                part = walk(content, at, row["wrote"], WALK_BATCH)
                kinds = rc.prefixes(content, part.positions)["sysFlag"] & TRANSACTION_ROLLBACK_TYPE
                found += int(((kinds == 0) | (kinds == TRANSACTION_COMMIT_TYPE)).sum())
                if part.ended is not None:
                    break
                at = part.end
            yield pa.RecordBatch.from_pydict({"records": [found]})


assert TRANSACTION_PREPARED_TYPE | TRANSACTION_COMMIT_TYPE == TRANSACTION_ROLLBACK_TYPE
