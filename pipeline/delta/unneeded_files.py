"""Find the files of a Delta table that no needed version uses: data files, and entries of its log.

Rule: a data file can be deleted when the commit that removed it is some hours old; if no commit names the file, when the file itself is. A
log entry can be deleted when a checkpoint of a later version is some hours old.
deltalake lists the data files; nothing is committed. VACUUM would commit a version of the table that no version of the lake names.
Surprise: a run that died may have removed a file that the lake still needs. So callers name the needed versions, and their files are kept
whatever the times say.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.fs as pafs
from deltalake import DeltaTable

from pipeline.delta.delta_log import log_folder, oldest_version
from pipeline.files.store_files import filesystem_of

_ENTRY = re.compile(r"(\d{20})\.")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
# files that are deleted at the same time: on S3, each takes a round trip
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class UnneededFile:
    """A file that can go: its path below the table's folder, and its bytes."""

    path: str
    size: int


def unneeded_rows(table: DeltaTable, path: str, hours: int, needed: Iterable[int]) -> list[UnneededFile]:
    """The Parquet files that neither a version of the last hours nor a needed version has.

    Args:
        table: the table at its newest version.
        path: its folder.
        hours: hours for which files are kept.
        needed: versions of the table, which may be missing in its log.
    """
    oldest = oldest_version(path)
    keep = sorted({max(version, oldest) for version in needed})
    names = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=keep)
    filesystem, inside = filesystem_of(path)
    ours = [name for name in names if name.endswith(".parquet") and is_below(filesystem, inside, name)]
    found = filesystem.get_file_info([f"{inside}/{name}" for name in ours])
    return [UnneededFile(name, info.size) for name, info in zip(ours, found, strict=True) if info.is_file]


def is_below(filesystem: pafs.FileSystem, folder: str, name: str) -> bool:
    """Whether a file or folder lies in the folder itself: deltalake follows links that lead elsewhere."""
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return True
    return os.path.realpath(f"{folder}/{name}") == f"{os.path.realpath(folder)}/{name}"


def unneeded_log(path: str, version: int, before: dt.datetime) -> list[UnneededFile]:
    """The log entries of a table, by version, that are older than a checkpoint.

    The checkpoint is the newest one that was written by the time `before` and whose version is at most `version`.
    """
    filesystem, folder = log_folder(path)
    found = filesystem.get_file_info(pafs.FileSelector(folder))
    named = ((info, _CHECKPOINT.fullmatch(info.base_name)) for info in found if info.mtime <= before)
    begin = max((number for _, name in named if name and (number := int(name[1])) <= version), default=0)
    entries = ((info, _ENTRY.match(info.base_name)) for info in found if info.is_file)
    old = sorted((info.base_name, info.size) for info, name in entries if name and int(name[1]) < begin)
    return [UnneededFile(f"_delta_log/{name}", size) for name, size in old]


def delete_files(path: str, files: Iterable[UnneededFile], *, in_order: bool = False) -> None:
    """Delete files of the table in the folder `path`, and the checksum files that Hadoop has put beside local ones.

    `in_order` deletes local files one after the other, so that the versions left have no gap if the process is killed: `delta_version`
    looks for one commit after the other.

    Raises:
        OSError: a file cannot be deleted; the error names it.
    """
    filesystem, inside = filesystem_of(path)
    is_local = isinstance(filesystem, pafs.LocalFileSystem)

    def delete(file: UnneededFile) -> None:
        folder, _, name = f"{inside}/{file.path}".rpartition("/")
        for one in (name, f".{name}.crc") if is_local else (name,):
            with suppress(FileNotFoundError):  # another process deletes it too; most have no checksum file
                filesystem.delete_file(f"{folder}/{one}")

    if in_order and is_local:
        for file in files:
            delete(file)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(delete, files):
            pass
