"""The scan of a pull: which entries of a queue one request takes, and the other numbers of the store's answer.

Broker source (4.9.3): DefaultMessageStore.getMessage, CommitLog.getMessage and rollNextFile, MappedFile.selectMappedBuffer.
Other versions: the rules that differ are numbers in `caps`, from the table in udfs/pull/pull_rules.py.
Rules: an offset outside the queue's bounds is answered without a scan. Otherwise entries are read one by one until the batch is
full, the window ends or the queue file ends.
Surprises: the fullness test comes before the filter, so a full batch ends at the very next entry, matching or not; the entry that ended it
counts for the disk figures but not for the next offset; entries of a removed log file are passed over without a fullness test.

The same source runs compiled and, through `py_func`, as plain Python for comparison. The arrays of one call are one block: consecutive
entries of one queue file, or of several if a pull may read several, up to the last entry that any request of the call may scan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import bare, compiled
from store_format.layout import EXT_MAX_ADDRESS
from udfs.filters.tags import contains_code
from udfs.pull.batch_caps import check_in_disk, commercial_count, is_the_batch_full, scan_window_entries
from udfs.pull.codes import GetMessageStatus
from udfs.pull.offset_correction import SCAN, correct_offset, next_offset_correction, pull_status

_FOUND = int(GetMessageStatus.FOUND)
_NO_MATCHED_MESSAGE = int(GetMessageStatus.NO_MATCHED_MESSAGE)
_MESSAGE_WAS_REMOVING = int(GetMessageStatus.MESSAGE_WAS_REMOVING)
_OFFSET_FOUND_NULL = int(GetMessageStatus.OFFSET_FOUND_NULL)

# The broker has no status for a store that throws; these are this project's own.
ILLEGAL_ARGUMENT: Final = -2
OUT_OF_MEMORY: Final = -3
NULL_POINTER: Final = -4
INDEX_OUT_OF_BOUNDS: Final = -5
BUFFER_UNDERFLOW: Final = -6
ILLEGAL_POSITION: Final = -7  # ILLEGAL_ARGUMENT of a filter: the verdict -ILLEGAL_ARGUMENT would be NOT_BY_COMMIT_LOG
EXCEPTIONS: Final = {
    ILLEGAL_ARGUMENT: "java.lang.IllegalArgumentException",
    OUT_OF_MEMORY: "java.lang.OutOfMemoryError",
    NULL_POINTER: "java.lang.NullPointerException",
    INDEX_OUT_OF_BOUNDS: "java.lang.IndexOutOfBoundsException",
    BUFFER_UNDERFLOW: "java.nio.BufferUnderflowException",
    ILLEGAL_POSITION: "java.lang.IllegalArgumentException",
}

# Verdicts of filters other than TAG on an entry. A verdict takes effect only if the scan reaches the entry.
MATCHES: Final = 0
NOT_BY_CONSUME_QUEUE: Final = 1  # isMatchedByConsumeQueue is false, by the bits of the entry's ext unit
NOT_BY_COMMIT_LOG: Final = 2  # isMatchedByCommitLog is false
UNIT_UNDERFLOWS: Final = 3  # getExt throws, whatever the filter
# a larger verdict v: isMatchedByCommitLog throws, and the status is -v

NO_FILTER: Final = -1
NO_REMOVED_FILE: Final = -(2**63)
_INT_MAX = 2**31 - 1

# GetMessageResult keeps its messages in lists, which cannot be longer than the longest array of the Java virtual machine.
_LONGEST_ARRAY = _INT_MAX - 2
_NO_ROOM = -1
_MISSING = -1
# One call allocates room for at most this many taken entries at first.
_FIRST_ROOM = 1 << 22

# columns of `requests`
OFFSET, MAX_MSG_NUMS, MIN_OFFSET, MAX_OFFSET, LOG_END, FILTER = range(6)
REQUEST_COLUMNS: Final = 6
# columns of `answers`
STATUS, NEXT, COUNT, BYTES, COMMERCIAL, LAST_PHYSIC, ENTRIES_READ, COUNT_ON_DISK, NOT_MATCHED_BY_LOG = range(9)
ANSWER_COLUMNS: Final = 9
# positions in `caps`: settings, then rules that differ between versions
BYTES_MEMORY, COUNT_MEMORY, BYTES_DISK, COUNT_DISK, MEMORY, SLAVE_KEEPS, ENTRIES_A_FILE = range(7)
WINDOW_BYTES, QUEUE_FILES, BYTES_TOTAL, TO_MAX, FULLNESS_FIRST, BYTES_A_COUNT, MAKES_LISTS = range(7, 14)
CAPS: Final = 14


@dataclass(frozen=True, slots=True)
class CommitLogFiles:
    """The commit log's files as the scan sees them.

    Attributes:
        starts: physical offset of each file's first byte, ascending.
        wrote: bytes written in each file.
        file_size: length of every file, in bytes.
    """

    starts: NDArray[np.int64]
    wrote: NDArray[np.int64]
    file_size: int


@dataclass(frozen=True, slots=True)
class TagCodes:
    """The hash codes of all TAG filters: filter f has codes[starts[f]:starts[f + 1]], ascending."""

    starts: NDArray[np.int64]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive entries of one queue file, or of several, the first of which has the requests' offsets; empty if that one is missing.

    Attributes:
        first_offset: queue offset of the first entry.
        physic_offsets: physical offset of each entry's message.
        sizes: size of each entry's message, in bytes.
        tags_codes: tagsCode of each entry: from its ext unit if it has one; the unit's address if that unit is missing.
        verdicts: verdict of the requests' filter on each entry; empty if every verdict is MATCHES.
    """

    first_offset: int
    physic_offsets: NDArray[np.int64]
    sizes: NDArray[np.int32]
    tags_codes: NDArray[np.int64]
    verdicts: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of `get_message`.

    Attributes:
        columns: array of shape (requests, ANSWER_COLUMNS).
        taken: positions in the block of the entries taken, of one request after the other; COUNT of a request is its number of entries.
    """

    columns: NDArray[np.int64]
    taken: NDArray[np.int32]


@bare
def _passes_tag_filter(tags_code, codes):  # type: ignore[no-untyped-def]
    # as tags.tag_matches. An address whose ext unit is missing: the broker hands null to the filter, and null matches.
    return tags_code <= EXT_MAX_ADDRESS or contains_code(codes, tags_code)


@bare
def _find_file(offset, starts, file_size):  # type: ignore[no-untyped-def]
    """Return the index of the log file with an offset, or -1: MappedFileQueue.findMappedFileByOffset(offset, offset == 0)."""
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] <= offset:
            low = middle + 1
        else:
            high = middle
    if low > 0 and offset < starts[low - 1] + file_size:
        return low - 1
    return 0 if offset == 0 and len(starts) > 0 else -1


@bare
def _locate(offset, log_end, starts, wrote, file_size):  # type: ignore[no-untyped-def]
    """Return (file index, base offset, low, high, readable bytes) for a physical offset.

    Positions in the file count from the base offset. The five values hold for every offset in [low, high), so a scan calls this again only
    for an entry outside these bounds; most entries of a scan lie in one file.
    """
    file = _find_file(offset, starts, file_size)
    base = offset - offset % file_size
    if file < 0:
        return file, base, np.int64(0), np.int64(0), np.int64(0)
    start = starts[file]
    low, high = max(base, start), min(base, start) + file_size
    if file + 1 < len(starts):
        high = min(high, starts[file + 1])
    return file, base, low, high, min(wrote[file], max(log_end - start, np.int64(0)))


@bare
def _select(position, size, readable, file_size):  # type: ignore[no-untyped-def]
    """Return the outcome of MappedFile.selectMappedBuffer: 1 bytes, 0 null, -1 throws. Its `position + size` is a 32-bit sum that wraps."""
    if np.int64(np.int32(position + size)) > readable:
        return 0
    return -1 if size < 0 or size > file_size - position else 1


@compiled
def roll_next_file(offset, file_size):  # type: ignore[no-untyped-def]
    """Return the offset where the next log file begins: CommitLog.rollNextFile. Java's remainder has the sign of the offset."""
    remainder = offset % file_size if offset >= 0 else -((-offset) % file_size)
    return offset + file_size - remainder


@bare
def _by_commit_log(verdict, selected):  # type: ignore[no-untyped-def]
    """Return the status that an entry gives after its bytes were selected; negative if the broker throws."""
    if selected < 0:
        return ILLEGAL_ARGUMENT
    if selected == 0:
        return _MESSAGE_WAS_REMOVING
    if verdict > UNIT_UNDERFLOWS:
        return -np.int64(verdict)
    return _NO_MATCHED_MESSAGE if verdict == NOT_BY_COMMIT_LOG else _FOUND


@bare
def _end_in_next_file(position, first_offset, length, last, entries_a_file):  # type: ignore[no-untyped-def]
    """Return the position where the scan ends in the queue file that begins at `position`; _MISSING if that file is missing.

    If no queue file begins at `position`, return `position`.
    """
    if (first_offset + position) % entries_a_file != 0:
        return position
    return _MISSING if position >= length else min(length, last, position + entries_a_file)


# Scans entries from a request's offset on, into `answer` and `taken`; returns the length of `taken` in use, or _NO_ROOM.
# Each entry is checked in the broker's order:
# 1. The batch is full: the scan ends. An entry of a removed file is not tested; since 5.5.0 the fullness test comes first.
# 2. The entry lies in a file of the log that was found removed: it is skipped.
# 3. The filter, by the consume queue: the ext unit, or the tag's code.
# 4. The message in the log: its bytes may be removed or incomplete.
# 5. The filter, by the log: conditions of SQL92, whose verdicts were found before the scan.
# An entry that passes is taken, and counted against the caps.
@compiled
def _scan(request, caps, first_offset, physic, sizes, tags, verdicts, tag_starts, codes, starts, wrote, file_size, answer, taken, at):  # type: ignore[no-untyped-def]
    offset, log_end, wanted, max_msg_nums = request[OFFSET], request[LOG_END], request[FILTER], request[MAX_MSG_NUMS]
    begin, queue_end, entries = offset - first_offset, request[MAX_OFFSET] - first_offset, caps[ENTRIES_A_FILE]
    last = min(queue_end, begin + scan_window_entries(max_msg_nums, caps[WINDOW_BYTES]))
    end = min(len(physic), last, begin + entries - offset % entries)
    status, count, total, commercial, on_disk, refused = np.int64(_NO_MATCHED_MESSAGE), 0, np.int64(0), np.int64(0), 0, 0
    removed_until = np.int64(NO_REMOVED_FILE)
    last_physic, files = np.int64(0), 1
    # the result of the last `_locate`, valid for offsets in [low, high)
    file, base, low, high, readable = -1, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    judged = len(verdicts) > 0
    wanted_codes = codes[tag_starts[wanted] : tag_starts[wanted + 1]] if wanted != NO_FILTER else codes[:0]
    memory, fullness_first, bytes_total, bytes_a_count = caps[MEMORY], caps[FULLNESS_FIRST] != 0, caps[BYTES_TOTAL], caps[BYTES_A_COUNT]
    bytes_memory, bytes_disk = min(caps[BYTES_MEMORY], bytes_total), min(caps[BYTES_DISK], bytes_total)
    count_memory, count_disk = caps[COUNT_MEMORY], caps[COUNT_DISK]
    sum_is_full, units_first = False, fullness_first and judged
    i, ended = begin, False
    while i < end and not ended:
        while i < end:
            offset_py, size_py = physic[i], np.int64(sizes[i])
            verdict = verdicts[i] if judged else np.uint8(MATCHES)
            in_disk = check_in_disk(offset_py, log_end, memory)
            skipped, unit_throws = offset_py < removed_until, units_first and verdict == UNIT_UNDERFLOWS
            is_full = sum_is_full or is_the_batch_full(
                size_py, max_msg_nums, total, count, in_disk, bytes_memory, count_memory, bytes_disk, count_disk
            )
            if is_full and not unit_throws and (fullness_first or not skipped):
                last_physic, ended = last_physic if fullness_first else offset_py, True
                break
            last_physic = offset_py
            if unit_throws or not skipped:
                passes = verdict != NOT_BY_CONSUME_QUEUE and (wanted == NO_FILTER or _passes_tag_filter(tags[i], wanted_codes))
                outcome = np.int64(BUFFER_UNDERFLOW if verdict == UNIT_UNDERFLOWS else _FOUND if passes else _NO_MATCHED_MESSAGE)
                if outcome == _FOUND:
                    if offset_py < low or offset_py >= high:
                        file, base, low, high, readable = _locate(offset_py, log_end, starts, wrote, file_size)
                    selected = _select(offset_py - base, size_py, readable, file_size) if file >= 0 else 0
                    outcome = np.int64(_by_commit_log(verdict, selected))
                    refused += outcome == _NO_MATCHED_MESSAGE
                if outcome < 0:
                    answer[STATUS] = outcome
                    return at
                if outcome == _FOUND:
                    if at + count == len(taken):
                        return _NO_ROOM
                    taken[at + count] = i
                    count += 1
                    total = np.int64(np.int32(total + size_py))
                    sum_is_full = total >= bytes_total
                    commercial += commercial_count(size_py, bytes_a_count)
                    on_disk += in_disk
                    removed_until = np.int64(NO_REMOVED_FILE)
                elif outcome == _MESSAGE_WAS_REMOVING:
                    removed_until = roll_next_file(offset_py, file_size)
                status = outcome if total == 0 or outcome == _FOUND else status
            i += 1
        if not ended and i < queue_end and total <= 0 and files < caps[QUEUE_FILES]:
            end = _end_in_next_file(i, first_offset, len(physic), last, entries)
            files, removed_until = files + 1, np.int64(NO_REMOVED_FILE)
    reached, keeps = offset + (i - begin), caps[SLAVE_KEEPS] != 0
    answer[STATUS] = _OFFSET_FOUND_NULL if end == _MISSING else status
    answer[NEXT] = next_offset_correction(reached, reached + entries, keeps) if end == _MISSING else reached
    answer[COUNT] = count
    answer[BYTES] = total
    answer[COMMERCIAL] = commercial
    answer[LAST_PHYSIC] = last_physic
    answer[ENTRIES_READ] = min(i + 1, max(i, end)) - begin
    answer[COUNT_ON_DISK] = on_disk
    answer[NOT_MATCHED_BY_LOG] = refused
    return at + count


@compiled
def _answer(  # type: ignore[no-untyped-def]
    first, at, requests, caps, first_offset, physic, sizes, tags, verdicts, tag_starts, codes, starts, wrote, file_size, answers, taken
):
    """Answer the requests from `first` on; return (requests answered, length of `taken` in use).

    `at` is the length of `taken` in use before the call. The function stops early when `taken` has no more room.
    """
    for r in range(first, len(requests)):
        request, answer = requests[r], answers[r]
        offset, minimum, maximum = request[OFFSET], request[MIN_OFFSET], request[MAX_OFFSET]
        status = pull_status(offset, minimum, maximum)
        if status != SCAN:
            answer[STATUS] = status
            answer[NEXT] = correct_offset(offset, minimum, maximum, caps[SLAVE_KEEPS] != 0, caps[TO_MAX] != 0)
        elif caps[QUEUE_FILES] <= 0:
            answer[STATUS] = _NO_MATCHED_MESSAGE
            answer[NEXT] = offset
        elif not first_offset <= offset < first_offset + len(physic):
            answer[STATUS] = _OFFSET_FOUND_NULL
            entries = caps[ENTRIES_A_FILE]
            answer[NEXT] = next_offset_correction(offset, offset + entries - offset % entries, caps[SLAVE_KEEPS] != 0)
        elif caps[MAKES_LISTS] != 0 and request[MAX_MSG_NUMS] < 0:
            answer[STATUS] = ILLEGAL_ARGUMENT
        elif caps[MAKES_LISTS] != 0 and request[MAX_MSG_NUMS] > _LONGEST_ARRAY:
            answer[STATUS] = OUT_OF_MEMORY
        else:
            end = _scan(
                request,
                caps,
                first_offset,
                physic,
                sizes,
                tags,
                verdicts,
                tag_starts,
                codes,
                starts,
                wrote,
                file_size,
                answer,
                taken,
                at,
            )
            if end == _NO_ROOM:
                return r, at
            at = end
    return len(requests), at


def entries_at_most(requests: NDArray[np.int64], caps: NDArray[np.int64], block: Block) -> NDArray[np.int64]:
    """Return how many entries each request takes at most; `get_message` handles the two rare kinds of requests that take more."""
    most = max(int(caps[COUNT_MEMORY]), int(caps[COUNT_DISK]), 1)
    return np.minimum(np.clip(requests[:, MAX_MSG_NUMS], 1, most), len(block.sizes))


def get_message(requests: NDArray[np.int64], caps: NDArray[np.int64], block: Block, filters: TagCodes, log: CommitLogFiles) -> Answers:
    """Answer requests whose offsets lie in one block, outside their queue's bounds, or in a queue file that is missing.

    Args:
        requests: array of shape (n, REQUEST_COLUMNS): offset, maxMsgNums, the queue's minOffset and maxOffset and the commit log's end
            when the request came, and the number of its TAG filter or NO_FILTER.
        caps: limits in the order of BYTES_MEMORY ... MAKES_LISTS.
        block: the entries that the requests scan.
        filters: the TAG filters by number.
        log: the commit log's files.
    """
    answers = np.zeros((len(requests), ANSWER_COLUMNS), np.int64)
    taken = np.empty(min(int(entries_at_most(requests, caps, block).sum()), _FIRST_ROOM), np.int32)
    entries = (block.physic_offsets, block.sizes, block.tags_codes, block.verdicts)
    arrays = (*entries, filters.starts, filters.codes, log.starts, log.wrote)
    done = used = 0
    while True:
        done, used = _answer(done, used, requests, caps, block.first_offset, *arrays, log.file_size, answers, taken)
        if done == len(requests):
            return Answers(answers, taken[:used])
        # Entries of 0 bytes never fill a batch, and a message cap of -2**31 never does, because cap - 1 wraps: a pull may take every entry.
        taken = np.concatenate((taken[:used], np.empty(len(taken) + len(block.sizes), np.int32)))
