"""Reads a local file that a person wrote, such as settings, as a whole."""

from __future__ import annotations

import errno
from pathlib import Path

# most bytes of the file: what people write is shorter, and a file that was named by mistake may be a device without end
SMALL_BYTES_MAX = 16 << 20


def small_file(path: str | Path) -> bytes:
    """The bytes of a file of at most SMALL_BYTES_MAX.

    Raises:
        OSError: the file cannot be read or is longer; `strerror` says why.
    """
    with open(path, "rb") as file:
        content = file.read(SMALL_BYTES_MAX + 1)
    if len(content) > SMALL_BYTES_MAX:
        raise OSError(errno.EFBIG, f"longer than {SMALL_BYTES_MAX:,} bytes", str(path))
    return content
