"""Delete the files that no version of a lake needs any more; after days of writes by a stream or a follower, these are most files.

Rule: a table keeps the files of the version that the lake had some hours ago, the files of the lake's newest version, and the files that
were removed since then.
Surprise: Delta's VACUUM would break a lake after the death of a run that had replaced rows. The table's newest version has lost files that
the lake's version, which has an older version of the table, still needs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.delta_log import delta_version
from pipeline.delta.small_table import has_plain_path, opened_table
from pipeline.delta.table_rows import rows_with
from pipeline.delta.unneeded_files import UnneededFile, delete_files, is_below, unneeded_log, unneeded_rows
from pipeline.files.object_store import is_s3, require_bucket
from pipeline.files.store_files import filesystem_of
from pipeline.lake.committed import lake_root, named_in_errors, newest_version, no_lake, require_there, table_versions
from pipeline.lake.lake_errors import LakeError
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import LAKE_VERSION, TABLES

_BY_SPARK = "only Spark opens it"
_ELSEWHERE = "its folder, or that of its log, is a link to another one: files there may belong to another table"
_NEVER_COMMITTED = "no version of the lake has it: a run that did not end left it, and the next run that writes it replaces it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """The numbers of data files and of log files (commits and checkpoints) of a table that were deleted, or could be, and their bytes.

    `note` says why the table was left as it is; None if it was not.
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
        hours: hours for which files are kept, at most a week; a run that takes longer may miss files.
        now: time of the clock; deltalake counts the hours by the clock, too.
        dry_run: whether to delete nothing.

    Raises:
        LakeError: there is no lake, only Spark opens it, a table is damaged, or a file cannot be deleted.
    """
    root, before = lake_root(root), now - dt.timedelta(hours=hours)
    newest, former = _versions(root, before)
    filesystem, inside = filesystem_of(root)
    for name in sorted({LAKE_VERSION.name, *TABLES}):
        path = f"{root}/{name}"
        if not all(is_below(filesystem, inside, one) for one in (name, f"{name}/_delta_log")):
            yield Vacuumed(table=name, note=_ELSEWHERE)
        elif name in newest:
            with named_in_errors(path):
                yield _vacuum_table(path, name, hours, before, needed=(former.get(name, newest[name]), newest[name]), dry_run=dry_run)
        elif delta_version(path) is not None:
            yield Vacuumed(table=name, note=_NEVER_COMMITTED)


def _versions(root: str, before: dt.datetime) -> tuple[dict[str, int], dict[str, int]]:
    """The Delta versions of the tables at the newest version of the lake, and at the last version that was committed by `before`.

    If the lake has no version that old, the second is its first version.
    """
    if not has_plain_path(root):
        hint = "copy it to a local folder or to S3, to a path without %, backslash and control characters"
        raise LakeError(f"{root}: expected a lake that can be opened without Spark, found one that only Spark opens; {hint}")
    if is_s3(root):
        require_bucket(root)
    require_there(root)
    path = f"{root}/{LAKE_VERSION.name}"
    with named_in_errors(path):
        by = delta_version(path)
    if by is None:
        raise no_lake(root)
    newest = newest_version(root, by)
    with named_in_errors(path, by):
        opened = opened_table(path, by)
        if newest is None or opened is None:
            raise LakeError(f"{path}: expected a table that can be read without Spark, found features of Delta that only Spark reads")
        schema = arrow_schema(LAKE_VERSION)
        rows = rows_with(opened, path, schema, ["version", "committedAt"], {})
        old = rows.filter(pc.field("committedAt") <= pa.scalar(before, schema.field("committedAt").type))
        chosen = pc.max(old["version"]) if len(old) else pc.min(rows["version"])
        former = rows_with(opened, path, schema, ["tables"], {"version": [chosen.as_py()]})
    return {**newest.tables, LAKE_VERSION.name: by}, table_versions(root, former["tables"][0].as_py())


def _vacuum_table(path: str, name: str, hours: int, before: dt.datetime, needed: tuple[int, int], *, dry_run: bool) -> Vacuumed:
    opened = opened_table(path, to_read=True)
    if opened is None:
        return Vacuumed(table=name, note=_BY_SPARK)
    rows, log = unneeded_rows(opened, path, hours, needed), unneeded_log(path, min(needed), before)
    if not dry_run:
        _delete(path, rows, log)
    return Vacuumed(table=name, files=len(rows), log_files=len(log), size=sum(file.size for file in [*rows, *log]))


def _delete(path: str, rows: list[UnneededFile], log: list[UnneededFile]) -> None:
    try:
        delete_files(path, rows)
        delete_files(path, log, in_order=True)
    except OSError as error:
        hint = "what is deleted was not needed, so start the command again when it can be"
        raise LakeError(f"{path}: cannot delete a file: {error}; {hint}") from error
