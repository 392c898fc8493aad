"""Finds the messages that a broker's load cuts off its commit log, if a message begins at the cut."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.files.store_files import StoreFiles
from pipeline.settings.quantities import counted
from store_format.broker_version import BrokerVersion
from store_format.log.commit_log import WALK_BATCH, WalkEnd, walk
from store_format.record.message import HEAD_BYTES, begins_message
from store_format.store_paths import COMMIT_LOG

# a broker 4.9 cuts the log at a V2 record; this version knows the messages of all
_KNOWS_ALL = BrokerVersion.V5_5_0


@dataclass(frozen=True, slots=True)
class CutOff:
    """The messages after the new end of the log.

    Attributes:
        path: path of the file in which the log ends.
        position: position of the end in the file.
        messages: number of whole messages after the end, in later files too.
        is_all: whether these are all. If not, there is a damaged one, and nothing says where messages begin after it.
    """

    path: str
    position: int
    messages: int
    is_all: bool

    @property
    def lost(self) -> str:
        """The lost messages, a text for people."""
        if self.is_all:
            return counted(self.messages, "message")
        return f"{counted(self.messages, 'whole message')} and a damaged one" if self.messages else "a damaged message and what follows it"


def cut_off(files: StoreFiles, end: int) -> CutOff | None:
    """The messages that the store's log has from offset `end` on; None if no message begins there.

    Args:
        files: the store's files before load.
        end: offset of the log's end after load.
    """
    logs = sorted((int(one.name), one.name, one.length) for one in files.folder(COMMIT_LOG) if one.name.isascii() and one.name.isdigit())
    rest = [(start, name) for start, name, length in logs if start + length > end]
    if not rest or rest[0][0] > end:
        return None
    position = end - rest[0][0]
    if not begins_message(bytes(files.part(position, position + HEAD_BYTES, COMMIT_LOG, rest[0][1]))):
        return None
    messages, is_all = 0, True
    for start, name in rest:
        content = files.content(COMMIT_LOG, name)
        at, ended = max(end - start, 0), None
        while ended is None:
            part = walk(content, at, len(content), WALK_BATCH, _KNOWS_ALL)
            messages += len(part.positions)
            at, ended = part.end, part.ended
        is_all = is_all and ended is not WalkEnd.BAD_RECORD
    return CutOff(files.path_of(COMMIT_LOG, rest[0][1]), position, messages, is_all)
