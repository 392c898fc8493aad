"""Arrow schemas of the tables, made from their Spark types."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from pipeline.schema.tables import ENTRIES_TYPE, EXT_FILES_TYPE, EXT_UNIT_TYPE, Table

_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "ARRAY<INT>": pa.list_(pa.int32()),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
    ENTRIES_TYPE: pa.list_(pa.struct({"queueOffset": pa.int64(), "physicOffset": pa.int64(), "size": pa.int32()})),
    EXT_UNIT_TYPE: pa.struct({"tagsCode": pa.int64(), "msgStoreTime": pa.int64(), "filterBitMap": pa.binary()}),
    EXT_FILES_TYPE: pa.list_(pa.struct({"name": pa.string(), "fromOffset": pa.int64(), "length": pa.int64(), "wrote": pa.int64()})),
}


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """The table's columns as an Arrow schema."""
    return pa.schema([(column.name, _ARROW[column.type]) for column in table.columns])
