"""What a broker's load makes of a commit log after a kill.

Broker source (4.9.3): CommitLog.recoverAbnormally and isMappedFileMatchedRecover.
Rule: it walks from the newest file that begins no later than the checkpoint's time, and dispatches every message on the way.
Surprises: a file that begins with no record, or one without a store time, is passed over; where none fits, the walk begins at the first.
With duplicationEnable nothing is dispatched, for the offset that it is held against is never set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from store_format.big_endian import Bytes, int32_at, int64_at
from store_format.files.mapped_files import MappedFile
from store_format.layout import BORN_HOST_POSITION, BORNHOST_V6_FLAG, IPV4_HOST, IPV6_HOST, MESSAGE_MAGIC_CODE, SYS_FLAG_POSITION
from store_format.log.commit_log import WALK_BATCH, WalkEnd, first_bad_body, walk
from store_format.log.dispatch_request import DeliverTimestamp, DispatchRequests, first_bad_level, read_requests
from store_format.store.recovery import FileWalk, RecoveredLog, recovered_log

ReadLog = Callable[[MappedFile], Bytes]
Dispatch = Callable[[DispatchRequests], None]

_MAGIC_CODE_POSITION = 4
_READ_FOR_MATCH = BORN_HOST_POSITION + IPV6_HOST + 8


def is_mapped_file_matched_recover(content: Bytes, min_timestamp: int) -> bool:
    """Whether recovery can begin with this file: its first record was stored no later than `min_timestamp` (ms)."""
    head = np.zeros(_READ_FOR_MATCH, np.uint8)
    head[: min(len(content), _READ_FOR_MATCH)] = content[:_READ_FOR_MATCH]
    if int32_at(head, _MAGIC_CODE_POSITION) != MESSAGE_MAGIC_CODE:
        return False
    is_v6 = int32_at(head, SYS_FLAG_POSITION) & BORNHOST_V6_FLAG
    stored = int64_at(head, BORN_HOST_POSITION + (IPV6_HOST if is_v6 else IPV4_HOST))
    return stored != 0 and bool(stored <= min_timestamp)


def files_to_walk(files: Sequence[MappedFile], read: ReadLog, min_timestamp: int) -> Sequence[MappedFile]:
    """The files that recoverAbnormally may read."""
    for first in range(len(files) - 1, -1, -1):
        if is_mapped_file_matched_recover(read(files[first]), min_timestamp):
            return files[first:]
    return files


def walk_and_dispatch(
    content: Bytes, start: int, limit: int, dispatch: Dispatch | None, deliver_timestamp: DeliverTimestamp | None, *, check_crc: bool
) -> tuple[int, WalkEnd]:
    """Walk records from `start` on, none reaching past `limit`, and dispatch them, if they are to be.

    Returns:
        Where the walk ended, and why.
    """
    at = start
    while True:
        part = walk(content, at, limit, WALK_BATCH)
        positions = part.positions
        bad = first_bad_body(content, positions) if check_crc else len(positions)
        if dispatch is None:
            good = first_bad_level(content, positions[:bad])
        else:
            requests = read_requests(content, positions[:bad], deliver_timestamp)
            good = len(requests)
            dispatch(requests)
        if good < bad:
            return int(positions[good]), WalkEnd.BAD_RECORD
        if bad < len(positions):
            return int(positions[bad]), WalkEnd.BAD_CRC
        if part.ended is not None:
            return part.end, part.ended
        at = part.end


def recover_abnormally(
    files: Sequence[MappedFile], read: ReadLog, dispatch: Dispatch | None, *, min_timestamp: int, check_crc: bool
) -> RecoveredLog:
    """The commit log after recoverAbnormally.

    Args:
        files: of the log, at least one.
        read: all bytes of one.
        dispatch: is given the messages on the way; None with duplicationEnable.
        min_timestamp: getMinTimestamp of the checkpoint, with messageIndexSafe getMinTimestampIndex; ms.
        check_crc: setting checkCRCOnRecover.
    """
    walked = files_to_walk(files, read, min_timestamp)

    def walks() -> Iterator[FileWalk]:
        for file in walked:
            # load reads the delay levels after this
            end, ended = walk_and_dispatch(read(file), 0, file.length, dispatch, None, check_crc=check_crc)
            yield FileWalk(name=file.name, end=end, ended=ended)

    return recovered_log(files, walked, walks())
