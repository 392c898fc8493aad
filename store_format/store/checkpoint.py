"""The checkpoint file: the store timestamps up to which log, queues and index are on disk.

Broker source (4.9.3): StoreCheckpoint; MappedFile.OS_PAGE_SIZE.
Rule: the file has 4096 bytes and begins with three longs, in ms; the rest is never used. 5.5.0 keeps three offsets of the log after them.
Surprise: an abnormal recovery starts three seconds before the older of the first two. The third decides only which index files are deleted,
unless messageIndexSafe is set. A missing file counts as three zeros; a shorter one is read as if zeros followed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.java.numbers import to_long

CHECKPOINT_LENGTH: Final = 4096
CHECKPOINT: Final = np.dtype(
    [
        ("physicMsgTimestamp", ">i8"),  # last message flushed to the commit log
        ("logicsMsgTimestamp", ">i8"),  # last message dispatched to its queue
        ("indexMsgTimestamp", ">i8"),  # last message of the last full index file
    ]
)
assert CHECKPOINT.itemsize == 24
# after CHECKPOINT, in 5.5.0
OFFSETS: Final = np.dtype([("masterFlushedOffset", ">i8"), ("confirmPhyOffset", ">i8"), ("logicsPhysicalOffset", ">i8")])
STORE_CHECKPOINT: Final = Rule(
    term="StoreCheckpoint",
    variants=(
        Variant(BrokerVersion.V4_9_3, False, "the bytes from position 24 on are not used", "StoreCheckpoint.flush"),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            (
                "the bytes from 24 to 48 hold masterFlushedOffset, confirmPhyOffset (where the last good message begins) and "
                "logicsPhysicalOffset"
            ),
            "StoreCheckpoint.flush, CommitLog.setConfirmOffset",
        ),
    ),
)

_SAFETY_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheckpoint:
    """The store timestamps of the checkpoint in ms, 0 if the broker has not set one; and the offsets of 5.5.0, 0 for an older broker."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """StoreCheckpoint.getMinTimestamp: recovery starts at a file whose first message was stored no later."""
        least = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(to_long(least - _SAFETY_MS), 0)

    @property
    def min_timestamp_index(self) -> int:
        """StoreCheckpoint.getMinTimestampIndex, which replaces getMinTimestamp with messageIndexSafe."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def decode_checkpoint(raw: bytes | None, *, with_offsets: bool = False) -> StoreCheckpoint:
    """The checkpoint in a file's bytes; a missing file (None) is all zeros, a shorter one is read as if zeros followed.

    Args:
        raw: the file's bytes.
        with_offsets: the value of STORE_CHECKPOINT in the broker's version.
    """
    length = CHECKPOINT.itemsize + OFFSETS.itemsize
    values = np.frombuffer((raw or b"")[:length].ljust(length, b"\0"), ">i8")
    physic, logics, index, flushed, confirm, queues = values.tolist()
    times = StoreCheckpoint(physic_msg_timestamp=physic, logics_msg_timestamp=logics, index_msg_timestamp=index)
    if not with_offsets:
        return times
    return replace(times, master_flushed_offset=flushed, confirm_phy_offset=confirm, logics_physical_offset=queues)


def encode_checkpoint(checkpoint: StoreCheckpoint, former: bytes | None = None, *, with_offsets: bool = False) -> bytes:
    """The file's bytes after StoreCheckpoint.flush of `checkpoint` into a file with the bytes `former`; `with_offsets` as in decoding."""
    row = np.array(
        [(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp)],
        CHECKPOINT,
    ).tobytes()
    if with_offsets:
        offsets = [(checkpoint.master_flushed_offset, checkpoint.confirm_phy_offset, checkpoint.logics_physical_offset)]
        row += np.array(offsets, OFFSETS).tobytes()
    kept = (former or b"").ljust(CHECKPOINT_LENGTH, b"\0")
    return row + kept[len(row) :]
