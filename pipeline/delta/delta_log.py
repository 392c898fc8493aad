"""Read facts from a Delta table's log without Spark: from the list of its files, and from one line of a commit.

With Spark, DESCRIBE HISTORY reads every commit, and takes a job for each table.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any, Final

import pyarrow.fs as pafs

from pipeline.delta.damaged_files import RESTORE
from pipeline.files.object_store import is_s3
from pipeline.files.store_files import filesystem_of
from store_format.errors import StoreError, shown

# table property with the id of the run that created or altered the table; other writes have the run's id in the commit's userMetadata
RUN_PROPERTY = "pullsim.runId"
# the greatest version of a Delta table: readers hold a version in a signed number of 64 bits
MOST_VERSION: Final = 2**63 - 1
_COMMIT = re.compile(r"[0-9]{20}\.json")
# the newest version that this process has seen of a table, by the table's path
_SEEN: dict[str, int] = {}


def log_folder(path: str) -> tuple[pafs.FileSystem, str]:
    """The folder of the log of the table at `path`, and its file system."""
    filesystem, inside = filesystem_of(path)
    return filesystem, f"{inside}/_delta_log"


def is_empty(path: str) -> bool:
    """Whether the folder at `path` is missing or has no files; files that a dead run left count."""
    filesystem, inside = filesystem_of(path)
    return not filesystem.get_file_info(pafs.FileSelector(inside, allow_not_found=True))


def delta_version(path: str) -> int | None:
    """The newest version of the Delta table at `path`; None if there is no table.

    The first call lists the log's folder. Later calls look only for commits after the last one seen, because a stream calls this for each
    batch. On S3, every call lists the folder.
    """
    filesystem, folder = log_folder(path)
    newest = _last_commit_from(filesystem, folder, _SEEN[path]) if path in _SEEN else None
    if newest is None:
        newest = max(_versions(filesystem, folder), default=None)
    # on S3, a look for a missing object takes more requests than a list
    if newest is not None and not is_s3(path):
        _SEEN[path] = newest
    return newest


def _last_commit_from(filesystem: pafs.FileSystem, folder: str, version: int) -> int | None:
    """The last version of a log, found by looking for each commit from `version` on.

    None if the commit of `version` is missing, as in a new table at the same path.
    """
    newest = None
    while filesystem.get_file_info(f"{folder}/{version:020d}.json").is_file:
        newest, version = version, version + 1
    return newest


def oldest_version(path: str) -> int:
    """The oldest version whose commit the log of the table at `path` still has; 0 if there is no log.

    After a vacuum that deleted old log entries, it is the version of a checkpoint.
    """
    return min(_versions(*log_folder(path)), default=0)


def _versions(filesystem: pafs.FileSystem, folder: str) -> list[int]:
    """The versions whose commits a log has, in any order."""
    found = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    versions = [int(info.base_name[:20]) for info in found if _COMMIT.fullmatch(info.base_name)]
    return [version for version in versions if version <= MOST_VERSION]


def _commit_info(path: str, version: int) -> dict[str, Any]:
    filesystem, folder = log_folder(path)
    try:
        with filesystem.open_input_file(f"{folder}/{version:020d}.json") as commit:
            for line in io.BufferedReader(commit):
                action = _action(f"{path}/_delta_log/{version:020d}.json", line)
                if "commitInfo" in action:
                    return _members(action["commitInfo"])
    except FileNotFoundError:
        pass
    return {}


def _action(place: str, line: bytes) -> dict[str, Any]:
    try:
        action = json.loads(line)
    except (ValueError, RecursionError):
        action = None
    if not isinstance(action, dict):
        raise StoreError(place, "a commit of the table: a JSON object a line", shown(line.rstrip()), hint=RESTORE)
    return action


def run_of(path: str, version: int) -> str | None:
    """The id of the run that committed `version`; None if the commit names no run."""
    info = _commit_info(path, version)
    written = _object(info.get("userMetadata"))
    created = _object(_members(info.get("operationParameters")).get("properties"))
    run: str | None = written.get("runId", created.get(RUN_PROPERTY))
    return run


def _object(text: Any) -> dict[str, Any]:
    """The JSON object in a text; empty if there is none, as in commits of other programs."""
    try:
        return _members(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}


def _members(found: Any) -> dict[str, Any]:
    """The members of a JSON object; empty for any other value, which commits of other programs may have."""
    return found if isinstance(found, dict) else {}


def restored_version(path: str, version: int) -> int | None:
    """The former version that a RESTORE commit restored; None for any other commit."""
    info = _commit_info(path, version)
    restored = _members(info.get("operationParameters")).get("version") if info.get("operation") == "RESTORE" else None
    # a RESTORE to a time names no version
    return int(str(restored)) if str(restored).isdecimal() else None
