"""Writes a local file of results, which appears only when it is complete; one process writes it."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which is renamed to `path` at the end, or to what `path` is a link to.

    Raises:
        OSError: the file cannot be written, or a device, a pipe or a folder has its name.
    """
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "a device, a pipe or a folder", path)
    temporary = os.path.join(os.path.dirname(path), f".pullsim-{uuid.uuid4().hex}")
    file = open(temporary, "xb")  # noqa: SIM115 - its mode is that of the umask, unlike that of tempfile's
    try:
        with file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
