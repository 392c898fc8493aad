"""Deletes the files that no version of a lake needs any more: of a lake to which a stream or a follower writes for days, most of them.

Rule: a table has the files that its committed version needs, and those that its versions of the last hours needed.
Surprise: VACUUM of Delta would break a lake where a run died that had replaced rows: the table's newest version has lost files that the
committed version, an older one, still needs. So such a table is left until the next run that writes it restores it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError

from pipeline.delta.damaged_files import RESTORE
from pipeline.delta.delta_log import committed_at, delta_version, restored_version
from pipeline.delta.small_table import opened_table, plain_message
from pipeline.delta.unneeded_files import delete_files, size_of, unneeded_log, unneeded_rows
from pipeline.lake.committed import lake_root, newest_version, no_lake, require_there
from pipeline.lake.lake_errors import LakeError
from pipeline.schema.tables import LAKE_VERSION

_BY_SPARK = "only Spark opens it"
_OF_A_DEAD_RUN = "a run that did not end left writes; the next run that writes the table undoes them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What was deleted of a table, or could be: `files` of rows, `log_files` (commits and checkpoints), and the bytes of both.

    `note` says why a table is left as it is, None where it is not.
    """

    table: str
    files: int = 0
    log_files: int = 0
    size: int = 0
    note: str | None = None


def vacuum(root: str, hours: int, *, now: dt.datetime, dry_run: bool) -> Iterator[Vacuumed]:
    """Delete the files that no version of the last `hours` of a lake needs, table by table.

    Args:
        root: path of the lake, local or on S3.
        hours: hours for which files are kept; a run that takes longer may miss some.
        now: time of the clock, by which deltalake counts the hours too.
        dry_run: whether to delete nothing.

    Raises:
        LakeError: there is no lake, only Spark opens it, its log is damaged, or a file cannot be deleted.
    """
    require_there(root)
    root, before = lake_root(root), now - dt.timedelta(hours=hours)
    for name, committed in sorted(_tables(root).items()):
        path = f"{root}/{name}"
        try:
            yield _vacuum_table(name, path, committed, hours, before, dry_run=dry_run)
        except (DeltaError, pa.ArrowInvalid) as error:
            raise LakeError(f"{path}: cannot read the log of the Delta table: {plain_message(error)}; {RESTORE}") from error
        except OSError as error:
            raise LakeError(f"{path}: cannot delete files: {error}; what is deleted was not needed, so start the command again") from error


def _tables(root: str) -> dict[str, int]:
    """The tables of the lake, and the Delta version of each that readers see."""
    path = f"{root}/{LAKE_VERSION.name}"
    by = delta_version(path)
    if by is None:
        raise no_lake(root)
    newest = newest_version(root, by)
    if newest is None:
        hint = "copy it to a local folder or to S3, to a path without %, backslash and control characters"
        raise LakeError(f"{root}: expected a lake that can be read without Spark, found one that only Spark opens; {hint}")
    return {**newest.tables, LAKE_VERSION.name: by}


def _vacuum_table(name: str, path: str, committed: int, hours: int, before: dt.datetime, *, dry_run: bool) -> Vacuumed:
    opened = opened_table(path, to_read=True)
    if opened is None:
        return Vacuumed(table=name, note=_BY_SPARK)
    if _has_old_writes(path, committed, opened.version(), before):
        return Vacuumed(table=name, note=_OF_A_DEAD_RUN)
    rows, log = unneeded_rows(opened, path, hours), unneeded_log(path, committed, before)
    if not dry_run:
        delete_files(path, rows)
        delete_files(path, log)
    return Vacuumed(table=name, files=len(rows), log_files=len(log), size=size_of([*rows, *log]))


def _has_old_writes(path: str, committed: int, newest: int, before: dt.datetime) -> bool:
    """Whether a table was written after its committed version, so long ago that files which this version needs would go."""
    if newest == committed or restored_version(path, newest) == committed:
        return False
    first = committed_at(path, committed + 1)
    return first is None or first <= before
