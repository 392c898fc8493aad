"""How much one pull takes: the caps on messages and bytes, the scan window, and what counts as on disk.

Broker source (4.9.3): DefaultMessageStore.isTheBatchFull, checkInDiskByCommitOffset and the loop of getMessage;
GetMessageResult.addMessage.
Rule: the test comes before the filter and before an entry's message is read. Each entry is tested with the caps of memory
or of disk, depending on where the entry lies. One pull can use both.
Surprises: the first message always passes, whatever its size, even with maxMsgNums 0. The sum of bytes is a 32-bit int
that wraps, and so is maxMsgNums * 20, the window in bytes.
Versions differ in the blocks of msgCount4Commercial and in the smallest window: udfs/pull/pull_rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled
from store_format.java.numbers import subtract_longs, to_int
from store_format.layout import CQ_STORE_UNIT_SIZE
from udfs.pull.pull_rules import DEFAULT_RULES

WINDOW_MIN_BYTES: Final = 16000
SIZE_PER_COUNT: Final = int(DEFAULT_RULES.size_per_count)
_LONG_MAX: Final = (1 << 63) - 1


@compiled
def is_the_batch_full(
    size_py: int,
    max_msg_nums: int,
    buffer_total: int,
    message_total: int,
    is_in_disk: bool,
    max_bytes_in_memory: int,
    max_count_in_memory: int,
    max_bytes_in_disk: int,
    max_count_in_disk: int,
) -> bool:
    """Return whether the batch is full before this entry, whatever its tag. All numbers are Java ints.

    Args:
        size_py: size in bytes that the entry claims.
        max_msg_nums: maxMsgNums of the request.
        buffer_total: bytes taken so far.
        message_total: messages taken so far.
        is_in_disk: result of `check_in_disk` for the entry.
        max_bytes_in_memory: maxTransferBytesOnMessageInMemory.
        max_count_in_memory: maxTransferCountOnMessageInMemory.
        max_bytes_in_disk: maxTransferBytesOnMessageInDisk.
        max_count_in_disk: maxTransferCountOnMessageInDisk.
    """
    if buffer_total == 0 or message_total == 0:
        return False
    if max_msg_nums <= message_total:
        return True
    max_bytes = max_bytes_in_disk if is_in_disk else max_bytes_in_memory
    max_count = max_count_in_disk if is_in_disk else max_count_in_memory
    if to_int(int(buffer_total) + int(size_py)) > max_bytes:
        return True
    return message_total > to_int(int(max_count) - 1)


def memory_limit(total_physical_memory_size: int, access_message_in_memory_max_ratio: int) -> int:
    """Return how many bytes at the end of the commit log the broker counts as in memory.

    Args:
        total_physical_memory_size: memory of the broker's machine, in bytes.
        access_message_in_memory_max_ratio: accessMessageInMemoryMaxRatio, in percent.
    """
    memory = total_physical_memory_size * (access_message_in_memory_max_ratio / 100.0)
    return min(max(int(memory), -_LONG_MAX - 1), _LONG_MAX)


@compiled
def check_in_disk(offset_py: int, max_offset_py: int, memory: int) -> bool:
    """Return whether a message lies further from the end of the commit log than `memory` bytes.

    For the last entry that a scan read, the same comparison is suggestPullingFromSlave.

    Args:
        offset_py: physical offset of the entry.
        max_offset_py: end of the commit log when the pull began.
        memory: result of `memory_limit`, in bytes.
    """
    return subtract_longs(max_offset_py, offset_py) > memory


@compiled
def scan_window_entries(max_msg_nums: int, least_bytes: int = WINDOW_MIN_BYTES) -> int:
    """Return how many entries one scan visits at most; the end of a consume queue file may end the scan earlier.

    Args:
        max_msg_nums: maxMsgNums of the request.
        least_bytes: bytes of the smallest window: maxFilterMessageSize if the version has that setting.
    """
    window = max(least_bytes, to_int(int(max_msg_nums) * CQ_STORE_UNIT_SIZE), 0)
    return (window + CQ_STORE_UNIT_SIZE - 1) // CQ_STORE_UNIT_SIZE


@compiled
def commercial_count(size: int, size_per_count: int = SIZE_PER_COUNT) -> int:
    """Return what a message of `size` bytes adds to msgCount4Commercial: its number of blocks of `size_per_count` bytes, rounded up."""
    return -(-size // size_per_count)


@compiled
def batch_cut(
    sizes: NDArray[np.int32] | Sequence[int],
    in_disk: NDArray[np.bool_] | Sequence[bool],
    max_msg_nums: int,
    max_bytes_in_memory: int,
    max_count_in_memory: int,
    max_bytes_in_disk: int,
    max_count_in_disk: int,
) -> int:
    """Return how many of the next messages of a queue one pull takes, if all of them match its filter.

    Args:
        sizes: size of each message in bytes, in queue order, from the pull's offset on, within one consume queue file.
        in_disk: result of `check_in_disk` for each message.
        max_msg_nums: maxMsgNums of the request; the caps that follow are those of `is_the_batch_full`.

    Raises:
        ValueError: maxMsgNums is negative (the broker throws IllegalArgumentException), or the arrays differ in length.
    """
    if max_msg_nums < 0:
        message = "maxMsgNums: expected 0 or more, found a negative number"
        raise ValueError(message)
    if len(sizes) != len(in_disk):
        message = "sizes and inDisk: expected arrays of equal length, found different lengths"
        raise ValueError(message)
    caps = (max_bytes_in_memory, max_count_in_memory, max_bytes_in_disk, max_count_in_disk)
    taken = buffer_total = 0
    for entry in range(min(len(sizes), scan_window_entries(max_msg_nums))):
        size, disk = sizes[entry], in_disk[entry]
        if is_the_batch_full(size, max_msg_nums, buffer_total, taken, disk, *caps):
            break
        taken += 1
        buffer_total = to_int(buffer_total + int(size))
    return taken
