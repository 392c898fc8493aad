"""The checkpoint file: the store timestamps up to which log, queues and index are on disk.

Broker source (4.9.3): StoreCheckpoint; MappedFile.OS_PAGE_SIZE.
Rule: the file has 4096 bytes and begins with three longs, in ms; the rest is never used.
Surprise: an abnormal recovery starts three seconds before the older of the first two. The third decides only which index files are deleted,
unless messageIndexSafe is set. A missing file counts as three zeros, a shorter one as followed by zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

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

_SAFETY_MS = 3000


_LOGICS_PHYSICAL_OFFSET = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheckpoint:
    """The three store timestamps of the checkpoint in ms, 0 where the broker has not set one."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0

    @property
    def min_timestamp(self) -> int:
        """StoreCheckpoint.getMinTimestamp: recovery starts at a file whose first message was stored no later."""
        least = min(self.physic_msg_timestamp, self.logics_msg_timestamp)
        return max(to_long(least - _SAFETY_MS), 0)

    @property
    def min_timestamp_index(self) -> int:
        """StoreCheckpoint.getMinTimestampIndex, which replaces getMinTimestamp with messageIndexSafe."""
        return min(self.min_timestamp, self.index_msg_timestamp)


def decode_checkpoint(raw: bytes | None) -> StoreCheckpoint:
    """The checkpoint in a file's bytes; a missing file (None) is all zeros, a shorter one is read as if zeros followed."""
    values = np.frombuffer((raw or b"")[: CHECKPOINT.itemsize].ljust(CHECKPOINT.itemsize, b"\0"), ">i8")
    physic, logics, index = values.tolist()
    return StoreCheckpoint(physic_msg_timestamp=physic, logics_msg_timestamp=logics, index_msg_timestamp=index)


def encode_checkpoint(checkpoint: StoreCheckpoint, former: bytes | None = None) -> bytes:
    """The file's bytes after StoreCheckpoint.flush of `checkpoint` into a file with the bytes `former`."""
    row = np.array(
        [(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp)],
        CHECKPOINT,
    )
    kept = (former or b"").ljust(CHECKPOINT_LENGTH, b"\0")
    return row.tobytes() + kept[CHECKPOINT.itemsize :]


def logics_physical_offset(raw: bytes | None) -> int:
    """The checkpoint's logicsPhysicalOffset, which 5.5.0 keeps; 0 where an older broker wrote the file."""
    end = _LOGICS_PHYSICAL_OFFSET + 8
    return 0 if raw is None or len(raw) < end else int.from_bytes(raw[_LOGICS_PHYSICAL_OFFSET:end], "big", signed=True)
