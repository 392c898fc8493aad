"""What a broker's load makes of a commit log that was shut down cleanly.

Broker source (4.9.3): CommitLog.recoverNormally, DefaultMessageStore.recover and start.
Rule: the walk begins at the third file from the end and dispatches nothing; the log ends where the last good record of that walk does.
Surprise: where the walk ends on the blank of the last file, the log's end is before that blank; files further on are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from store_format.files.mapped_files import MappedFile, max_offset, truncate_dirty_files
from store_format.log.commit_log import WalkEnd

RECOVERED_FILES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWalk:
    """How the walk over one file of the commit log ended: position in the file, and why."""

    name: str
    end: int
    ended: WalkEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLog:
    """The commit log after recoverNormally: its files, and how the walk that found its end ended."""

    files: tuple[MappedFile, ...]
    ended: FileWalk | None

    @property
    def min_offset(self) -> int:
        """CommitLog.getMinOffset: -1 where there is no file."""
        return self.files[0].from_offset if self.files else -1

    @property
    def max_offset(self) -> int:
        """CommitLog.getMaxOffset: 0 where there is no file."""
        return max_offset(self.files)


def files_to_walk(files: Sequence[MappedFile]) -> Sequence[MappedFile]:
    """The files that recoverNormally may read."""
    return files[max(len(files) - RECOVERED_FILES, 0) :]


def recovered_log(files: Sequence[MappedFile], walked: Sequence[MappedFile], walks: Iterable[FileWalk]) -> RecoveredLog:
    """Combine the walks over some of a log's files, which may be made as they are asked for, into the log's end."""
    process_offset = 0
    last: FileWalk | None = None
    for file, last in zip(walked, walks, strict=True):
        process_offset = file.from_offset + last.end
        if last.ended is not WalkEnd.BLANK:
            break
    return RecoveredLog(files=truncate_dirty_files(files, process_offset), ended=last)


def recover_normally(files: Sequence[MappedFile], walks: Iterable[FileWalk]) -> RecoveredLog:
    """The commit log after recoverNormally, from the walks over `files_to_walk(files)`, in their order."""
    return recovered_log(files, files_to_walk(files), walks)
