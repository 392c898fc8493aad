"""Rows of commit_log made from two log files, and rows with one column replaced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.rows.log_batches import Stretch, stretch_batches
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import COMMIT_LOG, Table
from store_format.big_endian import Bytes
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.record.message import Message, encode
from tests.makers.records import placed

FILE = 4096


def batches_of(
    table: Table, file: MappedFile, content: Bytes, start: int = 0, end: int | None = None, version: BrokerVersion = DEFAULT_VERSION
) -> list[pa.RecordBatch]:
    """The batches of a table of broker b for a stretch of a log file, by default for all of it."""
    stretch = Stretch(file, start, file.wrote if end is None else end)
    return [batch for name, batch in stretch_batches("b", stretch, content, frozenset({table.name}), version) if name == table.name]


def rows_of(content: bytes, from_offset: int) -> pa.RecordBatch:
    file = MappedFile(name="f", from_offset=from_offset, length=len(content), wrote=len(content))
    batches = batches_of(COMMIT_LOG, file, np.frombuffer(content, np.uint8))
    table = pa.Table.from_batches(batches, schema=arrow_schema(COMMIT_LOG)).sort_by("physicOffset")
    return table.combine_chunks().to_batches()[0]


def two_files(found: list[Message]) -> tuple[bytes, bytes]:
    """Two consecutive log files with the messages in turn."""
    parts = [b"".join(map(encode, placed(found[number::2], (7 + number) * FILE))) for number in range(2)]
    return parts[0], parts[1]


def replaced(rows: pa.RecordBatch, name: str, value: Any) -> pa.RecordBatch:
    """The rows, with another value in one column of the last row."""
    values = rows.column(name).to_pylist()
    values[-1] = value
    return rows.set_column(rows.schema.get_field_index(name), name, pa.array(values, rows.schema.field(name).type))
