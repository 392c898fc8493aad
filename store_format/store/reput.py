"""Dispatches the messages that the queues do not have yet, as a broker's start does.

Broker source (4.9.3): DefaultMessageStore.ReputMessageService.doReput and start, CommitLog.getData, rollNextFile.
Rule: dispatch begins at the end of the last message in any queue and goes file by file up to the log's end.
Surprises: start waits until it ends. It waits for ever at a missing file, with duplicationEnable, and, unless the broker is a
master (brokerId 0), at a bad record; a master skips the rest of the file. A record whose lengths do not add up is skipped, and not
dispatched. Dispatch may then end past the log's end, and the clean shutdown keeps the abort file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from store_format.big_endian import Bytes
from store_format.files.mapped_files import MappedFile, max_offset, min_offset
from store_format.layout import BORNHOST_V6_FLAG, MESSAGE_MAGIC_CODE, STOREHOSTADDRESS_V6_FLAG
from store_format.log.commit_log import WalkEnd
from store_format.log.dispatch_request import DeliverTimestamp, DispatchRequests
from store_format.store.dispatcher import DispatchError
from store_format.store.recover_abnormally import Dispatch, ReadLog, walk_and_dispatch


@dataclass(slots=True, kw_only=True)
class Reput:
    """ReputMessageService of a store at rest.

    `wrote` of each file is the bytes in use; `read` returns all bytes of a file; `dispatch` receives the dispatch requests of the messages.
    `deliver_timestamp` is None without delay levels; `is_master` is whether brokerId is 0. `reput_from_offset` is the offset in the log of
    the next message to dispatch.
    """

    files: Sequence[MappedFile]
    read: ReadLog
    dispatch: Dispatch
    deliver_timestamp: DeliverTimestamp | None
    is_master: bool
    duplication_enable: bool
    reput_from_offset: int

    @property
    def behind(self) -> int:
        """DefaultMessageStore.dispatchBehindBytes: bytes of the log that are not dispatched yet."""
        return max_offset(self.files) - self.reput_from_offset

    def catch_up(self) -> bool:
        """Dispatch up to the log's end; returns False if the broker's start would never end."""
        while self.behind > 0:
            before = self.reput_from_offset
            try:
                self._do_reput()
            except DispatchError:
                return False
            if self.reput_from_offset == before:
                return False
        return True

    def _do_reput(self) -> None:
        self.reput_from_offset = max(self.reput_from_offset, min_offset(self.files))
        goes_on = True
        # with duplicationEnable the broker compares the offset with one that is never set
        while self.behind > 0 and goes_on and not self.duplication_enable:
            file = self._file_at(self.reput_from_offset)
            goes_on = file is not None and self._reput_file(file)

    def _file_at(self, offset: int) -> MappedFile | None:
        """The file with data at `offset`, None without one; offset 0 falls back to the first file."""
        found = next((file for file in self.files if file.from_offset <= offset < file.end), None)
        if found is None and offset == 0 and self.files:
            found = self.files[0]
        if found is None or offset % found.length >= found.wrote:
            return None
        return found

    def _reput_file(self, file: MappedFile) -> bool:
        """Dispatch the messages of `file` from the offset on; returns whether to go on with the next file."""
        content = self.read(file)
        at = self.reput_from_offset % file.length
        self.reput_from_offset = file.from_offset + at
        size, read_size = file.wrote - at, 0
        while read_size < size:
            end, ended = walk_and_dispatch(content, at, file.wrote, self._dispatch, self.deliver_timestamp, check_crc=False)
            read_size += end - at
            at = end
            if read_size >= size:
                break
            if ended is WalkEnd.BLANK:
                self.reput_from_offset += file.length - self.reput_from_offset % file.length
                return True
            wrong = read_mismatched(content[at : file.wrote]) if ended is WalkEnd.BAD_RECORD else None
            if wrong is None:
                if self.is_master:
                    self.reput_from_offset += size - read_size
                return False
            self.reput_from_offset += wrong[0]
            at += wrong[1]
        return True

    def _dispatch(self, requests: DispatchRequests) -> None:
        self.dispatch(requests)
        self.reput_from_offset += int(requests.size.sum())


def read_mismatched(raw: Bytes) -> tuple[int, int] | None:
    """Read a record whose lengths do not add up to its size, as checkMessageAndReturnSize does if it reads no body.

    Returns the record's size and the sum of the lengths of its parts, or None if Java throws.
    """
    data = raw.tobytes()
    try:
        total, magic = struct.unpack_from(">ii", data, 0)
        (sys_flag,) = struct.unpack_from(">i", data, 36)
        at = 48
        for flag in (BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG):
            host = 20 if sys_flag & flag else 8
            if host > total:
                return None
            at += host + (8 if flag == BORNHOST_V6_FLAG else 0)
        (body,) = struct.unpack_from(">i", data, at + 12)
        at += 16 + max(body, 0)
        (topic,) = struct.unpack_from(">b", data, at)
        (properties,) = struct.unpack_from(">h", data, at + 1 + topic) if topic >= 0 else (-1,)
    except struct.error:
        return None
    end = at + 3 + topic + max(properties, 0)
    if magic != MESSAGE_MAGIC_CODE or total <= 0 or not 0 <= topic <= total or properties > total or end > len(data):
        return None
    return (total, end) if end != total else None
