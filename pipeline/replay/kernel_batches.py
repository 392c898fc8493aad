"""Answer packed requests that come with their entries: Arrow batches of requests -> kernel -> Arrow batches of answers.

The kernel answers a row's requests in one call if they have no filter or a TAG filter. Otherwise it answers one filter in each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay.entry_colocation import Row, colocated
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
from udfs.pull.pull_rules import PullRules
from udfs.pull.scan_settings import disk_figures, scan_caps

# columns that packed requests share with the row of their entries
ENTRIES_KEY = ("topic", "queueId", "key", "wide")
KERNEL_COLUMNS = [Col.OFFSET, Col.MAX_MSG_NUMS, Col.MIN_OFFSET, Col.MAX_OFFSET, Col.LOG_END, Col.FILTER]
_STATUS_NAMES = pa.array([status.name for status in sorted(GetMessageStatus)])
_EXCEPTION_CODES = np.array(list(gm.EXCEPTIONS), np.int64)
_EXCEPTION_NAMES = pa.array(list(gm.EXCEPTIONS.values()))
_ENTRY = pa.struct({"queueOffset": pa.int64(), "physicOffset": pa.int64(), "size": pa.int32()})
# limits of an Arrow batch of answers: its answers, and about its entries; _ENTRIES_AN_ANSWER entries count as one more answer
_BATCH_ANSWERS = 65_536
_BATCH_ENTRIES = 4 << 20
_ENTRIES_AN_ANSWER = _BATCH_ENTRIES // _BATCH_ANSWERS
assert [int(status) for status in sorted(GetMessageStatus)] == list(range(len(GetMessageStatus)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What the kernel needs to answer, besides requests and entries.

    Attributes:
        caps: limits of a scan, as `scan_caps` gives them.
        codes: response code of each status (row) at offset 0 and at other offsets (columns).
        log: files of the commit log.
        disk_fall_recorded: whether the broker records the distance to the log end (diskFallBehind).
        pull_rules: the rules of getMessage in the broker's version.
        readable: RunningFlags.isReadable; if False, the store answers null.
        with_extension: whether entries may have extension units.
        with_entries: whether answers list their entries.
        rules: the broker's filters; None if tags decide all filters.
        segment_files: Parquet files from which the task reads the entries; empty if rows with entries precede the requests.
    """

    caps: NDArray[np.int64]
    codes: NDArray[np.int32]
    log: gm.CommitLogFiles
    disk_fall_recorded: bool
    pull_rules: PullRules
    readable: bool
    with_extension: bool
    with_entries: bool
    rules: FilterRules | None = None
    segment_files: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: PullSettings, entries_a_file: int, log: gm.CommitLogFiles, *, with_entries: bool) -> Answering:
        """What the kernel needs, from the broker's settings, the entries of a queue file, and the files of the log."""
        return cls(
            caps=scan_caps(settings, entries_a_file),
            codes=_response_codes(BrokerRole[settings.broker_role], settings.offset_check_in_slave),
            log=log,
            disk_fall_recorded=settings.disk_fall_recorded,
            pull_rules=settings.rules,
            readable=settings.readable,
            with_extension=settings.enable_consume_queue_ext,
            with_entries=with_entries,
        )


def _response_codes(role: BrokerRole, offset_check_in_slave: bool) -> NDArray[np.int32]:
    """The response code of each status (row) at offset 0 and at another offset (column)."""
    codes = [[response_code(status, offset, role, offset_check_in_slave) for offset in (0, 1)] for status in sorted(GetMessageStatus)]
    return np.array(codes, np.int32)


@dataclass(frozen=True, slots=True)
class RequestsWithEntries:
    """Packed requests of one key and condition, with the entries that they scan.

    Attributes:
        row: the packed row that had the requests; the first one, if several were joined.
        packed: the requests.
        block: the entries.
        units: the extension units of the entries; None if entries have none.
    """

    row: Row
    packed: Packed
    block: gm.Block
    units: UnitColumns | None


def requests_with_entries(answering: Answering, rows: Iterator[Row]) -> Iterator[RequestsWithEntries]:
    """Yield packed requests with the entries that they scan, from rows in which each key's entries row precedes its requests."""
    of_key: tuple[tuple[dict[str, Any], ...], gm.Block, UnitColumns | None] | None = None
    if answering.segment_files:
        rows = with_segments(answering.segment_files, rows)
    for stored, row, packed in colocated(rows, ENTRIES_KEY, "condition"):
        if of_key is None or of_key[0] is not stored:
            of_key = stored, *_block(stored[0]["blocks"] if stored else None, with_extension=answering.with_extension)
        yield RequestsWithEntries(row, packed, *of_key[1:])


def answer_batches(answering: Answering, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """Answer the packed requests of rows in which each key's entries row precedes its requests; gives rows of ANSWER_SCHEMA."""
    done: list[KernelAnswers] = []
    count = 0
    for packed in requests_with_entries(answering, rows):
        for answered in _answer_row(answering, packed):
            done.append(answered)
            count += len(answered.matrix) + len(answered.entries[0]) // _ENTRIES_AN_ANSWER
            if count >= _BATCH_ANSWERS:
                yield answer_rows(answering, done)
                done, count = [], 0
    if done:
        yield answer_rows(answering, done)


def _block(blocks: list[dict[str, Any]] | None, *, with_extension: bool) -> tuple[gm.Block, UnitColumns | None]:
    """The entries of a row and their extension units; several segments are joined, without the entries that overlap the next one.

    If a queue file is missing, the segments after the gap are left out.
    """
    if not blocks:
        return gm.Block(0, *_entries(np.empty(0, CQ_UNIT))), None
    ends = [block["firstQueueOffset"] + block["entryCount"] for block in blocks]
    gaps = (i for i, (block, end) in enumerate(zip(blocks[1:], ends, strict=False), 1) if block["firstQueueOffset"] != end)
    blocks = blocks[: next(gaps, len(blocks))]
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
    """The sorted tag codes of a TAG filter; None if it matches all messages, an error if it does not parse."""
    try:
        codes = parse_subscription(expression)
    except SubscriptionParseError as error:
        return error
    return None if codes is None else code_array(codes)


def _filters(packed: Packed) -> tuple[gm.TagCodes, NDArray[np.bool_]]:
    """The TAG filters of a row as the kernel takes them, and which requests have a filter that does not parse.

    Filters that match all messages are dropped. The column FILTER of the matrix is set to the numbers of the remaining filters.
    """
    parsed = [_codes(expression) for expression in packed.filters]
    kept = [codes for codes in parsed if isinstance(codes, np.ndarray)]
    numbers = np.full(len(parsed) + 1, gm.NO_FILTER, np.int64)
    numbers[[i for i, codes in enumerate(parsed) if isinstance(codes, np.ndarray)]] = np.arange(len(kept))
    broken = np.array([*(isinstance(codes, SubscriptionParseError) for codes in parsed), False])
    chosen = packed.matrix[:, Col.FILTER].copy()  # -1 (no filter) indexes the last element of `numbers` and `broken`
    packed.matrix[:, Col.FILTER] = numbers[chosen]
    starts = np.zeros(len(kept) + 1, np.int64)
    np.cumsum([len(codes) for codes in kept], out=starts[1:])
    return gm.TagCodes(starts, np.concatenate([np.empty(0, np.int32), *kept])), broken[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPart:
    """Packed requests that the kernel answers in one call.

    Attributes:
        packed: the requests.
        block: the entries that they scan.
        codes: tag codes of the filters, by the numbers in the column FILTER.
        refused: which requests get `error` instead of an answer.
        error: error code of the refused requests.
    """

    packed: Packed
    block: gm.Block
    codes: gm.TagCodes
    refused: NDArray[np.bool_]
    error: str = SUBSCRIPTION_PARSE_FAILED


def parts_of(answering: Answering, found: RequestsWithEntries) -> Iterator[PackedPart]:
    """Split packed requests into parts for one kernel call each; the column FILTER is set to the numbers that the kernel takes."""
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
    rules: FilterRules, packed: Packed, filter_text: str, block: gm.Block, units: UnitColumns | None, by_commit_log: Verdicts | None
) -> PackedPart:
    """The part for packed requests that all have the filter `filter_text`."""
    everyone = np.ones(len(packed.matrix), np.bool_)
    none = gm.TagCodes(np.zeros(1, np.int64), np.empty(0, np.int32))
    packed.matrix[:, Col.FILTER] = gm.NO_FILTER
    try:
        wanted = rules.message_filter(packed.topic, filter_of(filter_text))
    except PullFilterError as error:
        return PackedPart(packed=packed, block=block, codes=none, refused=everyone, error=error.code)
    judging = None if wanted.commit_log_condition() is None else by_commit_log
    judged = replace(block, verdicts=entry_verdicts(wanted, units, judging))
    found = tag_codes(wanted)
    if found is None:
        return PackedPart(packed=packed, block=judged, codes=none, refused=~everyone)
    packed.matrix[:, Col.FILTER] = 0
    return PackedPart(packed=packed, block=judged, codes=gm.TagCodes(np.array([0, len(found)]), found), refused=~everyone)


@dataclass(frozen=True, slots=True)
class KernelAnswers:
    """Answers of the kernel to requests of one part.

    Attributes:
        topic: topic of the requests.
        queue_id: queue of the requests.
        groups: consumer groups, by the numbers in the column GROUP of the matrix.
        error: error code of the refused requests.
        matrix: the requests, as they are packed.
        refused: which requests get `error` instead of an answer.
        columns: the kernel's answers, one row a request.
        entries: queueOffset, physicOffset and size of each entry in an answer, in the order of the answers; empty unless
            `Answering.with_entries`.
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
    def of(cls, answering: Answering, part: PackedPart, rows: slice, found: gm.Answers) -> KernelAnswers:
        """The answers `found` to the requests `rows` of a part."""
        packed, block = part.packed, part.block
        taken = found.taken[: len(found.taken) if answering.with_entries else 0]
        entries = taken + np.int64(block.first_offset), block.physic_offsets[taken], block.sizes[taken]
        requests = packed.matrix[rows], part.refused[rows], found.columns
        return cls(packed.topic, packed.queue_id, packed.groups, part.error, *requests, entries)


def slices_of(answering: Answering, part: PackedPart) -> Iterator[slice]:
    """The requests of a part in slices whose answers fit into one Arrow batch."""
    requests = np.ascontiguousarray(part.packed.matrix[:, KERNEL_COLUMNS])
    ends = np.cumsum(gm.entries_at_most(requests, answering.caps, part.block))
    start = 0
    while start < len(requests):
        limit = (ends[start - 1] if start else 0) + _BATCH_ENTRIES
        end = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        yield slice(start, end)
        start = end


def _answer_row(answering: Answering, packed_row: RequestsWithEntries) -> Iterator[KernelAnswers]:
    """Answer packed requests with the kernel, in slices whose answers fit into one Arrow batch."""
    for part in parts_of(answering, packed_row):
        requests = np.ascontiguousarray(part.packed.matrix[:, KERNEL_COLUMNS])
        for rows in slices_of(answering, part):
            found = gm.get_message(requests[rows], answering.caps, part.block, part.codes, answering.log)
            yield KernelAnswers.of(answering, part, rows, found)


def answer_rows(answering: Answering, answered: Sequence[KernelAnswers]) -> pa.RecordBatch:
    """Rows of ANSWER_SCHEMA for the kernel's answers, in their order."""
    rows = np.array([len(one.matrix) for one in answered])
    matrix = np.concatenate([one.matrix for one in answered])
    answers = np.concatenate([one.columns for one in answered])
    broken = np.concatenate([one.refused for one in answered])
    status = answers[:, gm.STATUS]
    none = broken | (not answering.readable) | (status < 0)  # an error, a null answer, or an exception
    disk = disk_figures(answers, matrix[:, Col.LOG_END], int(answering.caps[gm.MEMORY]), answering.pull_rules)
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
        "suggestPullingFromSlave": pa.array(disk.suggests_slave, mask=none),
        "msgCount4Commercial": number(answers[:, gm.COMMERCIAL], pa.int32()),
        "messagesOnDisk": number(answers[:, gm.COUNT_ON_DISK], pa.int32()),
        "diskFallBehind": number(disk.fall_behind, pa.int64(), none | ~disk.is_recorded | (not answering.disk_fall_recorded)),
        "filterMessageCount": number(answers[:, gm.NOT_MATCHED_BY_LOG], pa.int32()),
        "exception": _exceptions(status, broken | (not answering.readable)),
        "error": text([one.error for one in answered], ~broken),
        "entries": _entries_given(answering, answered, answers[:, gm.COUNT], none),
    }
    return pa.RecordBatch.from_pydict(columns)


def _groups(groups: list[list[str]], of_rows: NDArray[np.int64], numbers: NDArray[np.int64]) -> pa.Array:
    """The consumer group of each request.

    Args:
        groups: the groups of each part.
        of_rows: the part of each request.
        numbers: the request's number into the groups of its part.
    """
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
