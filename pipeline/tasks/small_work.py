"""How much one process does without a session of Spark; work that is larger goes to tasks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pyarrow.fs as pafs

from pipeline.files.store_files import filesystem_of, is_uri, local_path
from pipeline.tasks.work import NoSessionError

Done = TypeVar("Done")

# bytes on disk, and files and folders, that one process reads before the tasks of a session on a few cores would have read them
MOST_BYTES = 2 << 30
MOST_FILES = 1000


def done_here(work: Callable[[], Done], does: str, tell: Callable[[str], None]) -> Done | None:
    """The result of `work` without Spark; None where it raises NoSessionError, so that Spark has to do it, and `tell` gets the reason.

    Args:
        work: does the work; raises NoSessionError before anything of it is visible.
        does: what is done, a verb.
        tell: called with a line.
    """
    try:
        return work()
    except NoSessionError as error:
        tell(f"Spark {does}: {error}")
        return None


def require_small(reason: str | None, does: str, tell: Callable[[str], None]) -> None:
    """Go on without Spark, and say so, unless there is a reason against it.

    Raises:
        NoSessionError: there is one.
    """
    if reason is not None:
        raise NoSessionError(reason)
    tell(f"the driver {does}, without Java")


def is_small_store(path: str) -> bool:
    """Whether one process is done with the store in a folder, local or at a URI, before the tasks of a session on a few cores.

    The bytes that the store has on disk, and its files and folders, are few then. Local log files have holes where nothing was written.
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
            except OSError:  # whoever reads the file names it
                continue
        if found > MOST_FILES or used > MOST_BYTES:
            return False
    return True
