"""Recovers the commit log as a 5.5.0 broker does: the walk over the log starts near the end of the consume queues.

Broker source (5.5.0): CommitLog.recoverNormally, recoverAbnormally, isMappedFileMatchedRecover; ConsumeQueueStore.truncateDirty;
and its part in IndexService.
Rule: the walk begins at the newest file whose first message lies at or before an offset, or was stored at or before a time. Only the newest
commitLogRecoverMaxNum files are searched; if no file matches, the walk begins at the oldest of these files. After a clean shutdown the walk
dispatches the messages past the queues' end.
Surprises: the queues' end is the end of a message, and a message that begins exactly there is not dispatched: its queue loses it. If all
queues are missing, no file matches, so messages in files before the newest commitLogRecoverMaxNum get no entries. The broker
decides after dispatching whether to cut the queues at the log's end: a queue that was damaged at its start keeps former entries after the
dispatched ones.
The confirmed offset is the real place of the last message, not the one in its record. Without a message it keeps its value from before
the recovery: after a clean shutdown the end of the last file, or 0 with SYNC_FLUSH, because nothing counts as flushed yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from store_format.big_endian import Bytes
from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.files.mapped_files import MappedFile
from store_format.log.commit_log import first_bad_body, walk
from store_format.log.dispatch_request import DeliverTimestamp, DispatchRequests, read_requests
from store_format.store.recover_abnormally import Dispatch, ReadLog, walk_and_dispatch
from store_format.store.recovery import FileWalk, RecoveredLog, recovered_log

RECOVER: Final = Rule(
    term="recoverNormally, recoverAbnormally",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            False,
            (
                "load walks the last three files, or after a kill the log from the checkpoint's time on; start dispatches "
                "messages that the queues lack"
            ),
            "CommitLog.recoverNormally, recoverAbnormally; DefaultMessageStore.start",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            "load walks the log from the queues' end on and dispatches the messages that begin after it; start dispatches nothing",
            "CommitLog.recoverNormally, recoverAbnormally; DefaultMessageStore.doRecheckReputOffsetFromCq",
        ),
    ),
)
_MOST_FILES: Final = 10  # commitLogRecoverMaxNum below 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """The end of the queues in the log.

    Attributes:
        physic_offset: offset in the log; None if only the time is known.
        timestamp: logicsMsgTimestamp of the checkpoint, ms; counts only if `physic_offset` is None.
        index_timestamp: indexMsgTimestamp of the checkpoint with messageIndexSafe, ms; else None.
        most_files: setting commitLogRecoverMaxNum.
        version: version of the broker that recovers the log.
    """

    physic_offset: int | None
    timestamp: int
    index_timestamp: int | None
    most_files: int
    version: BrokerVersion

    def matches(self, content: Bytes, *, check_crc: bool) -> bool:
        """Whether recovery can begin with the file of these bytes."""
        positions = walk(content, 0, len(content), 1, self.version).positions[:1]
        if check_crc and first_bad_body(content, positions) < len(positions):
            return False
        first = read_requests(content, positions, None)
        stored = int(first.store_timestamp[0]) if len(first) else 0
        if stored == 0 or (self.index_timestamp is not None and stored > self.index_timestamp):
            return False
        if self.physic_offset is None:
            return stored <= self.timestamp
        return int(first.physic_offset[0]) <= self.physic_offset

    def files_to_walk(self, files: Sequence[MappedFile], read: ReadLog, *, check_crc: bool) -> Sequence[MappedFile]:
        """The files that recovery may walk, in order."""
        oldest = max(len(files) - (self.most_files if self.most_files > 0 else _MOST_FILES), 0)
        for first in range(len(files) - 1, oldest, -1):
            if self.matches(read(files[first]), check_crc=check_crc):
                return files[first:]
        return files[oldest:]


def recover_by_queues(
    files: Sequence[MappedFile],
    read: ReadLog,
    dispatch: Dispatch | None,
    seam: Seam,
    *,
    after: int | None,
    confirmed: int | None,
    deliver_timestamp: DeliverTimestamp | None,
    check_crc: bool,
) -> RecoveredLog:
    """Walk the log, hand its messages to `dispatch`, and return the recovered log.

    Args:
        files: files of the log, at least one.
        read: returns all bytes of a file.
        dispatch: receives the dispatch requests of the walked messages; None to dispatch nothing.
        seam: the end of the queues in the log.
        after: only messages that begin after this offset are dispatched; None for all.
        confirmed: the confirmed offset if no message is walked; None for the beginning of the walk.
        deliver_timestamp: when a message of a delay level is due.
        check_crc: setting checkCRCOnRecover.
    """
    walked = seam.files_to_walk(files, read, check_crc=check_crc)
    confirmed = walked[0].from_offset if confirmed is None else confirmed

    def walk_file(file: MappedFile) -> FileWalk:
        at = file.from_offset

        def dispatched(requests: DispatchRequests) -> None:
            nonlocal at, confirmed
            if len(requests):
                at += int(requests.size.sum())
                confirmed = at - int(requests.size[-1])
            if dispatch is not None:
                dispatch(requests if after is None else requests.where(requests.physic_offset > np.int64(after)))

        end, ended = walk_and_dispatch(read(file), 0, file.length, dispatched, deliver_timestamp, check_crc=check_crc, version=seam.version)
        return FileWalk(name=file.name, end=end, ended=ended)

    log = recovered_log(files, walked, map(walk_file, walked))
    return replace(log, confirm_offset=confirmed)
