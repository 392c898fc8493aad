"""The minOffset of each queue by the rule of another version than the import's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipeline.delta.table_rows import Wanted
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay import broker_store, queue_bounds
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import RULES_VERSION
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.layout import CQ_STORE_UNIT_SIZE, CQ_UNIT
from store_format.queue.consume_queue import CORRECT_MIN_OFFSET, Units, correct_min_offset, units_of

# queues whose first files the driver reads at once: 6 MB each
_QUEUES_AT_ONCE = 16
_SCHEMA = "topic STRING, queueId INT, otherMin BIGINT"
_ARROW = arrow_of(_SCHEMA)
_QUEUE = ["topic", "queueId"]
_COLUMNS = [*_QUEUE, "segment", "fileFirstOffset", "firstQueueOffset", "entryCount", "entries"]


def min_offsets_under(broker: OpenedBroker, version: BrokerVersion) -> Mapping[tuple[str, int], int]:
    """The minOffset that a load by a version finds, by (topic, queueId), for the queues whose minOffset in the tables differs.

    Only the entries of each queue's first file and last segment are read, and only if the queue or the commit log does not begin at 0.
    """
    imported = BrokerVersion(broker.properties().get(RULES_VERSION, DEFAULT_VERSION.value))
    by_search = CORRECT_MIN_OFFSET.of(version).value
    if by_search == CORRECT_MIN_OFFSET.of(imported).value:
        return {}
    log_min = broker_store(broker).log_start
    if not broker.lake.has_session:
        return _others_here(broker, log_min, by_search)
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT)
    ends = segments.groupBy(*_QUEUE).agg(F.min("fileFirstOffset").alias("firstFile"), F.max("segment").alias("lastSegment"))
    deleted = ends.where((F.col("firstFile") > 0) | F.lit(log_min > 0))
    wanted = segments.join(deleted, _QUEUE).where(
        (F.col("fileFirstOffset") == F.col("firstFile")) | (F.col("segment") == F.col("lastSegment"))
    )

    def found_in(rows: pa.Table) -> pa.Table:
        return min_offset_of(log_min, by_search, rows)

    found = wanted.select(*_COLUMNS).groupBy(*_QUEUE).applyInArrow(found_in, _SCHEMA)
    others = found.join(queue_bounds(broker), _QUEUE).where("otherMin <> minOffset").select(*_QUEUE, "otherMin")
    return {(row["topic"], row["queueId"]): row["otherMin"] for row in others.collect()}


def _others_here(broker: OpenedBroker, log_min: int, by_search: bool) -> Mapping[tuple[str, int], int]:
    """As `min_offsets_under`, on the driver."""
    places = broker.rows_with(t.CONSUME_QUEUE_SEGMENT, {}, [*_QUEUE, "segment", "fileFirstOffset"])
    ends = places.group_by(_QUEUE).aggregate([("fileFirstOffset", "min"), ("segment", "max")]).to_pylist()
    deleted = [end for end in ends if end["fileFirstOffset_min"] > 0 or log_min > 0]
    found = {}
    for start in range(0, len(deleted), _QUEUES_AT_ONCE):
        some = [({name: [end[name]] for name in _QUEUE}, end) for end in deleted[start : start + _QUEUES_AT_ONCE]]
        firsts = [of_queue | {"fileFirstOffset": [end["fileFirstOffset_min"]]} for of_queue, end in some]
        lasts = [of_queue | {"segment": [end["segment_max"]]} for of_queue, end in some]
        queues: Wanted = {name: sorted({end[name] for _, end in some}) for name in _QUEUE}
        rows = broker.rows_with(t.CONSUME_QUEUE_SEGMENT, queues, _COLUMNS, [*firsts, *lasts])
        for _, end in some:
            own = rows.filter((pc.field("topic") == end["topic"]) & (pc.field("queueId") == end["queueId"]))
            found[end["topic"], end["queueId"]] = min_offset_of(log_min, by_search, own)["otherMin"][0].as_py()
    known = {(row["topic"], row["queueId"]): row["minOffset"] for row in broker.rows(t.QUEUE).to_pylist()}
    return {queue: least for queue, least in found.items() if least != known.get(queue, least)}


def min_offset_of(log_min: int, by_search: bool, segments: pa.Table) -> pa.Table:
    """The minOffset of a queue after a load, as a row of topic, queueId and otherMin.

    Args:
        log_min: first offset of the commit log.
        by_search: the value of CORRECT_MIN_OFFSET in the broker's version.
        segments: rows of consume_queue_segment: those of the queue's first file, and the last one.
    """
    rows = segments.sort_by("segment").to_pylist()
    files: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        files.setdefault(row["fileFirstOffset"], []).append(row)
    units = {str(first): _units(of_file) for first, of_file in files.items()}
    mapped = [
        MappedFile(
            name=str(first),
            from_offset=of_file[0]["firstQueueOffset"] * CQ_STORE_UNIT_SIZE,
            length=len(units[str(first)]) * CQ_STORE_UNIT_SIZE,
            wrote=len(units[str(first)]) * CQ_STORE_UNIT_SIZE,
        )
        for first, of_file in sorted(files.items())
    ]
    least = correct_min_offset(mapped, log_min, lambda file: units[file.name], by_search=by_search)
    return pa.Table.from_pylist([{"topic": rows[0]["topic"], "queueId": rows[0]["queueId"], "otherMin": least}], _ARROW)


def _units(segments: list[dict[str, Any]]) -> Units:
    """The entries of segments of one file. The entries after a segment's own ones, which the next segment has too, are left out."""
    parts = [units_of(np.frombuffer(row["entries"], np.uint8))[: row["entryCount"]] for row in segments]
    return np.concatenate(parts) if parts else np.empty(0, CQ_UNIT)
