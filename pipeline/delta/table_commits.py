"""Commit to the log of a Delta table from the driver, in milliseconds, without a Spark job.

This module does not repeat a commit that fails. If another run committed first, CommitConflictError is raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from pipeline.delta.delta_log import delta_version
from pipeline.delta.small_table import opened_table, place_of
from pipeline.delta.table_files import check_files
from pipeline.schema.arrow_types import commented_schema
from pipeline.schema.table import Table

# log entries of old commits are kept, because versions of the lake refer to them; a checkpoint that fails must not fail its commit
_NO_HOOK = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_CHECKPOINT_EVERY = 50
_EXISTS = "already exists"
Found = Literal["replaced", "kept", "refused"]
_MODES: dict[Found, Literal["overwrite", "ignore", "error"]] = {"replaced": "overwrite", "kept": "ignore", "refused": "error"}


class CommitConflictError(Exception):
    """Another run committed to the table first."""


def create_table(
    table: Table,
    path: str,
    properties: Mapping[str, str],
    files: Sequence[Mapping[str, Any]],
    user_metadata: str,
    *,
    found: Found = "replaced",
    partitioned_by: Sequence[str] = (),
) -> None:
    """Create the table with the rows of some files.

    Args:
        table: columns and comments of the table.
        path: folder of the table, local or on S3.
        properties: properties of the table.
        files: rows of `table_files.FILES_DDL`.
        user_metadata: the commit's userMetadata.
        found: what happens to an existing table: "replaced" replaces it, "kept" leaves it unchanged and ignores `files`, "refused" raises.
        partitioned_by: partition columns.

    Raises:
        CommitConflictError: another run committed at the same time, or the table exists and `found` is "refused".
        OutputError: the driver does not see a file that a task wrote.
    """
    schema = Schema.from_arrow(commented_schema(table))
    uri, options = place_of(path)
    try:
        create_table_with_add_actions(
            uri,
            schema,
            _added(path, files),
            mode=_MODES[found],
            partition_by=[*partitioned_by],
            description=table.comment,
            configuration={**properties},
            storage_options=options,
            commit_properties=_commit_properties(user_metadata),
            post_commithook_properties=_NO_HOOK,
        )
    except CommitFailedError as error:
        raise CommitConflictError(path) from error
    except DeltaError as error:
        if _EXISTS in str(error):
            raise CommitConflictError(path) from error
        raise


def takes_files(table: Table, path: str) -> bool:
    """Whether files can be added to the Delta table at `path`: it has exactly the columns of `table`, and no features beyond plain ones."""
    found = opened_table(path)
    return found is not None and [field.name for field in found.schema().fields] == table.names


def append_files(
    path: str, version: int, files: Sequence[Mapping[str, Any]], user_metadata: str, transaction: tuple[str, int] | None = None
) -> None:
    """Add files to a Delta table in the commit directly after `version`.

    Args:
        path: folder of the table, local or on S3.
        version: newest Delta version of the table.
        files: rows of `table_files.FILES_DDL`.
        user_metadata: the commit's userMetadata.
        transaction: name and version of a Delta application; the version must be greater than the application's last one.

    Raises:
        CommitConflictError: another run has committed to the table, or has committed this version of the application.
        OutputError: the driver does not see a file that a task wrote.
    """
    table = _opened_at(path, version)
    if transaction is not None and (table.transaction_version(transaction[0]) or 0) >= transaction[1]:
        raise CommitConflictError(path)
    transactions = () if transaction is None else (Transaction(*transaction),)
    _commit(table, path, files, "append", _commit_properties(user_metadata, transactions))


def replace_files(path: str, version: int, files: Sequence[Mapping[str, Any]], user_metadata: str) -> None:
    """Replace all files of a Delta table, in the commit directly after `version`.

    Arguments and errors as in `append_files`.
    """
    table = _opened_at(path, version)
    _commit(table, path, files, "overwrite", _commit_properties(user_metadata))


def _opened_at(path: str, version: int) -> DeltaTable:
    """The table, if its newest version is `version`; otherwise raises CommitConflictError."""
    table = opened_table(path)
    if table is None or table.version() != version:
        raise CommitConflictError(path)
    return table


def _commit(
    table: DeltaTable, path: str, files: Sequence[Mapping[str, Any]], mode: Literal["append", "overwrite"], properties: CommitProperties
) -> None:
    version = table.version()
    try:
        table.create_write_transaction(
            [*_added(path, files)],
            mode=mode,
            schema=table.schema(),
            commit_properties=properties,
            post_commithook_properties=_NO_HOOK,
        )
    except CommitFailedError as error:
        if delta_version(path) == version:  # no other run's commit is the cause
            raise
        raise CommitConflictError(path) from error
    if (version + 1) % _CHECKPOINT_EVERY == 0:
        with suppress(DeltaError, OSError):  # readers read the commits instead
            table.create_checkpoint()


def delete_rows(path: str, version: int, where: str, user_metadata: str) -> None:
    """Delete the rows of a small Delta table for which the SQL condition `where` is true, in the commit directly after `version`.

    If no row is deleted, nothing is committed. Surprise: files that deltalake rewrites have texts of Arrow's type string_view, which
    pyarrow cannot filter; DuckDB and Spark read them.

    Raises:
        CommitConflictError: another run has committed to the table.
    """
    table = _opened_at(path, version)
    try:
        table.delete(where, commit_properties=_commit_properties(user_metadata), post_commithook_properties=_NO_HOOK)
    except CommitFailedError as error:
        if delta_version(path) == version:  # no other run's commit is the cause
            raise
        raise CommitConflictError(path) from error


def join_files(path: str, user_metadata: str) -> None:
    """Join the small files of a Delta table into few, in a commit that changes no row.

    Raises:
        CommitConflictError: another run commits.
    """
    table = opened_table(path)
    if table is None:
        return
    try:
        table.optimize.compact(commit_properties=_commit_properties(user_metadata), post_commithook_properties=_NO_HOOK)
    except CommitFailedError as error:
        raise CommitConflictError(path) from error


def _commit_properties(text: str, transactions: Sequence[Transaction] = ()) -> CommitProperties:
    return CommitProperties(custom_metadata={"userMetadata": text}, max_commit_retries=0, app_transactions=list(transactions))


def _added(path: str, files: Sequence[Mapping[str, Any]]) -> list[AddAction]:
    check_files(path, files)
    return [AddAction(one["path"], one["size"], json.loads(one["partition"]), one["modificationTime"], True, one["stats"]) for one in files]
