"""The settings that the scan of getMessage depends on, in the form that the kernel takes.

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
        """Percent of the memory that the newest messages take."""

    @property
    def max_transfer_bytes_on_message_in_memory(self) -> int:
        """Cap of a batch."""

    @property
    def max_transfer_count_on_message_in_memory(self) -> int:
        """Cap of a batch, messages."""

    @property
    def max_transfer_bytes_on_message_in_disk(self) -> int:
        """Cap of a batch once an entry counts as on disk."""

    @property
    def max_transfer_count_on_message_in_disk(self) -> int:
        """Cap of a batch once an entry counts as on disk, messages."""

    @property
    def total_physical_memory_size(self) -> int:
        """Memory that the broker believes in."""

    @property
    def readable(self) -> bool:
        """Whether the store can be read; else it answers null."""


def scan_caps(settings: ScanSettings, entries_a_file: int) -> NDArray[np.int64]:
    """The caps of `get_message`, in the order of its constants, for queue files of so many entries."""
    caps = np.zeros(gm.ENTRIES_A_FILE + 1, np.int64)
    caps[gm.BYTES_MEMORY] = settings.max_transfer_bytes_on_message_in_memory
    caps[gm.COUNT_MEMORY] = settings.max_transfer_count_on_message_in_memory
    caps[gm.BYTES_DISK] = settings.max_transfer_bytes_on_message_in_disk
    caps[gm.COUNT_DISK] = settings.max_transfer_count_on_message_in_disk
    caps[gm.MEMORY] = memory_limit(settings.total_physical_memory_size, settings.access_message_in_memory_max_ratio)
    caps[gm.SLAVE_KEEPS] = slave_keeps_offset(BrokerRole[settings.broker_role], settings.offset_check_in_slave)
    caps[gm.ENTRIES_A_FILE] = entries_a_file
    return caps
