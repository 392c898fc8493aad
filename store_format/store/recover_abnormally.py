"""The recovery of the commit log by a broker's load after a kill.

Broker source (4.9.3): CommitLog.recoverAbnormally and isMappedFileMatchedRecover.
Rule: recovery walks from the newest file whose first message was stored no later than the checkpoint's time, and dispatches every message.
Surprises: it skips a file that does not begin with a record, or whose first record has no store timestamp. If no file fits, the walk begins
at the first file. With duplicationEnable nothing is dispatched: each message is compared with an offset that is never set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from store_format.big_endian import Bytes, int32_at, int64_at
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
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
    """Whether recovery can begin with the file of these bytes: its first record was stored no later than `min_timestamp` (ms)."""
    head = np.zeros(_READ_FOR_MATCH, np.uint8)
    head[: min(len(content), _READ_FOR_MATCH)] = content[:_READ_FOR_MATCH]
    if int32_at(head, _MAGIC_CODE_POSITION) != MESSAGE_MAGIC_CODE:
        return False
    is_v6 = int32_at(head, SYS_FLAG_POSITION) & BORNHOST_V6_FLAG
    stored = int64_at(head, BORN_HOST_POSITION + (IPV6_HOST if is_v6 else IPV4_HOST))
    return stored != 0 and bool(stored <= min_timestamp)


def files_to_walk(files: Sequence[MappedFile], read: ReadLog, min_timestamp: int) -> Sequence[MappedFile]:
    """The files that recoverAbnormally may walk, in order; it stops after the first file whose walk ends before the file does."""
    for first in range(len(files) - 1, -1, -1):
        if is_mapped_file_matched_recover(read(files[first]), min_timestamp):
            return files[first:]
    return files


def walk_and_dispatch(
    content: Bytes,
    start: int,
    limit: int,
    dispatch: Dispatch | None,
    deliver_timestamp: DeliverTimestamp | None,
    *,
    check_crc: bool,
    version: BrokerVersion = DEFAULT_VERSION,
) -> tuple[int, WalkEnd]:
    """Walk the records in `content[start:limit]` and give their dispatch requests to `dispatch`, if it is not None.

    `version` is that of the broker whose records count. Returns the position at which the walk ended, and why.
    """
    at = start
    while True:
        part = walk(content, at, limit, WALK_BATCH, version)
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
    """The commit log, of one file or more, after recoverAbnormally.

    `dispatch` receives the dispatch requests of the walked messages; it is None with duplicationEnable. `min_timestamp` (ms) is
    getMinTimestamp of the checkpoint, or getMinTimestampIndex with messageIndexSafe; `check_crc` is the setting checkCRCOnRecover.
    """
    walked = files_to_walk(files, read, min_timestamp)

    def walks() -> Iterator[FileWalk]:
        for file in walked:
            # None: load reads the delay levels only after the log's recovery
            end, ended = walk_and_dispatch(read(file), 0, file.length, dispatch, None, check_crc=check_crc)
            yield FileWalk(name=file.name, end=end, ended=ended)

    return recovered_log(files, walked, walks())
