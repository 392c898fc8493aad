"""Unpacks the tar archives of the package and of the project."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Unpack members of an archive, all by default, into a folder; file times are kept.

    Python before 3.11.4, as Debian 12 has it, knows neither the argument `filter` nor its filters.
    """
    # not the argument, which those versions refuse; the attribute they do not read
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder, members)  # noqa: S202 - filtered by the line above where there are filters
