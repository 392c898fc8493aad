"""Writes a local file of results, which appears only when it is complete; one process writes it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write to, which is renamed to `path` at the end; raises OSError where it cannot be written."""
    temporary = os.path.join(os.path.dirname(path), f".pullsim-{uuid.uuid4().hex}")
    file = open(temporary, "xb")  # noqa: SIM115 - its mode is that of the umask, unlike that of tempfile's
    try:
        with file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
