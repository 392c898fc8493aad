"""The settings that the scan of getMessage depends on, as the array that the kernel takes.

Broker source (4.9.3): MessageStoreConfig; DefaultMessageStore.getMessage, isTheBatchFull and nextOffsetCorrection.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from udfs.pull import get_message as gm
from udfs.pull.batch_caps import memory_limit
from udfs.pull.codes import BrokerRole
from udfs.pull.offset_correction import slave_keeps_offset


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
        """Cap of a batch while an entry counts as in memory."""

    @property
    def max_transfer_count_on_message_in_memory(self) -> int:
        """Cap of a batch while an entry counts as in memory, messages."""

    @property
    def max_transfer_bytes_on_message_in_disk(self) -> int:
        """Cap of a batch once an entry counts as on disk."""

    @property
    def max_transfer_count_on_message_in_disk(self) -> int:
        """Cap of a batch once an entry counts as on disk, messages."""

    @property
    def total_physical_memory_size(self) -> int:
        """Memory of the broker's machine, as the broker reads it."""

    @property
    def readable(self) -> bool:
        """Whether the store is readable; if not, it answers null to every pull."""


def scan_caps(settings: ScanSettings, entries_a_file: int) -> NDArray[np.int64]:
    """Return the array `caps` of `get_message` from settings, for queue files of `entries_a_file` entries."""
    caps = np.zeros(gm.ENTRIES_A_FILE + 1, np.int64)
    caps[gm.BYTES_MEMORY] = settings.max_transfer_bytes_on_message_in_memory
    caps[gm.COUNT_MEMORY] = settings.max_transfer_count_on_message_in_memory
    caps[gm.BYTES_DISK] = settings.max_transfer_bytes_on_message_in_disk
    caps[gm.COUNT_DISK] = settings.max_transfer_count_on_message_in_disk
    caps[gm.MEMORY] = memory_limit(settings.total_physical_memory_size, settings.access_message_in_memory_max_ratio)
    caps[gm.SLAVE_KEEPS] = slave_keeps_offset(BrokerRole[settings.broker_role], settings.offset_check_in_slave)
    caps[gm.ENTRIES_A_FILE] = entries_a_file
    return caps
