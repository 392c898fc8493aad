"""Makes a local folder of results, which has its name only when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.files.output_file import OutputError
from pipeline.files.store_files import is_uri, local_path


@contextmanager
def whole_folder(path: str, run_id: str) -> Iterator[str]:
    """A new folder in a folder beside `path`; at the end it is renamed to `path`, after an error removed. A kill leaves it where it is.

    Args:
        path: name for a new local folder; one that exists must be empty.
        run_id: id of this run, for the name of the folder beside.

    Raises:
        OutputError: the folder cannot be made, or `path` is not free.
    """
    if is_uri(path):
        raise OutputError(f"{path}: expected a local directory, found a URI; a store is written to a local or a shared file system")
    target = os.path.realpath(local_path(path))
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        what = "one that is not empty" if os.path.isdir(target) else "a file"
        raise OutputError(f"{path}: expected a name for a new directory, or an empty one, found {what}")
    beside = os.path.join(os.path.dirname(target), f".pullsim-{run_id}.part")
    folder = os.path.join(beside, os.path.basename(target))
    try:
        os.makedirs(folder)
    except OSError as error:
        raise OutputError(f"{path}: expected a directory that can be made, found {error}") from error
    try:
        yield folder
        try:
            os.rename(folder, target)
        except OSError as error:
            raise OutputError(f"{path}: expected a name that is free, found {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
