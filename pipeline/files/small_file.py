"""Reads a whole local file that a person wrote, for example settings."""

from __future__ import annotations

import errno
from pathlib import Path

# most bytes of the file: what people write is shorter, and a path given by mistake may be a device without end
SMALL_BYTES_MAX = 16 << 20


def small_file(path: str | Path, most: int = SMALL_BYTES_MAX) -> bytes:
    """The bytes of a file, of which there may be at most `most`.

    Raises:
        OSError: the file cannot be read or is longer; `strerror` says why.
    """
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"longer than {most:,} bytes", str(path))
    return content
