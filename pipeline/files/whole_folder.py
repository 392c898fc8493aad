"""Makes a local folder of results, which has its name only when it is complete."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pipeline.files.output_file import OutputError
from pipeline.files.store_files import is_uri, local_path

# begin of the name of a temporary folder
_TEMPORARY = ".pullsim-"


@contextmanager
def whole_folder(path: str, run_id: str) -> Iterator[str]:
    """A new folder in a temporary folder; at the end it becomes `path`, after an error it is removed. A kill leaves it where it is.

    The temporary folder is beside `path`, and the new folder is renamed at the end. If `path` is an empty folder, the temporary folder
    is in it, and the contents of the new folder are moved up at the end. So `path` may be a folder that cannot be replaced, for example
    a mounted volume or the current folder of a shell, and keeps its owner and mode.

    Args:
        path: name for a new local folder; one that exists must be empty.
        run_id: id of this run, for the name of the temporary folder.

    Raises:
        OutputError: the folder cannot be made, or `path` is not free.
    """
    if is_uri(path):
        raise OutputError(f"{path}: expected a local path, found a URI; a store is written to a local or a shared file system")
    target = os.path.realpath(local_path(path))
    exists = os.path.lexists(target)
    names = os.listdir(target) if os.path.isdir(target) else []
    if exists and (names or not os.path.isdir(target)):
        left = next((name for name in names if name.startswith(_TEMPORARY)), None)
        what = "a file" if not names else "one that is not empty" if left is None else f"{left} in it; remove that if no run is writing it"
        raise OutputError(f"{path}: expected a name for a new directory, or an empty one, found {what}")
    temporary = os.path.join(target if exists else os.path.dirname(target), f"{_TEMPORARY}{run_id}.part")
    folder = os.path.join(temporary, os.path.basename(target))
    try:
        os.makedirs(folder)
    except OSError as error:
        raise OutputError(f"{path}: expected a directory that can be made, found {error}") from error
    try:
        yield folder
        made = os.stat(folder)
        try:
            if exists:
                _move_up(folder, target, temporary)
            else:
                os.rename(folder, target)
        except OSError as error:
            raise OutputError(f"{path}: expected a name that is free, found {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if exists:
        with suppress(OSError):  # the folder is another owner's
            os.utime(target, ns=(made.st_atime_ns, made.st_mtime_ns))


def _move_up(folder: str, target: str, temporary: str) -> None:
    """Move the contents of a folder to `target`, which may have nothing else than the temporary folder."""
    if set(os.listdir(target)) - {os.path.basename(temporary)}:
        raise FileExistsError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
    for name in os.listdir(folder):
        os.rename(os.path.join(folder, name), os.path.join(target, name))
