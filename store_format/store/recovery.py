"""The recovery of the commit log by a broker's load after a clean shutdown.

Broker source (4.9.3): CommitLog.recoverNormally, DefaultMessageStore.recover and start.
Rule: the walk begins at the third file from the end and dispatches nothing; the log ends after the last good record of that walk.
Surprise: if the walk ends at the BLANK of the last file, the log ends before that BLANK. The files after the log's end are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from store_format.files.mapped_files import MappedFile, max_offset, truncate_dirty_files
from store_format.log.commit_log import WalkEnd

RECOVERED_FILES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWalk:
    """The end of the walk over one file of the commit log: the position in the file, and why the walk ended."""

    name: str
    end: int
    ended: WalkEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLog:
    """The commit log after its recovery: its files, and the end of the walk that found the log's end.

    Attributes:
        confirm_offset: where the last good message begins, as 5.5.0 finds it; None in older versions.
    """

    files: tuple[MappedFile, ...]
    ended: FileWalk | None
    confirm_offset: int | None = None

    @property
    def min_offset(self) -> int:
        """CommitLog.getMinOffset: the first file's offset, -1 without files."""
        return self.files[0].from_offset if self.files else -1

    @property
    def max_offset(self) -> int:
        """CommitLog.getMaxOffset: the log's end, 0 without files."""
        return max_offset(self.files)


def files_to_walk(files: Sequence[MappedFile]) -> Sequence[MappedFile]:
    """The files that recoverNormally may walk, in order; it stops after the first file whose walk ends before the file does."""
    return files[max(len(files) - RECOVERED_FILES, 0) :]


def recovered_log(files: Sequence[MappedFile], walked: Sequence[MappedFile], walks: Iterable[FileWalk]) -> RecoveredLog:
    """The recovered log of `files`, by the walks over its files `walked`; `walks` may be lazy and make each walk when it is needed."""
    process_offset = 0
    last: FileWalk | None = None
    for file, last in zip(walked, walks, strict=True):
        process_offset = file.from_offset + last.end
        if last.ended is not WalkEnd.BLANK:
            break
    return RecoveredLog(files=truncate_dirty_files(files, process_offset), ended=last)


def recover_normally(files: Sequence[MappedFile], walks: Iterable[FileWalk]) -> RecoveredLog:
    """The commit log after recoverNormally, by the walks over `files_to_walk(files)` in their order."""
    return recovered_log(files, files_to_walk(files), walks)
