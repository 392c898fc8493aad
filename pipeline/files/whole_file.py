"""A local file of results that appears whole or not at all, written by this process alone."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when all is written; OSError where it cannot."""
    temporary = os.path.join(os.path.dirname(path), f".pullsim-{uuid.uuid4().hex}")
    file = open(temporary, "xb")  # noqa: SIM115 - its mode is that of the umask, unlike that of tempfile's
    try:
        with file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
