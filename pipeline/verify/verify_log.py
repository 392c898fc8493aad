"""Checks files of the commit log and of consume queues: each is read, written again and compared; entries are looked up in the log.

Broker source (4.9.3): CommitLog.checkMessageAndReturnSize, ConsumeQueue.putMessagePositionInfoWrapper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.files.store_files import StoreFiles
from pipeline.rows.log_batches import topic_column, walks
from pipeline.settings.quantities import counted
from pipeline.store.open_log import OpenLog
from store_format import layout
from store_format.big_endian import Bytes, Positions
from store_format.broker_version import BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.log.append import NO_BATCH, MessageColumns, encode
from store_format.log.commit_log import WalkEnd, first_bad_body
from store_format.log.dispatch_request import SCHEDULE_TOPIC, DispatchRequests, read_requests
from store_format.queue.consume_queue import Units, encode_units, units_of
from store_format.queue.consume_queue_ext import EXT_UNIT
from store_format.queue.entry_lookup import find_files
from store_format.record import record_columns as rc
from store_format.record.record_check import first_difference
from store_format.store.entry_check import Held, check_units
from store_format.store_paths import COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT

Queue = tuple[str, int]
_CHECKED_UNITS = 1 << 16


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a file. A file has at most one finding of each code.

    Attributes:
        code: the code, one of finding_codes.
        path: the file, or the folder of the queue.
        text: what is wrong, and where first.
        messages: number of the messages or entries concerned; None if it is not known.
        queue_offset: queue offset of the first of them; None if they are in no queue.
        physic_offset: offset in the commit log of the first of them, or of the begin of the stretch concerned; None if there is none.
        physic_end: the offset after that stretch; None for single messages.
    """

    code: str
    path: str
    text: str
    messages: int | None = None
    queue_offset: int | None = None
    physic_offset: int | None = None
    physic_end: int | None = None


@dataclass(slots=True)
class Checked:
    """The result of the check of one file; `result` is a word or two, for a file without findings.

    `queued` has for each queue the number of messages of this file less its entries whose message was found; over all files the sum is 0 if
    each message has one entry. `newest` is the greatest storeTimestamp, ms.
    """

    path: str
    kind: str
    length: int
    result: str = "ok"
    findings: list[Finding] = field(default_factory=list)
    queued: Counter[Queue] = field(default_factory=Counter)
    newest: int | None = None

    def find(
        self,
        code: str,
        text: str,
        *,
        messages: int | None = None,
        queue_offset: int | None = None,
        physic_offset: int | None = None,
        physic_end: int | None = None,
    ) -> None:
        """Add a finding, with the attributes of Finding."""
        if all(finding.code != code for finding in self.findings):
            self.findings.append(Finding(code, self.path, text, messages, queue_offset, physic_offset, physic_end))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The commit log in which entries are looked up: its files as they are, the last file up to the end of its records.

    `version` is that of the broker whose records count.
    """

    store: StoreFiles
    files: tuple[MappedFile, ...]
    opened: OpenLog
    version: BrokerVersion

    @property
    def start(self) -> int:
        """Offset of the log's first byte."""
        return self.files[0].from_offset if self.files else 0

    @property
    def end(self) -> int:
        """Offset after the log's last record."""
        return self.files[-1].from_offset + self.files[-1].wrote if self.files else 0

    def stretches(self, offsets: NDArray[np.int64]) -> Iterator[tuple[MappedFile, Bytes, NDArray[np.int64]]]:
        """For each file in which offsets lie: the file, its bytes, and the indexes of these offsets."""
        index = find_files(self.files, offsets)
        starts = np.array([file.from_offset for file in self.files] or [0], np.int64)
        rows = np.flatnonzero((index >= 0) & (offsets >= starts[index]))
        ordered = rows[np.argsort(index[rows], kind="stable")]
        for part in np.split(ordered, np.flatnonzero(np.diff(index[ordered])) + 1):
            if len(part):
                file = self.files[index[part[0]]]
                yield file, self.opened.content(file), part


def verify_log_file(log: LogFiles, file: MappedFile, *, is_last: bool) -> Checked:
    """Walk the records of a file, write each record again from its columns, and compare the bytes."""
    found = Checked(f"{COMMIT_LOG}/{file.name}", COMMIT_LOG, file.length)
    content = log.opened.content(file)
    end, ended = 0, None
    for part in walks(content, file.length, version=log.version):
        end, ended = part.end, part.ended
        if len(part.positions):
            _verify_records(found, file, content, part.positions, part.end)
    rest = {"physic_offset": file.from_offset + end, "physic_end": file.from_offset + file.length}
    if ended is WalkEnd.BAD_RECORD:
        found.find("LOG_BAD_RECORD", f"byte {end}: a record whose lengths do not add up", **rest)
    elif ended is WalkEnd.NO_RECORD and not is_last:
        found.find("LOG_NO_RECORD", f"byte {end}: neither a record nor the blank that ends a file", **rest)
    elif ended is WalkEnd.NO_RECORD and content[end:].any():
        text = f"byte {end}: {np.count_nonzero(content[end:]):,} bytes that are not zero after the last record"
        found.find("LOG_TAIL", text, **rest)
    return found


def _verify_records(found: Checked, file: MappedFile, content: Bytes, positions: Positions, end: int) -> None:
    bad = first_bad_body(content, positions)
    if bad < len(positions):
        text = f"byte {positions[bad]}: a body whose CRC-32 is not that of the record"
        found.find("LOG_BAD_CRC", text, physic_offset=file.from_offset + int(positions[bad]))
    kept = rc.representable(content, positions, file.from_offset)
    if not kept.all():
        odd = positions[~kept]
        text = f"byte {odd[0]}: {len(odd):,} records with a wrong physicOffset, a negative length, or no topic for their version"
        found.find("LOG_ODD_RECORD", text, messages=len(odd), physic_offset=file.from_offset + int(odd[0]))
    positions = positions[kept]
    if not len(positions):
        return
    parts, prefix = rc.locate(content, positions), rc.prefixes(content, positions)
    first, sizes = int(positions[0]), prefix["storeSize"].astype(np.int64)
    again = np.zeros(end - first, np.uint8)
    offsets, queue_offsets = prefix["physicOffset"].astype(np.int64), prefix["queueOffset"].astype(np.int64)
    encode(_columns(content, parts, prefix), slice(None), offsets, queue_offsets, again, file.from_offset + first)
    if not pa.py_buffer(again).equals(pa.py_buffer(content[first:end])):  # an unrepresentable record lies between, or a record differs
        differs = first_difference(again, positions - first, content[first:end], positions - first, sizes)
        if differs >= 0:
            text = f"byte {first + differs}: written again from its columns, the record is another one"
            found.find("LOG_DIFFERS", text, physic_offset=file.from_offset + first + differs)
    found.newest = max(int(rc.store_timestamps(content, parts).max()), -1 if found.newest is None else found.newest)
    kinds = prefix["sysFlag"] & layout.TRANSACTION_ROLLBACK_TYPE
    queued = pa.array((kinds == 0) | (kinds == layout.TRANSACTION_COMMIT_TYPE))
    queues = pa.table({"topic": topic_column(content, parts), "queueId": pa.array(prefix["queueId"].astype(np.int32))}).filter(queued)
    for row in queues.group_by(["topic", "queueId"]).aggregate([([], "count_all")]).to_pylist():
        found.queued[row["topic"], row["queueId"]] += row["count_all"]


def _columns(content: Bytes, parts: rc.RecordParts, prefix: NDArray[np.void]) -> MessageColumns:
    """The records of a file as columns that point into its bytes."""
    middle = rc.middles(content, parts)
    none = np.full(len(prefix), NO_BATCH, np.int64)
    return MessageColumns(
        buffer=content,
        bodies=content,
        queue=none,
        batch=none,
        body_crc=prefix["bodyCrc"].astype(np.int64),
        queue_id=prefix["queueId"].astype(np.int64),
        flag=prefix["flag"].astype(np.int64),
        sys_flag=prefix["sysFlag"].astype(np.int64),
        born_timestamp=prefix["bornTimestamp"].astype(np.int64),
        store_timestamp=rc.store_timestamps(content, parts),
        reconsume_times=middle["reconsumeTimes"].astype(np.int64),
        prepared_transaction_offset=middle["preparedTransactionOffset"].astype(np.int64),
        born_host=parts.born_host,
        store_host=parts.store_host,
        body=parts.body,
        topic=parts.topic,
        properties=parts.properties,
    )


def verify_queue_file(log: LogFiles, queue: Queue, file: MappedFile, *, is_last: bool) -> Checked:
    """Read the entries of a queue file, write them again, compare the bytes, and look each entry up in the commit log."""
    topic, queue_id = queue
    path = (CONSUME_QUEUE, topic, str(queue_id), file.name)
    found = Checked("/".join(path), CONSUME_QUEUE, file.length)
    content = log.store.content(*path)
    units = units_of(content)
    bad = np.flatnonzero((units["physicOffset"] < 0) | (units["size"] <= 0))
    used = units[: bad[0]] if len(bad) else units
    first = file.from_offset // layout.CQ_STORE_UNIT_SIZE
    if not is_last and len(used) < len(units):
        text = f"no entry at offset {first + len(used)}, and another file after this one"
        found.find("CQ_NOT_FULL", text, queue_offset=first + len(used))
    after = content[len(used) * layout.CQ_STORE_UNIT_SIZE :]
    if after.any():
        text = f"{np.count_nonzero(after):,} bytes that are not zero after the last entry, at offset {first + len(used)}"
        found.find("CQ_TAIL", text, queue_offset=first + len(used))
    for start in range(0, len(used), _CHECKED_UNITS):
        part = used[start : start + _CHECKED_UNITS]
        if encode_units(*(part[name].astype(np.int64) for name in layout.CQ_UNIT.names or ())) != part.tobytes():
            found.find("CQ_DIFFERS", f"written again, the entries from offset {first + start} on are others")
        _verify_units(found, log, queue, part, first + start)
    return found


def _verify_units(found: Checked, log: LogFiles, queue: Queue, units: Units, first: int) -> None:
    offsets, sizes = units["physicOffset"].astype(np.int64), units["size"].astype(np.int64)
    blank = (offsets == layout.PRE_BLANK[0]) & (sizes == layout.PRE_BLANK[1])
    beyond = ~blank & (offsets + sizes > log.end)
    _tell(found, "CQ_BEYOND_LOG", beyond, offsets, first, f"past the commit log, which ends at {log.end}")
    to_find = ~blank & ~beyond & (offsets >= log.start)
    missing = to_find.copy()
    other, other_code, no_unit = (np.zeros(len(units), np.bool_) for _ in range(3))
    is_lmq, is_delayed = queue[0].startswith(layout.LMQ_PREFIX), queue[0].encode() == SCHEDULE_TOPIC
    for file, content, rows in log.stretches(np.where(to_find, offsets, -1)):
        positions = offsets[rows] - file.from_offset
        held = check_units(content, file.wrote, positions, units[rows], rows + first, queue, is_lmq=is_lmq, version=log.version)
        missing[rows] = held == Held.NO_RECORD
        other[rows] = held == Held.OTHER_MESSAGE
        other_code[rows] = held == Held.OTHER_CODE
        unsure = held == Held.UNSURE
        if unsure.any():
            requests = read_requests(content, positions[unsure], None)
            met = rows[unsure][: len(requests)]
            codes = units["tagsCode"][met].astype(np.int64)
            other_code[met] = (requests.tags_code != codes) & (codes > layout.EXT_MAX_ADDRESS)
            no_unit[met] = (codes <= layout.EXT_MAX_ADDRESS) & ~_has_unit(log.store, queue, codes, requests)
    _tell(found, "CQ_NO_EXT", no_unit, offsets, first, "whose unit in consumequeue_ext is missing or that of another message")
    _tell(found, "CQ_NO_RECORD", missing, offsets, first, "to which the commit log has no record of that size")
    _tell(found, "CQ_OTHER_MESSAGE", other, offsets, first, "whose message belongs to another queue or offset")
    if not is_delayed:
        _tell(found, "CQ_TAGS_CODE", other_code, offsets, first, "whose tagsCode is not that of their message's tag")
    if not is_lmq:
        found.queued[queue] -= int((to_find & ~missing & ~other).sum())


def _has_unit(store: StoreFiles, queue: Queue, codes: NDArray[np.int64], requests: DispatchRequests) -> NDArray[np.bool_]:
    """For each tagsCode that is an address, whether its ext unit has the message's time and, unless the message is delayed, its tag."""
    found = np.zeros(len(codes), np.bool_)
    addresses = np.where(codes <= layout.EXT_MAX_ADDRESS, codes + np.int64(2**62) + np.int64(2**62), -1)
    if not (addresses >= 0).any():
        return found
    folder = (CONSUME_QUEUE_EXT, queue[0], str(queue[1]))
    for entry in store.folder(*folder):
        start = int(entry.name) if entry.name.isdecimal() else 0
        rows = np.flatnonzero((addresses >= start) & (addresses + EXT_UNIT.itemsize <= start + entry.length))
        units = rc.fixed(store.content(*folder, entry.name), addresses[rows] - start, EXT_UNIT)
        same_tag = (units["tagsCode"] == requests.tags_code[rows]) | (queue[0].encode() == SCHEDULE_TOPIC)
        found[rows] = (units["msgStoreTime"] == requests.store_timestamp[rows]) & same_tag
    return found


def _tell(found: Checked, code: str, rows: NDArray[np.bool_], offsets: NDArray[np.int64], first: int, what: str) -> None:
    if not rows.any():
        return
    count, place = int(np.count_nonzero(rows)), int(rows.argmax())
    text = f"{counted(count, 'entry', 'entries')} {what}; the first at offset {first + place}"
    found.find(code, text, messages=count, queue_offset=first + place, physic_offset=int(offsets[place]))
