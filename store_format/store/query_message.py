"""Finds messages by key and time in the index and the commit log.

Broker source (4.9.3): DefaultMessageStore.queryMessage, CommitLog.getData.
Rule: the index gives offsets; the messages at these offsets are returned in order of offset.
Surprises: the messages' keys are not checked. If the found messages have no bytes, the search runs again, three times in all; its end time
is then the store timestamp of the message with the least offset, if that can be read. The index's last update time and offset are 0 if
nothing is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from store_format.index.index_file import IndexFile
from store_format.index.index_service import query_offset
from store_format.java.numbers import to_int
from store_format.store.lookup import ILLEGAL_ARGUMENT, SIZE_BYTES, CommitLogLookup, MappedFiles, Selected, ThrownError

QUERY_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMessageResult:
    """The result of DefaultMessageStore.queryMessage; messages in order of their offsets."""

    messages: tuple[Selected, ...]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int

    @property
    def buffer_total_size(self) -> int:
        """The bytes of all messages, as a Java int."""
        return to_int(sum(len(message.content) for message in self.messages))


def query_message(
    files: Sequence[IndexFile], log: CommitLogLookup, topic: str, key: str, max_num: int, begin: int, end: int, *, batch: int
) -> QueryMessageResult:
    """DefaultMessageStore.queryMessage: the messages of a topic with a key, stored between two times (`begin` and `end`, ms).

    `files` are the index files, oldest first. `max_num` is the greatest number of messages; a number above `batch`, the setting
    maxMsgsNumBatch, counts as `batch`.

    Raises:
        ThrownError: `max_num` is negative.
        CorruptStoreError: a chain of index entries is a cycle.
    """
    messages: list[Selected] = []
    last_timestamp = last_offset = 0
    last_time = end
    for _ in range(QUERY_ROUNDS):
        if max_num < 0:
            raise ThrownError(ILLEGAL_ARGUMENT)
        found = query_offset(files, topic, key, min(max_num, batch), begin, last_time)
        if not found.phy_offsets:
            break
        last_timestamp, last_offset = found.index_last_update_timestamp, found.index_last_update_phyoffset
        for number, offset in enumerate(sorted(found.phy_offsets)):
            try:
                message = log.look_message(offset)
                if number == 0:
                    if message is None:
                        continue  # the broker reads the store timestamp of null: it logs a NullPointerException
                    last_time = message.store_timestamp
                messages += _data(log.mapped, offset)
            except ThrownError:
                continue
        if any(len(message.content) for message in messages) or last_time < begin:
            break
    return QueryMessageResult(messages=tuple(messages), index_last_update_timestamp=last_timestamp, index_last_update_phyoffset=last_offset)


def _data(log: MappedFiles, offset: int) -> Sequence[Selected]:
    """CommitLog.getData(offset, false), cut to the size in its first four bytes."""
    file = log.find(offset)
    rest = None if file is None else log.rest(file, offset % file.length)
    if file is None or rest is None:
        return ()
    size = rest.number(0, SIZE_BYTES)
    position = offset % file.length
    if not 0 <= size <= file.length - position:
        raise ThrownError(ILLEGAL_ARGUMENT)
    return (Selected(start_offset=offset, content=log.read(file)[position : position + size]),)
