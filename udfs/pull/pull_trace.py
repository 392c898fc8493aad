"""The trace of one pull: for each entry that the scan reached, which rule decided, and why the scan ended.

Broker source (4.9.3): DefaultMessageStore.getMessage.
Rule: the kernel of get_message decides on each entry, by answering a pull that sees only this entry. The loop over entries calls the
kernel's rules too. The trace's answer must equal the kernel's, or `trace_pull` raises. To find which of several rules decided, the trace
evaluates each rule with the others switched off. Rules that differ between versions come with `caps`, as for the kernel.
Surprise: an entry of a log file that is known to be removed is skipped: neither the filter nor the fullness test sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.java.numbers import to_int
from udfs.pull import get_message as gm
from udfs.pull.batch_caps import check_in_disk, commercial_count, is_the_batch_full, scan_window_entries
from udfs.pull.codes import GetMessageStatus
from udfs.pull.offset_correction import SCAN, pull_status

_INT_MAX: Final = 2**31 - 1
_FOUND: Final = int(GetMessageStatus.FOUND)
_REMOVING: Final = int(GetMessageStatus.MESSAGE_WAS_REMOVING)


class Fate(Enum):
    """What happened to an entry that the scan reached."""

    TAKEN = "taken"
    NOT_BY_TAGS_CODE = "not matched by consume queue: the tag's hash code"
    NOT_BY_BIT_MAP = "not matched by consume queue: the bit map of its ext unit"
    NOT_BY_COMMIT_LOG = "not matched by commit log"
    REMOVED = "removed: the commit log has no such bytes"
    IN_REMOVED_FILE = "passed over unseen: its log file was found to be removed"
    MAX_MSG_NUMS = "batch full: maxMsgNums"
    BYTES_IN_MEMORY = "batch full: maxTransferBytesOnMessageInMemory"
    COUNT_IN_MEMORY = "batch full: maxTransferCountOnMessageInMemory"
    BYTES_IN_DISK = "batch full: maxTransferBytesOnMessageInDisk"
    COUNT_IN_DISK = "batch full: maxTransferCountOnMessageInDisk"
    TOTAL_SIZE = "batch full: maxTotalMsgSize"
    THROWN = "the broker throws"


BATCH_FULL: Final = frozenset(
    {Fate.MAX_MSG_NUMS, Fate.BYTES_IN_MEMORY, Fate.COUNT_IN_MEMORY, Fate.BYTES_IN_DISK, Fate.COUNT_IN_DISK, Fate.TOTAL_SIZE}
)


class End(Enum):
    """Why the scan of a pull ended."""

    NO_SCAN = "the bounds of the queue decide; no entry is looked at"
    NO_FILE = "the queue has no file with this offset; the next pull starts where the next file would"
    NO_FILES = "travelCqFileNumWhenGetMessage is below 1; no entry is looked at"
    NEXT_FILE_MISSING = "nothing was found up to the end of a queue file, and the next file is missing"
    NOT_STARTED = "the broker throws before the first entry"
    BATCH_FULL = "the batch is full"
    THROWN = "the broker throws"
    END_OF_QUEUE = "the queue ends"
    END_OF_FILE = "the queue's file ends; a pull never goes on in the next one"
    END_OF_WINDOW = "the window of max(16000, maxMsgNums * 20) bytes ends"


@dataclass(frozen=True, slots=True)
class Step:
    """One entry that the scan reached.

    Attributes:
        position: the entry's position in the block.
        in_disk: whether the entry counts as on disk; None if the scan skipped it before this test.
        fate: what happened to the entry.
    """

    position: int
    in_disk: bool | None
    fate: Fate


@dataclass(frozen=True, slots=True)
class PullTrace:
    """The trace of one pull.

    Attributes:
        steps: the entries that the scan reached, in order.
        window_end: one past the queue offset of the last entry that the scan may reach; the pull's offset if there is no scan.
        end: why the scan ended.
        answer: the kernel's answer, a row of `gm.Answers.columns`.
    """

    steps: tuple[Step, ...]
    window_end: int
    end: End
    answer: NDArray[np.int64]


class TraceError(RuntimeError):
    """A trace whose answer differs from the kernel's: a fault of this project."""


def trace_pull(
    request: NDArray[np.int64], caps: NDArray[np.int64], block: gm.Block, filters: gm.TagCodes, log: gm.CommitLogFiles
) -> PullTrace:
    """Return the answer of `gm.get_message` to one request, with the steps that led to it.

    Args:
        request: one row of REQUEST_COLUMNS; the other arguments are those of `gm.get_message`.
        caps: limits in the order of BYTES_MEMORY ... MAKES_LISTS.
        block: the entries that the request scans.
        filters: the TAG filters by number.
        log: the commit log's files.

    Raises:
        TraceError: the answer that the steps lead to differs from the kernel's.
    """
    found = gm.get_message(request[None, :], caps, block, filters, log)
    answer = found.columns[0]
    offset = int(request[gm.OFFSET])
    if pull_status(offset, int(request[gm.MIN_OFFSET]), int(request[gm.MAX_OFFSET])) != SCAN:
        return PullTrace((), offset, End.NO_SCAN, answer)
    if caps[gm.QUEUE_FILES] <= 0:
        return PullTrace((), offset, End.NO_FILES, answer)
    if not block.first_offset <= offset < block.first_offset + len(block.sizes):
        return PullTrace((), offset, End.NO_FILE, answer)
    if caps[gm.MAKES_LISTS] and (request[gm.MAX_MSG_NUMS] < 0 or answer[gm.STATUS] == gm.OUT_OF_MEMORY):
        return PullTrace((), offset, End.NOT_STARTED, answer)
    scan = _Scan(request, caps, block, filters, log)
    steps = scan.steps()
    taken = [step.position for step in steps if step.fate is Fate.TAKEN]
    traced = [scan.status, scan.count, scan.total, scan.commercial] if scan.status >= 0 else [scan.status]
    kernel = answer[[gm.STATUS, gm.COUNT, gm.BYTES, gm.COMMERCIAL][: len(traced)]].tolist()
    passed = sum(step.fate not in BATCH_FULL for step in steps)
    goes_on = offset + passed == answer[gm.NEXT] or scan.status == GetMessageStatus.OFFSET_FOUND_NULL
    if traced != kernel or (scan.status >= 0 and (taken != found.taken.tolist() or not goes_on)):
        message = f"pull of {offset}: expected the kernel's {kernel} and next offset {answer[gm.NEXT]}, traced {traced}, {offset + passed}"
        raise TraceError(message)
    return PullTrace(tuple(steps), block.first_offset + scan.end, _end(steps, scan, request, caps), answer)


def _end(steps: list[Step], scan: _Scan, request: NDArray[np.int64], caps: NDArray[np.int64]) -> End:
    if scan.status == GetMessageStatus.OFFSET_FOUND_NULL:
        return End.NEXT_FILE_MISSING
    if not steps:
        return End.END_OF_WINDOW
    last = steps[-1].fate
    if last in BATCH_FULL:
        return End.BATCH_FULL
    if last is Fate.THROWN:
        return End.THROWN
    offset, entries = int(request[gm.OFFSET]), int(caps[gm.ENTRIES_A_FILE])
    stopped = offset + scan.end - scan.begin
    file_begin = steps[-1].position + scan.block.first_offset
    file_begin -= file_begin % entries
    if stopped == request[gm.MAX_OFFSET]:
        return End.END_OF_QUEUE
    by_window = stopped == offset + scan.window and stopped != file_begin + entries
    return End.END_OF_WINDOW if by_window else End.END_OF_FILE


class _Scan:
    """The loop of getMessage over entries, with the counts and bytes taken so far."""

    def __init__(
        self, request: NDArray[np.int64], caps: NDArray[np.int64], block: gm.Block, filters: gm.TagCodes, log: gm.CommitLogFiles
    ) -> None:
        self.request, self.max_msg_nums, self.log_end = request, int(request[gm.MAX_MSG_NUMS]), int(request[gm.LOG_END])
        self.caps, self.block, self.filters, self.log = caps, block, filters, log
        self.begin = int(request[gm.OFFSET]) - block.first_offset
        self.window = int(scan_window_entries(self.max_msg_nums, int(caps[gm.WINDOW_BYTES])))
        self.last = min(int(request[gm.MAX_OFFSET]) - block.first_offset, self.begin + self.window)
        self.entries, self.files = int(caps[gm.ENTRIES_A_FILE]), 1
        self.end = min(len(block.sizes), self.last, self.begin + self.entries - int(request[gm.OFFSET]) % self.entries)
        self.fullness_first = bool(caps[gm.FULLNESS_FIRST])
        self.outcomes = self._alone(block)
        self.by_tags_alone = self._alone(replace(block, verdicts=np.empty(0, np.uint8)))
        self.status = int(GetMessageStatus.NO_MATCHED_MESSAGE)
        self.count = self.total = self.commercial = 0
        self.removed_until: int | None = None

    def steps(self) -> list[Step]:
        """Return a step for each entry that the scan reaches."""
        found: list[Step] = []
        while True:
            for position in range(self.begin + len(found), self.end):
                found.append(self._step(position))
                if found[-1].fate in BATCH_FULL or found[-1].fate is Fate.THROWN:
                    return found
            if not self._goes_on():
                return found

    def _goes_on(self) -> bool:
        """Return whether the scan goes on in the next queue file, because it found nothing so far; then set `end` to that file's end."""
        at_file_end = (self.block.first_offset + self.end) % self.entries == 0 and self.end > self.begin
        if not at_file_end or self.block.first_offset + self.end >= self.request[gm.MAX_OFFSET]:
            return False
        if self.total > 0 or self.files >= self.caps[gm.QUEUE_FILES]:
            return False
        if self.end >= len(self.block.sizes):
            self.status = int(GetMessageStatus.OFFSET_FOUND_NULL)
            return False
        self.files, self.removed_until = self.files + 1, None
        self.end = min(len(self.block.sizes), self.last, self.end + self.entries)
        self.outcomes = self._alone(self.block)
        self.by_tags_alone = self._alone(replace(self.block, verdicts=np.empty(0, np.uint8)))
        return True

    def _step(self, position: int) -> Step:
        offset, size = int(self.block.physic_offsets[position]), int(self.block.sizes[position])
        skipped = self.removed_until is not None and offset < self.removed_until
        if skipped and not self.fullness_first:
            return Step(position, None, Fate.IN_REMOVED_FILE)
        in_disk = bool(check_in_disk(offset, self.log_end, int(self.caps[gm.MEMORY])))
        outcome = int(self.outcomes[position - self.begin])
        unit_throws = self.fullness_first and outcome == gm.BUFFER_UNDERFLOW and self._unit_underflows(position)
        full = None if unit_throws else self._fullness(size, in_disk)
        if full is not None:
            return Step(position, in_disk, full)
        if skipped and not unit_throws:
            return Step(position, in_disk, Fate.IN_REMOVED_FILE)
        if outcome < 0:
            self.status = outcome
            return Step(position, in_disk, Fate.THROWN)
        if outcome == _FOUND:
            self.count += 1
            self.total = to_int(self.total + size)
            self.commercial += int(commercial_count(size, int(self.caps[gm.BYTES_A_COUNT])))
            self.status, self.removed_until = _FOUND, None
            return Step(position, in_disk, Fate.TAKEN)
        if self.total == 0:
            self.status = outcome
        if outcome == _REMOVING:
            self.removed_until = int(gm.roll_next_file(offset, self.log.file_size))
            return Step(position, in_disk, Fate.REMOVED)
        return Step(position, in_disk, self._not_matched(position))

    def _alone(self, block: gm.Block) -> NDArray[np.int64]:
        """Return the status of a pull that sees one entry alone, for each entry of the scan."""
        requests = np.repeat(self.request[None, :], self.end - self.begin, axis=0)
        requests[:, gm.OFFSET] += np.arange(self.end - self.begin)
        requests[:, gm.MAX_OFFSET] = requests[:, gm.OFFSET] + 1
        return gm.get_message(requests, self.caps, block, self.filters, self.log).columns[:, gm.STATUS]

    def _unit_underflows(self, position: int) -> bool:
        found: list[int] = self.block.verdicts[position : position + 1].tolist()
        return found == [gm.UNIT_UNDERFLOWS]

    def _not_matched(self, position: int) -> Fate:
        """Return which filter rejected an entry: the one without which the entry would match."""
        if self.block.verdicts[position : position + 1].tolist() == [gm.NOT_BY_CONSUME_QUEUE]:
            return Fate.NOT_BY_BIT_MAP
        not_by_tag = self.by_tags_alone[position - self.begin] == GetMessageStatus.NO_MATCHED_MESSAGE
        return Fate.NOT_BY_TAGS_CODE if not_by_tag else Fate.NOT_BY_COMMIT_LOG

    def _fullness(self, size: int, in_disk: bool) -> Fate | None:
        """Return the first limit, in the broker's order, that alone makes the batch full before an entry; None if the batch has room."""
        bytes_cap, count_cap = (gm.BYTES_DISK, gm.COUNT_DISK) if in_disk else (gm.BYTES_MEMORY, gm.COUNT_MEMORY)
        by_bytes, by_count = (Fate.BYTES_IN_DISK, Fate.COUNT_IN_DISK) if in_disk else (Fate.BYTES_IN_MEMORY, Fate.COUNT_IN_MEMORY)
        total = int(self.caps[gm.BYTES_TOTAL])
        if self.count and self.total >= total:
            return Fate.TOTAL_SIZE
        for fate, max_msg_nums, max_bytes, max_count in (
            (Fate.MAX_MSG_NUMS, self.max_msg_nums, _INT_MAX, _INT_MAX),
            (Fate.TOTAL_SIZE, _INT_MAX, total, _INT_MAX),
            (by_bytes, _INT_MAX, int(self.caps[bytes_cap]), _INT_MAX),
            (by_count, _INT_MAX, _INT_MAX, int(self.caps[count_cap])),
        ):
            limits = (max_bytes, max_count, max_bytes, max_count)
            if is_the_batch_full(size, max_msg_nums, self.total, self.count, in_disk, *limits):
                return fate
        return None
