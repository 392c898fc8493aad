"""Unpacks the tar archives of the package and of the project."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Unpack members of an archive (all by default) into a folder; file times are kept.

    Python before 3.11.4, for example on Debian 12, does not have the argument `filter` and the filters.
    """
    # set as an attribute: Python without filters ignores it, but would refuse the argument
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder, members)  # noqa: S202 - filtered by the line above if there are filters
