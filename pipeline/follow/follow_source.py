"""The data source `spark.readStream.format("rocketmq-log")`, which reads the commit log of a running broker as a stream.

Options: `path` is the store; `brokerName`; `mappedFileSizeCommitLog`; `startingOffset` is the offset in the log to start from; `minOffset`
is the log's first offset; `mark` is the record before the start (JSON); `maxBytesPerTrigger`; `delays` are those of the delay levels in ms
(JSON); `multiDispatch`; `rulesVersion` is the version of the broker whose records count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.files.store_files import StoreFiles
from pipeline.follow.log_tail import CLEANED, Event, FollowOffset, LogTail, Mark, Piece, Tail
from pipeline.rows.log_batches import commit_log_batch, walks
from pipeline.rows.topic_partitions import NULL_PARTITION, can_name_a_folder
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.table import Column, Table
from pipeline.schema.tables import COMMIT_LOG
from store_format.big_endian import Bytes, Positions
from store_format.broker_version import BrokerVersion
from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.dispatch_request import DispatchRequests, read_requests
from store_format.record.record_columns import representable
from udfs.broker.schedule import deliver_timestamp_of

NAME = "rocketmq-log"
# the columns of the stream: those of commit_log, and some more
FOLLOWED_LOG = Table(
    "followed_log",
    "Records of the commit log with what their dispatch needs; or an event, with the offset that it is about as physicOffset.",
    (
        *COMMIT_LOG.columns,
        Column("tagsCode", "BIGINT", "of its entry in the consume queue; NULL where it gets none"),
        Column("event", "STRING", "NULL for a record; else why the rows so far are no longer those of the log"),
        Column("eventText", "STRING", "the same in words"),
    ),
)
# kinds of records that only an import of the whole store can add
ODD_RECORD, ODD_TOPIC, MULTI_DISPATCH = "ODD_RECORD", "ODD_TOPIC", "MULTI_DISPATCH"
_CONFIG = "config"
# seconds between two reads of a record; if they are equal, the record is complete
_SETTLE_SECONDS = 0.2


class FollowedLog(DataSource):
    """The data source; register it with `register_source`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The columns of FOLLOWED_LOG."""
        return FOLLOWED_LOG.schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """The reader of the stream."""
        options = self.options
        mark = json.loads(options.get("mark", "null"))
        return FollowReader(
            log=LogTail(StoreFiles(options["path"]), int(options["mappedFileSizeCommitLog"]), BrokerVersion(options["rulesVersion"])),
            broker=options["brokerName"],
            start=int(options["startingOffset"]),
            least=int(options["minOffset"]),
            mark=None if mark is None else Mark(*mark),
            bytes_max=int(options["maxBytesPerTrigger"]),
            delays=tuple(json.loads(options["delays"])),
            multi_dispatch=options["multiDispatch"] == "true",
        )


@dataclass
class EventPartition(InputPartition):
    """A partition with one event."""

    event: Event


@dataclass
class PiecePartition(InputPartition):
    """A partition with consecutive records of one file."""

    piece: Piece


@dataclass(eq=False, kw_only=True)
class FollowReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds new records in a process of the driver, and reads them in tasks."""

    log: LogTail
    broker: str
    start: int
    least: int
    mark: Mark | None
    bytes_max: int
    delays: tuple[int, ...]
    multi_dispatch: bool
    _newest: Mark | None = None
    _until: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The offset at which the import ended."""
        return FollowOffset(physic_offset=self.start, min_offset=self.least, mark=self.mark).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """The limit of a batch: maxBytesPerTrigger bytes of records."""
        return ReadMaxBytes(self.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """End the stream with the records that are in the log now, including the newest one."""
        self._newest = self.log.end().newest
        time.sleep(_SETTLE_SECONDS)
        found = self.log.end()
        self._until = found.newest.end if found.newest is not None and found.newest == self._newest else found.end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The offset after the last complete record, or after an event."""
        at = FollowOffset.of(start)
        config = self._config()
        if (event := self.log.lost(at)) is not None:
            self.log = self.log.as_found()
            tail = self.log.end()
            found = FollowOffset(
                physic_offset=tail.end,
                min_offset=event.physic_offset if event.kind == CLEANED else at.min_offset,
                mark=tail.last,
                epoch=at.epoch + 1,
                event=event,
                config=config,
            )
            return found.as_dict()
        if at.min_offset < 0:  # the log's lengths are not known yet
            return replace(at, event=None, config=config).as_dict()
        tail = self._look(at, limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.bytes_max)
        return replace(at, physic_offset=tail.end, mark=tail.last or at.mark, event=None, config=config).as_dict()

    def _look(self, at: FollowOffset, bytes_max: int) -> Tail:
        if self._until is not None:
            bytes_max = min(bytes_max, self._until - at.physic_offset)
            if bytes_max <= 0:
                return Tail(end=at.physic_offset)
        tail = self.log.look(at.physic_offset, bytes_max, self._newest)
        self._newest = tail.newest
        return tail

    def _config(self) -> str:
        entries = self.log.store.folder(_CONFIG)
        return " ".join(f"{entry.name}:{entry.length}:{entry.mtime_ms}" for entry in entries if not entry.is_folder)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions between two offsets: an event, or pieces of the log."""
        first, last = FollowOffset.of(start), FollowOffset.of(end)
        if last.event is not None:
            return [EventPartition(last.event)]
        return [PiecePartition(piece) for piece in self.log.pieces(first.physic_offset, last.physic_offset)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of FOLLOWED_LOG in a partition."""
        if isinstance(partition, EventPartition):
            yield self._event(partition.event)
            return
        assert isinstance(partition, PiecePartition)
        piece = partition.piece
        content = self.log.store.stretch(piece.start, piece.end, piece.file.length, "commitlog", piece.file.name)
        for part in walks(content, piece.end, piece.start, version=self.log.version):
            if len(part.positions):
                yield from self._rows(piece.file.from_offset, content, part.positions)

    def _rows(self, from_offset: int, content: Bytes, positions: Positions) -> Iterator[pa.RecordBatch]:
        odd = np.flatnonzero(~representable(content, positions, from_offset))
        requests = read_requests(content, positions, deliver_timestamp_of(self.delays))
        many = np.flatnonzero(requests.multi_dispatch.lengths > 0)
        if len(odd) or len(requests) < len(positions):
            at = from_offset + int(positions[odd[0] if len(odd) else len(requests)])
            yield self._event(Event(kind=ODD_RECORD, physic_offset=at, text=f"the record at {at} is none that a row can give back"))
        elif len(many) and self.multi_dispatch:
            at = from_offset + int(positions[many[0]])
            yield self._event(Event(kind=MULTI_DISPATCH, physic_offset=at, text=f"the record at {at} goes to queues of other topics too"))
        else:
            rows = commit_log_batch(self.broker, content, positions)
            names = rows.column("topic").unique().to_pylist()
            odd_topic = next((name for name in names if name == NULL_PARTITION or not can_name_a_folder(name)), None)
            if odd_topic is not None:
                at = from_offset + int(positions[0])
                yield self._event(Event(kind=ODD_TOPIC, physic_offset=at, text=f"topic {odd_topic!r} cannot name a partition"))
                return
            nothing = pa.nulls(len(rows), pa.string())
            yield pa.RecordBatch.from_arrays([*rows.columns, _tags_codes(requests), nothing, nothing], schema=arrow_schema(FOLLOWED_LOG))

    def _event(self, event: Event) -> pa.RecordBatch:
        row = {"brokerName": self.broker, "physicOffset": event.physic_offset, "event": event.kind, "eventText": event.text}
        return pa.RecordBatch.from_pylist([row], schema=arrow_schema(FOLLOWED_LOG))


def _tags_codes(requests: DispatchRequests) -> pa.Array:
    """The column tagsCode; NULL for prepared and rolled back messages, which get no entry (CommitLogDispatcherBuildConsumeQueue)."""
    kinds = requests.sys_flag & TRANSACTION_ROLLBACK_TYPE
    return pa.array(requests.tags_code, mask=(kinds != 0) & (kinds != TRANSACTION_COMMIT_TYPE))
