"""The files of a Delta table that none of its versions of the last hours needs: files of rows, and entries of its log.

Rule: a file of rows can go once the commit that removed it is older than some hours, or the file itself is, where no commit names it. An
entry of the log can go once a checkpoint after it is older.
deltalake tells the files of rows; nothing is committed. VACUUM commits what it did, and no version of the lake would name that version.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.fs as pafs
from deltalake import DeltaTable

from pipeline.delta.delta_log import log_folder
from pipeline.files.store_files import filesystem_of

_ENTRY = re.compile(r"(\d{20})\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
# requests at once: S3 deletes a file in a round trip
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class UnneededFile:
    """A file that can go: its path below the table's folder, and its bytes."""

    path: str
    size: int


def unneeded_rows(table: DeltaTable, path: str, hours: int) -> list[UnneededFile]:
    """The files of rows that no version of the last `hours` needs; `table` is the table in the folder `path` at its newest version."""
    names = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    filesystem, inside = filesystem_of(path)
    found = filesystem.get_file_info([f"{inside}/{name}" for name in names])
    return [UnneededFile(name, info.size) for name, info in zip(names, found, strict=True) if info.is_file]


def unneeded_log(path: str, version: int, before: dt.datetime) -> list[UnneededFile]:
    """The entries of a table's log that lie before the newest checkpoint that was made until `before`, of a version up to `version`."""
    filesystem, folder = log_folder(path)
    found = filesystem.get_file_info(pafs.FileSelector(folder))
    named = ((info, _CHECKPOINT.fullmatch(info.base_name)) for info in found if info.mtime <= before)
    begin = max((number for _, name in named if name and (number := int(name[1])) <= version), default=0)
    entries = ((info, _ENTRY.match(info.base_name)) for info in found if info.is_file)
    return [UnneededFile(f"_delta_log/{info.base_name}", info.size) for info, name in entries if name and int(name[1]) < begin]


def delete_files(path: str, files: Iterable[UnneededFile]) -> None:
    """Delete files of the table in the folder `path`, and the checksum files that Hadoop has put beside them.

    Raises:
        OSError: a file cannot be deleted; the error names it.
    """
    filesystem, inside = filesystem_of(path)

    def delete(file: UnneededFile) -> None:
        with suppress(FileNotFoundError):  # another process deletes it too
            filesystem.delete_file(f"{inside}/{file.path}")
        if isinstance(filesystem, pafs.LocalFileSystem):
            folder, _, name = file.path.rpartition("/")
            with suppress(FileNotFoundError):
                filesystem.delete_file(f"{inside}/{folder}/.{name}.crc")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(delete, files):
            pass


def size_of(files: Sequence[UnneededFile]) -> int:
    """The bytes of all files."""
    return sum(file.size for file in files)
