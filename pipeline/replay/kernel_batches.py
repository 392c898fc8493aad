"""Packed requests that met their entries -> answers: the kernel between two Arrow batches.

A row is answered in parts: all requests at once where they have no filter or one by tags, else those of one filter after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay import entry_colocation
from pipeline.replay.expression_filters import filter_of, verdicts_of
from pipeline.replay.segment_files import with_segments
from pipeline.requests.packing import Col, Matrix, Packed
from pipeline.settings.settings import PullSettings
from store_format.layout import CQ_UNIT
from store_format.queue.consume_queue import Units, units_of
from store_format.queue.packed_ext_units import UnitColumns, join_units
from udfs.filters.tags import SubscriptionParseError, code_array, parse_subscription
from udfs.pull import get_message as gm
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.pull.pull_filter import SUBSCRIPTION_PARSE_FAILED, FilterRules, PullFilterError, Verdicts, entry_verdicts, tag_codes, with_units
from udfs.pull.pull_result import response_code
from udfs.pull.scan_settings import scan_caps

# rows with the same values of these meet
MEETING_KEY = ("topic", "queueId", "key", "wide")
KERNEL_COLUMNS = [Col.OFFSET, Col.MAX_MSG_NUMS, Col.MIN_OFFSET, Col.MAX_OFFSET, Col.LOG_END, Col.FILTER]
_STATUS_NAMES = pa.array([status.name for status in sorted(GetMessageStatus)])
_EXCEPTION_CODES = np.array(list(gm.EXCEPTIONS), np.int64)
_EXCEPTION_NAMES = pa.array(list(gm.EXCEPTIONS.values()))
_ENTRY = pa.struct({"queueOffset": pa.int64(), "physicOffset": pa.int64(), "size": pa.int32()})
# answers of so many requests go into one Arrow batch, and about so many entries; an entry takes this part of an answer's room
_BATCH_ANSWERS = 65_536
_BATCH_ENTRIES = 4 << 20
_ENTRIES_AN_ANSWER = _BATCH_ENTRIES // _BATCH_ANSWERS
assert [int(status) for status in sorted(GetMessageStatus)] == list(range(len(GetMessageStatus)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What the kernel needs beside requests and entries."""

    caps: NDArray[np.int64]
    codes: NDArray[np.int32]  # response code of each status, at offset 0 and at any other
    log: gm.CommitLogFiles
    disk_fall_recorded: bool
    readable: bool
    with_extension: bool
    with_entries: bool
    rules: FilterRules | None = None  # only for rows with filters that tags do not decide
    segment_files: tuple[str, ...] = ()  # only for rows that do not come behind their entries: the files that have these

    @classmethod
    def of(cls, settings: PullSettings, entries_a_file: int, log: gm.CommitLogFiles, *, with_entries: bool) -> Answering:
        """From the broker's settings and its store."""
        return cls(
            caps=scan_caps(settings, entries_a_file),
            codes=_response_codes(BrokerRole[settings.broker_role], settings.offset_check_in_slave),
            log=log,
            disk_fall_recorded=settings.disk_fall_recorded,
            readable=settings.readable,
            with_extension=settings.enable_consume_queue_ext,
            with_entries=with_entries,
        )


def _response_codes(role: BrokerRole, offset_check_in_slave: bool) -> NDArray[np.int32]:
    """The response code of each status (row) at offset 0 and at another offset (column)."""
    codes = [[response_code(status, offset, role, offset_check_in_slave) for offset in (0, 1)] for status in sorted(GetMessageStatus)]
    return np.array(codes, np.int32)


@dataclass(frozen=True, slots=True)
class Met:
    """Requests of one key and condition with the entries that they scan, and the ext units of these.

    Attributes:
        row: the packed row that they came in, or the first of several.
    """

    row: dict[str, Any]
    packed: Packed
    block: gm.Block
    units: UnitColumns | None


def met(answering: Answering, batches: Iterator[pa.RecordBatch]) -> Iterator[Met]:
    """The requests of packed rows with the entries in `blocks` of a row before them that has the same key."""
    of_key: tuple[dict[str, Any] | None, gm.Block, UnitColumns | None] | None = None
    rows = entry_colocation.rows_of(batches)
    if answering.segment_files:
        rows = with_segments(answering.segment_files, rows)
    for stored, row, packed in entry_colocation.met(rows, MEETING_KEY, "condition"):
        if of_key is None or of_key[0] is not stored:
            of_key = stored, *_block(stored["blocks"] if stored else None, with_extension=answering.with_extension)
        yield Met(row, packed, *of_key[1:])


def answer_batches(answering: Answering, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer the requests of packed rows, which come as `met` takes them."""
    done: list[KernelAnswers] = []
    count = 0
    for packed in met(answering, batches):
        for answered in _answer_row(answering, packed):
            done.append(answered)
            count += len(answered.matrix) + len(answered.entries[0]) // _ENTRIES_AN_ANSWER
            if count >= _BATCH_ANSWERS:
                yield answer_rows(answering, done)
                done, count = [], 0
    if done:
        yield answer_rows(answering, done)


def _block(blocks: list[dict[str, Any]] | None, *, with_extension: bool) -> tuple[gm.Block, UnitColumns | None]:
    """The entries of one row and their ext units; several segments of a file are put together, each without what it repeats of the next."""
    if not blocks:
        return gm.Block(0, *_entries(np.empty(0, CQ_UNIT))), None
    parts = [units_of(np.frombuffer(block["entries"], np.uint8)) for block in blocks]
    kept = [block["entryCount"] for block in blocks] if len(blocks) > 1 else [len(parts[0])]
    units = None
    if with_extension:
        units = join_units([(block["extUnits"], len(part), count) for block, part, count in zip(blocks, parts, kept, strict=True)])
    entries = _entries(np.concatenate([part[:count] for part, count in zip(parts, kept, strict=True)]) if len(parts) > 1 else parts[0])
    block = gm.Block(blocks[0]["firstQueueOffset"], *entries)
    return (block if units is None else replace(block, tags_codes=with_units(block.tags_codes, units))), units


def _entries(units: Units) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    return units["physicOffset"].astype(np.int64), units["size"].astype(np.int32), units["tagsCode"].astype(np.int64)


@lru_cache(maxsize=65_536)
def _codes(expression: str) -> NDArray[np.int32] | SubscriptionParseError | None:
    """Sorted codes of a TAG filter; None where it matches all."""
    try:
        codes = parse_subscription(expression)
    except SubscriptionParseError as error:
        return error
    return None if codes is None else code_array(codes)


def _filters(packed: Packed) -> tuple[gm.TagCodes, NDArray[np.bool_]]:
    """The row's filters for the kernel, and which requests have one that does not parse; those that match all are dropped."""
    parsed = [_codes(expression) for expression in packed.filters]
    kept = [codes for codes in parsed if isinstance(codes, np.ndarray)]
    numbers = np.full(len(parsed) + 1, gm.NO_FILTER, np.int64)
    numbers[[i for i, codes in enumerate(parsed) if isinstance(codes, np.ndarray)]] = np.arange(len(kept))
    broken = np.array([*(isinstance(codes, SubscriptionParseError) for codes in parsed), False])
    chosen = packed.matrix[:, Col.FILTER].copy()  # -1 takes the last of both
    packed.matrix[:, Col.FILTER] = numbers[chosen]
    starts = np.zeros(len(kept) + 1, np.int64)
    np.cumsum([len(codes) for codes in kept], out=starts[1:])
    return gm.TagCodes(starts, np.concatenate([np.empty(0, np.int32), *kept])), broken[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPart:
    """Requests that the kernel answers at once; those of `refused` get the error instead."""

    packed: Packed
    block: gm.Block
    codes: gm.TagCodes
    refused: NDArray[np.bool_]
    error: str = SUBSCRIPTION_PARSE_FAILED


def parts_of(answering: Answering, found: Met) -> Iterator[PackedPart]:
    """The parts of a packed row, the filter of each request in its matrix being the number that the kernel takes."""
    packed, block, units = found.packed, found.block, found.units
    if answering.rules is None:
        codes, broken = _filters(packed)
        judged = block if units is None else replace(block, verdicts=entry_verdicts(None, units, None))
        yield PackedPart(packed=packed, block=judged, codes=codes, refused=broken)
        return
    by_commit_log = verdicts_of(found.row, block.first_offset, len(block.sizes))
    numbers = packed.matrix[:, Col.FILTER].copy()
    for number in np.unique(numbers).tolist():
        part = replace(packed, matrix=packed.matrix[numbers == number])
        yield _filtered(answering.rules, part, packed.filters[number], block, units, by_commit_log)


def _filtered(
    rules: FilterRules, packed: Packed, asked: str, block: gm.Block, units: UnitColumns | None, by_commit_log: Verdicts | None
) -> PackedPart:
    """Requests with one filter."""
    everyone = np.ones(len(packed.matrix), np.bool_)
    none = gm.TagCodes(np.zeros(1, np.int64), np.empty(0, np.int32))
    packed.matrix[:, Col.FILTER] = gm.NO_FILTER
    try:
        wanted = rules.message_filter(packed.topic, filter_of(asked))
    except PullFilterError as error:
        return PackedPart(packed=packed, block=block, codes=none, refused=everyone, error=error.code)
    judged = replace(block, verdicts=entry_verdicts(wanted, units, by_commit_log))
    found = tag_codes(wanted)
    if found is None:
        return PackedPart(packed=packed, block=judged, codes=none, refused=~everyone)
    packed.matrix[:, Col.FILTER] = 0
    return PackedPart(packed=packed, block=judged, codes=gm.TagCodes(np.array([0, len(found)]), found), refused=~everyone)


@dataclass(frozen=True, slots=True)
class KernelAnswers:
    """What the kernel found for requests of a part; of the entries that they met it keeps those given.

    Attributes:
        topic: of all of them.
        queue_id: of all of them.
        groups: what a column of the matrix counts into.
        error: what the refused ones get instead of an answer.
        matrix: the requests, as they are packed.
        refused: which these are.
        columns: the answers.
        entries: queueOffset, physicOffset and size of each entry given, answer by answer; empty where they are not asked for.
    """

    topic: str
    queue_id: int
    groups: list[str]
    error: str
    matrix: Matrix
    refused: NDArray[np.bool_]
    columns: NDArray[np.int64]
    entries: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]

    @classmethod
    def of(cls, answering: Answering, part: PackedPart, asked: slice, found: gm.Answers) -> KernelAnswers:
        """Some requests of a part."""
        packed, block = part.packed, part.block
        taken = found.taken[: len(found.taken) if answering.with_entries else 0]
        entries = taken + np.int64(block.first_offset), block.physic_offsets[taken], block.sizes[taken]
        requests = packed.matrix[asked], part.refused[asked], found.columns
        return cls(packed.topic, packed.queue_id, packed.groups, part.error, *requests, entries)


def _answer_row(answering: Answering, packed_row: Met) -> Iterator[KernelAnswers]:
    """Answers of a packed row: as many requests at once as a batch has room for."""
    for part in parts_of(answering, packed_row):
        requests = np.ascontiguousarray(part.packed.matrix[:, KERNEL_COLUMNS])
        ends = np.cumsum(gm.entries_at_most(requests, answering.caps, part.block))
        start = 0
        while start < len(requests):
            limit = (ends[start - 1] if start else 0) + _BATCH_ENTRIES
            end = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
            found = gm.get_message(requests[start:end], answering.caps, part.block, part.codes, answering.log)
            yield KernelAnswers.of(answering, part, slice(start, end), found)
            start = end


def answer_rows(answering: Answering, answered: Sequence[KernelAnswers]) -> pa.RecordBatch:
    """Rows of ANSWER_SCHEMA of what the kernel found, part after part."""
    rows = np.array([len(one.matrix) for one in answered])
    matrix = np.concatenate([one.matrix for one in answered])
    answers = np.concatenate([one.columns for one in answered])
    broken = np.concatenate([one.refused for one in answered])
    status = answers[:, gm.STATUS]
    none = broken | (not answering.readable) | (status < 0)  # no answer, null, or thrown
    fall_behind = matrix[:, Col.LOG_END] - answers[:, gm.LAST_PHYSIC]
    scanned = answers[:, gm.ENTRIES_READ] > 0
    of_rows = np.repeat(np.arange(len(answered)), rows)

    def text(texts: list[str], missing: NDArray[np.bool_] | None = None) -> pa.Array:
        return pa.array(texts, pa.string()).take(pa.array(of_rows, mask=missing))

    def number(values: NDArray[np.int64], kind: pa.DataType, missing: NDArray[np.bool_] = none) -> pa.Array:
        return pa.array(values, kind, mask=missing)

    columns = {
        "seq": pa.array(matrix[:, Col.SEQ]),
        "topic": text([one.topic for one in answered]),
        "queueId": pa.array(np.repeat(np.array([one.queue_id for one in answered], np.int32), rows)),
        "consumerGroup": _groups([one.groups for one in answered], of_rows, matrix[:, Col.GROUP]),
        "queueOffset": pa.array(matrix[:, Col.OFFSET]),
        "maxMsgNums": pa.array(matrix[:, Col.MAX_MSG_NUMS].astype(np.int32)),
        "status": _STATUS_NAMES.take(number(status, pa.int64())),
        "code": number(answering.codes[np.maximum(status, 0), (matrix[:, Col.OFFSET] != 0).astype(np.int64)], pa.int32()),
        "nextBeginOffset": number(answers[:, gm.NEXT], pa.int64()),
        "minOffset": number(matrix[:, Col.MIN_OFFSET], pa.int64()),
        "maxOffset": number(matrix[:, Col.MAX_OFFSET], pa.int64()),
        "messageCount": number(answers[:, gm.COUNT], pa.int32()),
        "bufferTotalSize": number(answers[:, gm.BYTES], pa.int32()),
        "suggestPullingFromSlave": pa.array(scanned & (fall_behind > answering.caps[gm.MEMORY]), mask=none),
        "msgCount4Commercial": number(answers[:, gm.COMMERCIAL], pa.int32()),
        "messagesOnDisk": number(answers[:, gm.COUNT_ON_DISK], pa.int32()),
        "diskFallBehind": number(fall_behind, pa.int64(), none | ~scanned | (not answering.disk_fall_recorded)),
        "exception": _exceptions(status, broken | (not answering.readable)),
        "error": text([one.error for one in answered], ~broken),
        "entries": _entries_given(answering, answered, answers[:, gm.COUNT], none),
    }
    return pa.RecordBatch.from_pydict(columns)


def _groups(groups: list[list[str]], of_rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> pa.Array:
    """The group of each request, whose number counts into the groups of its part."""
    before = np.cumsum([0, *map(len, groups)])
    return pa.array([group for one in groups for group in one], pa.string()).take(pa.array(before[of_rows] + numbers))


def _exceptions(status: NDArray[np.int64], no_answer: NDArray[np.bool_]) -> pa.Array:
    thrown = np.isin(status, _EXCEPTION_CODES) & ~no_answer
    which = np.searchsorted(-_EXCEPTION_CODES, -np.where(thrown, status, _EXCEPTION_CODES[0]))
    return _EXCEPTION_NAMES.take(pa.array(which, mask=~thrown))


def _entries_given(answering: Answering, answered: Sequence[KernelAnswers], counts: NDArray[np.int64], none: NDArray[np.bool_]) -> pa.Array:
    if not answering.with_entries:
        return pa.nulls(len(counts), pa.list_(_ENTRY))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    columns = zip(*(one.entries for one in answered), strict=True)
    values = pa.StructArray.from_arrays([pa.array(np.concatenate(column)) for column in columns], fields=list(_ENTRY))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(none) if none.any() else None)
