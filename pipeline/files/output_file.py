"""Writes a file of results: executors write its parts, the driver joins them, and the file appears only when it is complete.

The parts are in a new folder next to the file, on the same file system, which driver and executors must share. Each executor reports the
size of its part, so the driver notices a part on another file system.
"""

from __future__ import annotations

import os
import posixpath
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from pipeline.files.object_store import is_s3
from pipeline.files.store_files import absolute_path, filesystem_of, is_uri, local_path
from pipeline.schema.arrow_types import arrow_of
from store_format.errors import UnusableInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COPY_BYTES = 1 << 20
# columns of the row that describes a part: number of the task, name in the folder of the parts, bytes
PART = "part BIGINT, name STRING, size BIGINT"


class OutputError(UnusableInputError, ValueError):
    """A file of results that cannot be written."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to be written, and the folder `parts` for its parts."""

    path: str
    parts: str


@contextmanager
def output_file(path: str) -> Iterator[OutputFile]:
    """Prepare to write the file `path`, before its contents are computed.

    Raises:
        OutputError: the file cannot be written.
    """
    target = absolute_path(path) if is_uri(path) else os.path.realpath(local_path(path))
    try:
        filesystem, inside = filesystem_of(target)
        found = filesystem.get_file_info(inside).type
        if found not in {pafs.FileType.File, pafs.FileType.NotFound}:
            raise OutputError(f"{path}: expected a file, or a name for a new one, found {_KINDS.get(found, 'something else')}")
        above = posixpath.dirname(inside)
        # S3 has no folders, only names that begin alike
        if not is_s3(path) and filesystem.get_file_info(above).type != pafs.FileType.Directory:
            raise OutputError(f"{path}: expected a folder that holds the file, found none at {above}")
        folder = f".pullsim-{uuid.uuid4().hex}.parts"
        filesystem.create_dir(f"{above}/{folder}")
    except (OSError, pa.ArrowInvalid) as error:
        raise OutputError(f"{path}: expected a file that can be written, found {error}") from error
    try:
        yield OutputFile(target, posixpath.join(posixpath.dirname(target), folder))
    finally:
        filesystem.delete_dir(f"{above}/{folder}")


_KINDS = {pafs.FileType.Directory: "a folder", pafs.FileType.Unknown: "a device or something else that is no file"}


def write_lines(lines: DataFrame, out: OutputFile) -> None:
    """Write the one text column of `lines` to `out`, in the order of its partitions.

    Raises:
        OutputError: the driver does not find a part, because executors and driver do not share the folder.
    """
    rows = lines.mapInArrow(partial(_write_lines, out.parts), PART).collect()
    join_parts([row.asDict() for row in rows], out)


def join_parts(rows: Sequence[Mapping[str, Any]], out: OutputFile) -> None:
    """Join the parts that `write_part` wrote into `out`, in the order of their tasks.

    Args:
        rows: with the columns of PART, one row a part.
        out: the file.

    Raises:
        OutputError: the driver does not find a part, because executors and driver do not share the folder.
    """
    filesystem, inside = filesystem_of(out.path)
    _, parts = filesystem_of(out.parts)
    with filesystem.open_output_stream(f"{parts}/joined") as joined:
        for row in sorted(rows, key=lambda row: int(row["part"])):
            part = f"{parts}/{row['name']}"
            info = filesystem.get_file_info(part)
            if info.type != pafs.FileType.File or info.size != row["size"]:
                raise OutputError(f"{part}: expected {row['size']} bytes of an executor, found none; all machines must see the same folder")
            with filesystem.open_input_stream(part) as content:
                while copied := content.read(_COPY_BYTES):
                    joined.write(copied)
    filesystem.move(f"{parts}/joined", inside)


def write_here(texts: Iterator[bytes], out: OutputFile) -> None:
    """Write texts of this process to `out`."""
    join_parts([write_part(out.parts, texts)], out)


def write_text(path: str, make: Callable[[], str]) -> None:
    """Write the small text that `make` returns to the file `path`; `make` is called after the check that the file can be written.

    Raises:
        OutputError: the file cannot be written.
    """
    with output_file(path) as out:
        content = make().encode()
        filesystem, inside = filesystem_of(out.path)
        _, parts = filesystem_of(out.parts)
        with filesystem.open_output_stream(f"{parts}/whole") as whole:
            whole.write(content)
        filesystem.move(f"{parts}/whole", inside)


def _write_lines(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    texts = ("".join(f"{line}\n" for line in batch.column(0).to_pylist()).encode() for batch in batches)
    yield pa.RecordBatch.from_pylist([write_part(folder, texts)], schema=arrow_of(PART))


def write_part(folder: str, texts: Iterator[bytes]) -> dict[str, Any]:
    """Write the texts of a task to a new file in the folder of the parts; gives the part's row of PART.

    A task that Spark runs again writes another file.
    """
    from pyspark import TaskContext  # noqa: PLC0415 (texts are written without Spark)

    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    name = f"{number:06d}-{uuid.uuid4().hex}"
    filesystem, inside = filesystem_of(folder)
    size = 0
    with filesystem.open_output_stream(f"{inside}/{name}") as part:
        for text in texts:
            part.write(text)
            size += len(text)
    return {"part": number, "name": name, "size": size}
