"""The version of a lake that readers see, and what has to be there to read it.

This module and its imports need no Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake.exceptions import DeltaError

from pipeline.delta.damaged_files import RESTORE
from pipeline.delta.delta_log import MOST_VERSION, is_empty
from pipeline.delta.small_table import greatest_row, has_plain_path, plain_message
from pipeline.files.object_store import is_s3
from pipeline.files.store_files import absolute_path, is_uri
from pipeline.lake.lake_errors import LakeError, require_among
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import LAKE_VERSION, TABLES_VERSION
from store_format.errors import UnusableInputError, shown

# deltalake takes # and ? for the end of a path, and only some libraries percent-encode other letters
_NOT_ON_S3 = re.compile(r"[^A-Za-z0-9._~/=-]")

_TABLE_NAME = re.compile(r"[A-Za-z0-9_]+")

# the columns that name a version
_VERSION = pa.schema([arrow_schema(LAKE_VERSION).field(name) for name in ("version", "tables", "tablesVersion")])


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """One commit of the lake.

    Attributes:
        version: number of the commit; 0 is the empty lake.
        tables: Delta version of each table, by the table's name.
    """

    version: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)

    def differs_in(self, other: LakeVersion, tables: Iterable[str]) -> bool:
        """Whether the version `other` of the lake has another Delta version of any of `tables`."""
        return any(other.tables.get(name) != self.tables.get(name) for name in tables)


def require_tables_version(root: str, found: int) -> None:
    """Check that the tables of the lake `root` are of version TABLES_VERSION, that of `pipeline.schema.tables`.

    Args:
        root: path of the lake.
        found: version of its tables.

    Raises:
        LakeError: the tables are of another version.
    """
    if found > TABLES_VERSION:
        hint = "a newer pullsim wrote them: use that release or a newer one"
    elif found < TABLES_VERSION:
        hint = "an older pullsim wrote them: import the stores into a new --lake, and capture and replay again what is to be kept"
    else:
        return
    raise LakeError(f"{root}: expected tables of version {TABLES_VERSION}, found {found}; {hint}")


def newest_version(root: str, by: int) -> LakeVersion | None:
    """The last committed version of a lake; None if only Spark can read the table lake_version.

    Args:
        root: path of the lake.
        by: Delta version of lake_version.

    Raises:
        LakeError: the log or a data file of lake_version cannot be read, or the lake's tables are of another version.
    """
    path = f"{root}/{LAKE_VERSION.name}"
    if not has_plain_path(path):
        return None
    with named_in_errors(path, by):
        rows = greatest_row(path, by, _VERSION, "version")
        return None if rows is None else version_of(root, rows)


@contextmanager
def named_in_errors(path: str, version: int | None = None) -> Iterator[None]:
    """Turn errors of the block into a LakeError that names the Delta table `path`.

    The block reads `version` of the table; if `version` is None, it lists all files of the table. A damaged or foreign table may have any
    types and any bytes, so errors of Python count too. An UnusableInputError stays as it is, because it says what to do.
    """
    try:
        yield
    except UnusableInputError:
        raise
    except (DeltaError, OSError, pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        doing = "look through" if version is None else f"read version {version} of"
        hint = f"see that this process may list and read its files, or {RESTORE}" if version is None else RESTORE
        raise LakeError(f"{path}: cannot {doing} the Delta table: {plain_message(error)}; {hint}") from error


def version_of(root: str, rows: pa.Table) -> LakeVersion:
    """The version of a lake from its row of lake_version; the empty lake if there is no row.

    Raises:
        LakeError: the lake's tables are of another version than TABLES_VERSION, or the row is damaged.
    """
    row = next(iter(rows.to_pylist()), None)
    if row is None:
        return LakeVersion()
    require_tables_version(root, row["tablesVersion"] or 1)
    if not _is_version(row["version"]):
        path = f"{root}/{LAKE_VERSION.name}"
        raise LakeError(f"{path}: expected versions from 0 to {MOST_VERSION}, found {shown(row['version'])}; {RESTORE}")
    return LakeVersion(row["version"], table_versions(root, row["tables"]))


def table_versions(root: str, tables: Sequence[tuple[str, int | None]] | None) -> dict[str, int]:
    """The Delta version of each table, from the value of the column `tables` of lake_version.

    A name becomes a folder of the lake, so a name that could lead to another folder is refused.

    Raises:
        LakeError: the value is damaged.
    """
    path = f"{root}/{LAKE_VERSION.name}"
    if tables is None:
        raise LakeError(f"{path}: expected the versions of the tables, found NULL; {RESTORE}")
    for name, version in tables:
        if not _TABLE_NAME.fullmatch(name):
            raise LakeError(f"{path}: expected names of tables, of the letters A-Z a-z 0-9 _, found {shown(name)}; {RESTORE}")
        if not _is_version(version):
            raise LakeError(f"{path}: expected a version of table {name} from 0 to {MOST_VERSION}, found {shown(version)}; {RESTORE}")
    return {name: version for name, version in tables if version is not None}


def _is_version(found: int | None) -> bool:
    return found is not None and 0 <= found <= MOST_VERSION


def lake_root(path: str) -> str:
    """The absolute path of a lake's folder, without a slash at its end.

    Raises:
        LakeError: the path is on S3, and has letters or segments that the libraries for S3 read differently.
    """
    root = absolute_path(path).rstrip("/")
    if is_s3(root) and not {"", ".", ".."}.isdisjoint(root.partition("://")[2].split("/")):
        raise LakeError(f"{path}: expected a lake on S3 with a path without //, /./ and /../, found one; give another path")
    if is_s3(root) and (letter := _NOT_ON_S3.search(root.partition("://")[2])):
        raise LakeError(
            f"{path}: expected a lake on S3 with a path of the letters A-Z a-z 0-9 . _ ~ / = -, found {letter.group()!r}; give another path"
        )
    return root


def require_there(root: str) -> None:
    """Check, before an engine is started, that the directory `root` has a lake.

    Raises:
        LakeError: the directory has no table lake_version.
        UnusableInputError, OSError: the directory is a URI that cannot be opened.
    """
    path = lake_root(root)
    table = f"{path}/{LAKE_VERSION.name}"
    if is_empty(table) if is_uri(path) else not os.path.isdir(table):
        raise no_lake(path)


def no_lake(root: str) -> LakeError:
    """The error about a directory without a lake."""
    hint = f"fill it with `pullsim import STORE --lake {root}`"
    return LakeError(f"{root}: expected a lake, found no table {LAKE_VERSION.name}; {hint}")


def chosen_broker(root: str, name: str | None, names: Sequence[str]) -> str:
    """The broker `name` (option --broker); the lake's only broker if `name` is None.

    Args:
        root: path of the lake.
        name: name of a broker, or None.
        names: sorted names of the lake's brokers.

    Raises:
        LakeError: there is no such broker, or no name was given and there is not exactly one broker.
    """
    if name is None and len(names) == 1:
        return names[0]
    if name is None:
        listed = ", ".join(map(repr, names)) or "none"
        raise LakeError(f"{root} holds {len(names)} brokers ({listed}); say which one with --broker")
    require_among(root, name, names)
    return name
