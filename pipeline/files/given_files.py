"""Checks of the files that a command line names, before the start of anything that takes seconds."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from pipeline.files.store_files import StoreFiles, filesystem_of, is_uri, local_path
from store_format.errors import UnusableInputError, first_line

# schemes that pyarrow and hdfs-native open; S3 is checked before
_REMOTE = {"hdfs", "viewfs", "gs", "gcs", "abfs", "abfss"}
_ANSWER_SECONDS = 15
_OPENED = ("s3", "s3a", "hdfs", "viewfs", "gs", "gcs", "abfs", "abfss", "file")


class GivenFileError(UnusableInputError, ValueError):
    """A file that an option or argument names cannot be read or written."""


def require_scheme(option: str, uri: str) -> None:
    """Check that a library opens URIs of this scheme, and that the file system answers within seconds.

    Args:
        option: name of the option or argument, for the error.
        uri: the URI.

    Raises:
        GivenFileError: no library opens such URIs, or the file system does not answer.
        HdfsError: the name node does not answer.
    """
    scheme = _scheme(uri)
    if scheme not in _OPENED:
        raise GivenFileError(
            f"{option} {uri}: expected a local path, or one of {', '.join(f'{one}://' for one in _OPENED)}, found {scheme}://"
        )
    if scheme in _REMOTE:
        _require_answer(option, uri)


def _scheme(path: str) -> str:
    return path.partition("://")[0]


def _require_answer(option: str, uri: str) -> None:
    """Check that the file system of a URI answers; libraries try for minutes, so a daemon thread asks, which ends with the process."""
    found: list[Exception | None] = []

    def ask() -> None:
        try:
            filesystem, inside = filesystem_of(uri)
            filesystem.get_file_info(inside)
        except Exception as error:  # each file system has errors of its own
            found.append(error)
        else:
            found.append(None)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_ANSWER_SECONDS)
    error = found[0] if found else TimeoutError(f"no answer for {_ANSWER_SECONDS} s")
    if isinstance(error, UnusableInputError):
        raise error
    if error is not None:
        raise GivenFileError(
            f"{option} {uri}: expected a file system that answers, found {first_line(error)}; are endpoint and credentials right?"
        )


def require_input(option: str, path: str) -> None:
    """Check that a file to be read exists.

    Args:
        option: name of the option or argument, for the error.
        path: path or URI of the file.

    Raises:
        GivenFileError: there is no such file, or it cannot be opened.
    """
    if _scheme(path) in _REMOTE:
        _require_answer(option, path)
    try:
        filesystem, inside = filesystem_of(path)
        kind = filesystem.get_file_info(inside).type
    except (OSError, pa.ArrowInvalid) as error:
        raise GivenFileError(f"{option} {path}: expected a file that can be read, found {error}") from error
    if kind == pafs.FileType.NotFound:
        raise GivenFileError(f"{option} {path}: expected a file, found no such file; give the path of one")
    if kind == pafs.FileType.Directory:
        raise GivenFileError(f"{option} {path}: expected a file, found a folder; give the path of a file in it")
    if not is_uri(path) and not os.access(local_path(path), os.R_OK):
        raise GivenFileError(f"{option} {path}: expected a file that can be read, found one without the permission")


def require_output(option: str, path: str, *, read: str | None = None) -> None:
    """Check that a local file can be written: there is a folder for it, and no folder in its place. A URI is not checked.

    Args:
        option: name of the option, for the error.
        path: path or URI of the file.
        read: a store or a lake, in which the file may not lie.

    Raises:
        GivenFileError: the file cannot be written.
    """
    if is_uri(path):
        return
    target = os.path.realpath(local_path(path))
    if os.path.isdir(target):
        raise GivenFileError(f"{option} {path}: expected a file, or a name for a new one, found a folder")
    above = os.path.dirname(target)
    if not os.path.isdir(above):
        raise GivenFileError(f"{option} {path}: expected a folder that holds the file, found none at {above}")
    if read is not None and not is_uri(read) and Path(target).is_relative_to(os.path.realpath(local_path(read))):
        raise GivenFileError(f"{option} {path}: expected a file outside of {read}, found one in it")
    if not os.access(target if os.path.exists(target) else above, os.W_OK):
        raise GivenFileError(f"{option} {path}: expected a file that can be written, found one without the permission")


def require_store(path: str) -> None:
    """Check that a directory is a store.

    Raises:
        NotAStoreError: there is no such directory, or it has none of the folders of a store.
    """
    StoreFiles(path).check_store()
