"""How much work one process does without a session of Spark; larger work goes to tasks of Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pyarrow.fs as pafs

from pipeline.files.store_files import filesystem_of, is_uri, local_path
from pipeline.tasks.work import NoSessionError

Done = TypeVar("Done")

# one process reads up to this many bytes on disk, files and folders faster than a session on a few cores
MOST_BYTES = 2 << 30
MOST_FILES = 1000


def done_here(work: Callable[[], Done], does: str, tell: Callable[[str], None]) -> Done | None:
    """Return the result of `work`, done without Spark; None if it raises NoSessionError.

    After None, Spark has to do the work; `tell` is called with the reason.

    Args:
        work: does the work, or raises NoSessionError before any of its writes is visible.
        does: what is done, a verb.
        tell: called with a line.
    """
    try:
        return work()
    except NoSessionError as error:
        tell(f"Spark {does}: {error}")
        return None


def require_small(reason: str | None, does: str, tell: Callable[[str], None]) -> None:
    """Check that there is no reason against work without Spark, and tell that the driver does the work.

    Raises:
        NoSessionError: there is a reason.
    """
    if reason is not None:
        raise NoSessionError(reason)
    tell(f"the driver {does}, without Java")


def is_small_store(path: str) -> bool:
    """Whether one process reads the store in a folder, local or at a URI, faster than a session on a few cores.

    That is so up to MOST_BYTES on disk, and MOST_FILES files and folders. Local log files have holes where nothing was written, so their
    blocks are counted.
    """
    if is_uri(path):
        filesystem, inside = filesystem_of(path)
        infos = filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True, recursive=True))
        return len(infos) <= MOST_FILES and sum(info.size or 0 for info in infos) <= MOST_BYTES
    used = found = 0
    for folder, _, names in os.walk(local_path(path)):
        found += 1 + len(names)
        for name in names[:MOST_FILES]:
            try:
                used += os.stat(os.path.join(folder, name)).st_blocks * 512
            except OSError:  # the later read of the file reports it
                continue
        if found > MOST_FILES or used > MOST_BYTES:
            return False
    return True
