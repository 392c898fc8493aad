"""A local file of results that appears whole or not at all, written by this process alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when all is written; OSError where it cannot."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".pullsim-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
