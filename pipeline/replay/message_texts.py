"""The messages of answers as JSON; each message is rendered once, however many answers list it.

A task gets a block of the commit log: the JSON texts of its records, then the entries of answers that point into it. The task replaces
entries that follow each other in an answer by one text. So Spark joins and groups a few rows for each answer, not one for each message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.entry_colocation import rows_of
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from store_format.errors import UnusableInputError

# 8 MiB of the log: entries of one answer lie in one or two blocks, and the texts of a block fit in memory many times
_BLOCK_BITS = 23
# most entries in a row, and bytes of their messages (256 MiB), so that their texts fit in one Arrow array: a text has the message's keys
_ROW_ENTRIES, _ROW_BITS = 65_536, 28
# keys: physicOffset and size of each entry; runs: answer, position of the run's first entry in the answer, and number of entries
_BLOCKS = "block BIGINT, isWanted BOOLEAN, keys BINARY, texts ARRAY<STRING>, runs BINARY"
_KEY = np.dtype([("physicOffset", "<i8"), ("size", "<i4")])
_RUN = np.dtype([("seq", "<i8"), ("position", "<i4"), ("count", "<i4")])
Keys = NDArray[np.void]
# fields of a message in an answer, and the columns of `delivered` that they come from
MESSAGE_FIELDS: Final = {
    "queueOffset": "queueOffset",
    "physicOffset": "messagePhysicOffset",
    "startOffset": "startOffset",
    "storeSize": "size",
    "msgId": "msgId",
    "tags": "tags",
    "keys": "keys",
    "bodyCrc": "bodyCrc",
    "storeTimestamp": "storeTimestamp",
    "rawCrc32": "recordCrc32",
}
_FRAGMENTS = "seq BIGINT, position INT, fragment STRING"


class LostMessageError(UnusableInputError):
    """An entry of an answer points to bytes of the log that no table has."""

    @classmethod
    def of(cls, lake: str, offset: int, size: int) -> LostMessageError:
        """The error about an entry with this physicOffset and size."""
        return cls(f"{lake}: expected a record of {size} bytes at commit log offset {offset}, as its queue says, found none")


def delivered(broker: OpenedBroker) -> DataFrame:
    """The bytes that the broker delivers for each entry (physicOffset, size): where they start, their CRC, and the decoded message."""
    log = broker.table(t.COMMIT_LOG)
    decodes = F.col("msgId").isNotNull()
    records = log.select(
        "physicOffset",
        F.col("storeSize").alias("size"),
        F.col("physicOffset").alias("startOffset"),
        F.when(decodes, F.col("queueOffset")).alias("queueOffset"),
        F.when(decodes, F.col("physicOffset")).alias("messagePhysicOffset"),
        "msgId",
        "tags",
        "keys",
        F.when(decodes, F.col("bodyCrc")).alias("bodyCrc"),
        F.when(decodes, F.col("storeTimestamp")).alias("storeTimestamp"),
        "recordCrc32",
    )
    odd = broker.table(t.ODD_ENTRY).select(*records.columns)
    return records.unionByName(odd)


def delivered_at(broker: OpenedBroker, offsets: list[int]) -> Iterator[dict[str, Any]]:
    """The rows of `delivered` at some offsets of the log, read by the driver.

    Raises:
        NoSessionError: only Spark reads the tables.
    """
    wanted = {"physicOffset": offsets}
    names = ["physicOffset", "storeSize", "queueOffset", "msgId", "tags", "keys", "bodyCrc", "storeTimestamp", "recordCrc32"]
    records = broker.rows_with(t.COMMIT_LOG, wanted, names)
    odd = broker.rows_with(t.ODD_ENTRY, wanted, [name for name in t.ODD_ENTRY.names if name != "brokerName"])
    yield from map(_delivered_record, rows_of(iter(records.to_batches())))
    yield from rows_of(iter(odd.to_batches()))


def _delivered_record(row: dict[str, Any]) -> dict[str, Any]:
    """The row of `delivered` for a row of commit_log."""
    found = row | {"size": row["storeSize"], "startOffset": row["physicOffset"], "messagePhysicOffset": row["physicOffset"]}
    not_decoded = ("queueOffset", "messagePhysicOffset", "bodyCrc", "storeTimestamp")
    return found if row["msgId"] is not None else found | dict.fromkeys(not_decoded)


def with_messages(broker: OpenedBroker, answers: DataFrame) -> DataFrame:
    """Add to answers a column `messages`: a JSON array of the messages, in the order of the entries; `answers` is read several times."""
    parts = F.sort_array(F.collect_list(F.struct("position", "fragment"))).alias("parts")
    grouped = message_fragments(broker, answers).groupBy("seq").agg(parts)
    messages = F.concat(F.lit("["), F.coalesce(F.array_join("parts.fragment", ","), F.lit("")), F.lit("]"))
    return answers.join(grouped, "seq", "left").withColumn("messages", messages).drop("parts")


def message_fragments(broker: OpenedBroker, answers: DataFrame) -> DataFrame:
    """The messages of answers as fragments of JSON.

    The fragments of an answer in the order of `position`, joined by commas, are its messages. Only the blocks of the log that entries point
    into are rendered. The answers are read several times.

    Args:
        broker: whose log has the messages.
        answers: (seq, entries), as in ANSWER_SCHEMA.

    Returns:
        (seq BIGINT, position INT, fragment STRING).

    Raises:
        LostMessageError: in a task: an entry points to bytes of the log that no table has.
    """
    offsets = F.col("entries.physicOffset")
    at = answers.select(F.array_min(offsets).alias("first"), F.array_max(offsets).alias("last")).agg(F.min("first"), F.max("last")).first()
    first, last = (0, -1) if at is None or at[0] is None else at
    touched = answers.select(F.explode(F.array_distinct(F.transform(offsets, _block_of))).alias("block")).distinct()
    log = delivered(broker).where(F.col("physicOffset").between(first, last) & F.col("recordCrc32").isNotNull())
    texts = (
        log.withColumn("block", _block_of(F.col("physicOffset")))
        .join(F.broadcast(touched), "block", "left_semi")
        .select("block", "physicOffset", "size", _message_json().alias("text"))
    )
    wanted = answers.where(F.size("entries") > 0).select("seq", "entries")
    blocks = texts.mapInArrow(_texts_by_block, _BLOCKS).unionAll(wanted.mapInArrow(_entries_by_block, _BLOCKS))
    in_order = blocks.repartition("block").sortWithinPartitions("block", "isWanted")
    return in_order.mapInArrow(partial(_fragments, broker.lake.root), _FRAGMENTS)


def _block_of(offset: Column) -> Column:
    return F.shiftright(offset, _BLOCK_BITS)


def _message_json() -> Column:
    message = F.struct(*(F.col(column).alias(name) for name, column in MESSAGE_FIELDS.items()))
    return F.to_json(message, {"ignoreNullFields": "false"})


def _texts_by_block(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of _BLOCKS from records with their block and text."""
    for batch in batches:
        blocks = batch.column("block").to_numpy()
        order = np.argsort(blocks, kind="stable")
        keys = _keys(batch.column("physicOffset").to_numpy()[order], batch.column("size").to_numpy()[order])
        starts = _row_starts(blocks[order], keys["size"])
        offsets = pa.array(np.append(starts, len(order)).astype(np.int32))
        texts = pa.ListArray.from_arrays(offsets, batch.column("text").take(pa.array(order)))
        yield _rows(blocks[order][starts], keys, starts, texts=texts)


def _entries_by_block(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of _BLOCKS from answers with entries: the entries of a block, and the runs of entries that follow each other in an answer."""
    for batch in batches:
        lists = batch.column("entries")
        counts = lists.value_lengths().to_numpy()
        seqs = np.repeat(batch.column("seq").to_numpy(), counts)
        positions = np.arange(len(seqs)) - np.repeat(np.cumsum(counts) - counts, counts)
        entries = lists.flatten()
        keys = _keys(entries.field("physicOffset").to_numpy(), entries.field("size").to_numpy())
        blocks = keys["physicOffset"] >> _BLOCK_BITS
        order = np.argsort(blocks, kind="stable")
        starts = _row_starts(blocks[order], keys["size"][order])
        of_rows = np.split(order, starts[1:]) if len(starts) else []
        runs = pa.array([_runs(seqs[row], positions[row]).tobytes() for row in of_rows], pa.binary())
        yield _rows(blocks[order][starts], keys[order], starts, runs=runs)


def _row_starts(blocks: NDArray[np.int64], sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where a row starts: at each new block, and after _ROW_ENTRIES entries or 2 ** _ROW_BITS bytes of messages."""
    rows = np.cumsum(sizes, dtype=np.int64) >> _ROW_BITS
    changes = np.flatnonzero((blocks[1:] != blocks[:-1]) | (rows[1:] != rows[:-1])) + 1
    return np.union1d(changes, np.arange(0, len(blocks), _ROW_ENTRIES))


def _keys(offsets: NDArray[np.int64], sizes: NDArray[np.int32]) -> Keys:
    keys = np.empty(len(offsets), _KEY)
    keys["physicOffset"], keys["size"] = offsets, sizes
    return keys


def _runs(seqs: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.void]:
    """The runs of entries that follow each other in one answer."""
    starts = np.append(0, np.flatnonzero((seqs[1:] != seqs[:-1]) | (positions[1:] != positions[:-1] + 1)) + 1)
    runs = np.empty(len(starts), _RUN)
    runs["seq"], runs["position"], runs["count"] = seqs[starts], positions[starts], np.diff(starts, append=len(seqs))
    return runs


def _rows(
    blocks: NDArray[np.int64], keys: Keys, starts: NDArray[np.int64], *, texts: pa.Array | None = None, runs: pa.Array | None = None
) -> pa.RecordBatch:
    """Rows of _BLOCKS; `keys` is cut at `starts`."""
    offsets = np.append(starts, len(keys)) * _KEY.itemsize
    binary = pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(keys)])
    schema = arrow_of(_BLOCKS)
    given = {
        "block": pa.array(blocks),
        "isWanted": pa.array(np.full(len(blocks), runs is not None)),
        "keys": binary,
        "texts": texts,
        "runs": runs,
    }
    columns = [pa.nulls(len(blocks), field.type) if given[field.name] is None else given[field.name] for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(slots=True)
class _Block:
    """The records of one block: their keys, and their texts."""

    number: int
    keys: list[bytes]
    texts: list[pa.Array]

    def texts_of(self, keys: bytes) -> pa.Array:
        """The texts of the entries with these keys; NULL for an entry without a record."""
        if len(self.texts) > 1:
            self.keys, self.texts = [b"".join(self.keys)], [pa.concat_arrays(self.texts)]
        if not self.texts:
            return pa.nulls(len(keys) // _KEY.itemsize, pa.string())
        return self.texts[0].take(pc.index_in(_fixed(keys), value_set=_fixed(self.keys[0])))


def _fixed(keys: bytes) -> pa.Array:
    size = _KEY.itemsize
    return pa.Array.from_buffers(pa.binary(size), len(keys) // size, [None, pa.py_buffer(keys)])


def _fragments(lake: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The text of each run of entries, from rows of _BLOCKS in the order of their blocks, records first.

    Raises:
        LostMessageError: an entry has no record.
    """
    block = _Block(-1, [], [])
    for batch in batches:
        columns = (batch.column(name) for name in ("block", "isWanted", "keys", "texts", "runs"))
        for number, is_wanted, keys, texts, runs in zip(*columns, strict=True):
            if number.as_py() != block.number:
                block = _Block(number.as_py(), [], [])
            if is_wanted.as_py():
                yield _joined(lake, keys.as_py(), block, np.frombuffer(runs.as_py(), _RUN))
            else:
                block.keys.append(keys.as_py())
                block.texts.append(texts.values)


def _joined(lake: str, keys: bytes, block: _Block, runs: NDArray[np.void]) -> pa.RecordBatch:
    texts = block.texts_of(keys)
    if texts.null_count:
        offset, size = np.frombuffer(keys, _KEY)[texts.is_null().index(True).as_py()].tolist()
        raise LostMessageError.of(lake, offset, size)
    of_runs = pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(runs["count"])).astype(np.int32)), texts)
    columns = [pa.array(runs["seq"]), pa.array(runs["position"]), pc.binary_join(of_runs, ",")]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_of(_FRAGMENTS))
