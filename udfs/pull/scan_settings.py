"""The settings that the scan of getMessage depends on, as the array that the kernel takes.

Broker source (4.9.3): MessageStoreConfig; DefaultMessageStore.getMessage, isTheBatchFull and nextOffsetCorrection. What differs in other
versions is in udfs/pull/pull_rules.py; the array has the numbers of one version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from udfs.pull import get_message as gm
from udfs.pull.batch_caps import WINDOW_MIN_BYTES, memory_limit
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.pull.offset_correction import DECIDED_BY_BOUNDS, slave_keeps_offset
from udfs.pull.pull_rules import PullRules

# DefaultMessageStore.getMessage (5.5.0): the bounds of maxTotalMsgSize
_LEAST_TOTAL_SIZE: Final = 100
_MAX_PULL_MSG_SIZE: Final = 128 * 1024 * 1024
# greater than any sum of sizes, which is a Java int
_NO_TOTAL_SIZE: Final = 1 << 31


class ScanSettings(Protocol):
    """The broker's settings for getMessage, under their own names in snake_case; sizes in bytes."""

    @property
    def broker_role(self) -> str:
        """ASYNC_MASTER, SYNC_MASTER or SLAVE."""

    @property
    def offset_check_in_slave(self) -> bool:
        """Whether a slave corrects the next offset as a master does."""

    @property
    def access_message_in_memory_max_ratio(self) -> int:
        """Percent of the memory that counts as filled with the newest messages."""

    @property
    def max_transfer_bytes_on_message_in_memory(self) -> int:
        """Cap of a batch in bytes, tested for an entry that counts as in memory."""

    @property
    def max_transfer_count_on_message_in_memory(self) -> int:
        """Cap of a batch in messages, tested for an entry that counts as in memory."""

    @property
    def max_transfer_bytes_on_message_in_disk(self) -> int:
        """Cap of a batch in bytes, tested for an entry that counts as on disk."""

    @property
    def max_transfer_count_on_message_in_disk(self) -> int:
        """Cap of a batch in messages, tested for an entry that counts as on disk."""

    @property
    def total_physical_memory_size(self) -> int:
        """Memory of the broker's machine, as the broker reads it."""

    @property
    def readable(self) -> bool:
        """Whether the store is readable; if not, it answers null to every pull."""

    @property
    def max_filter_message_size(self) -> int:
        """Bytes of the smallest window; read only if the version has this setting."""

    @property
    def travel_cq_file_num_when_get_message(self) -> int:
        """How many queue files a pull reads while it finds nothing; read only if the version has this setting."""

    @property
    def max_total_msg_size(self) -> int:
        """The argument maxTotalMsgSize of getMessage; read only if the version has it."""

    @property
    def rules(self) -> PullRules:
        """The rules of the broker's version."""


def window_bytes(settings: ScanSettings) -> int:
    """Return the bytes of the smallest scan window."""
    return settings.max_filter_message_size if settings.rules.window_and_size_are_settings else WINDOW_MIN_BYTES


def queue_files(settings: ScanSettings) -> int:
    """Return how many queue files a pull may read."""
    return settings.travel_cq_file_num_when_get_message if settings.rules.window_and_size_are_settings else 1


def notes_a_position(answers: NDArray[np.int64], rules: PullRules) -> NDArray[np.bool_]:
    """Return for each answer whether LAST_PHYSIC decides diskFallBehind and suggestPullingFromSlave.

    Args:
        answers: the kernel's answers, rows of ANSWER_COLUMNS.
        rules: the rules of the broker's version.
    """
    if rules.every_scan_records_fall_behind:
        return ~np.isin(answers[:, gm.STATUS], DECIDED_BY_BOUNDS)
    return answers[:, gm.ENTRIES_READ] > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFigures:
    """The figures of answers about memory and disk; each array has one element an answer.

    Attributes:
        suggests_slave: suggestPullingFromSlave.
        fall_behind: diskFallBehind, bytes; meaningless if `is_recorded` is false.
        is_recorded: whether diskFallBehind is recorded, if the broker records it at all (diskFallRecorded).
    """

    suggests_slave: NDArray[np.bool_]
    fall_behind: NDArray[np.int64]
    is_recorded: NDArray[np.bool_]


def disk_figures(answers: NDArray[np.int64], log_ends: NDArray[np.int64], memory: int, rules: PullRules) -> DiskFigures:
    """Return suggestPullingFromSlave and diskFallBehind of answers.

    Args:
        answers: the kernel's answers, rows of ANSWER_COLUMNS.
        log_ends: end of the commit log that each pull saw.
        memory: the element MEMORY of the kernel's `caps`, bytes.
        rules: the rules of the broker's version.
    """
    fall_behind, scanned = log_ends - answers[:, gm.LAST_PHYSIC], notes_a_position(answers, rules)
    at_end = (answers[:, gm.STATUS] == GetMessageStatus.OFFSET_OVERFLOW_ONE) & rules.overflow_one_records_zero
    return DiskFigures(
        suggests_slave=scanned & (fall_behind > memory),
        fall_behind=np.where(at_end, 0, fall_behind),
        is_recorded=scanned | at_end,
    )


def scan_caps(settings: ScanSettings, entries_a_file: int) -> NDArray[np.int64]:
    """Return the array `caps` of `get_message` from settings, for queue files of `entries_a_file` entries."""
    rules = settings.rules
    caps = np.zeros(gm.CAPS, np.int64)
    caps[gm.BYTES_MEMORY] = settings.max_transfer_bytes_on_message_in_memory
    caps[gm.COUNT_MEMORY] = settings.max_transfer_count_on_message_in_memory
    caps[gm.BYTES_DISK] = settings.max_transfer_bytes_on_message_in_disk
    caps[gm.COUNT_DISK] = settings.max_transfer_count_on_message_in_disk
    caps[gm.MEMORY] = memory_limit(settings.total_physical_memory_size, settings.access_message_in_memory_max_ratio)
    caps[gm.SLAVE_KEEPS] = slave_keeps_offset(BrokerRole[settings.broker_role], settings.offset_check_in_slave)
    caps[gm.ENTRIES_A_FILE] = entries_a_file
    caps[gm.WINDOW_BYTES] = window_bytes(settings)
    caps[gm.QUEUE_FILES] = queue_files(settings)
    caps[gm.BYTES_TOTAL] = _NO_TOTAL_SIZE
    if rules.window_and_size_are_settings:
        caps[gm.BYTES_TOTAL] = min(max(settings.max_total_msg_size, _LEAST_TOTAL_SIZE), _MAX_PULL_MSG_SIZE)
    caps[gm.TO_MAX] = rules.overflow_badly_goes_to_max
    caps[gm.FULLNESS_FIRST] = rules.fullness_test_comes_first
    caps[gm.BYTES_A_COUNT] = rules.size_per_count
    caps[gm.MAKES_LISTS] = rules.lists_are_made_for_max_msg_nums
    return caps
