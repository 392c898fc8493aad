"""Lakes with damaged files: the message names the table, the file, what was found, and what to do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pipeline.delta.damaged_files import damaged_file
from pipeline.delta.delta_log import run_of
from pipeline.delta.small_table import small_table
from pipeline.main import judged
from store_format.errors import StoreError

FILE = "file:///lakes/commit_log/commit_log/topic=%2525RETRY%2525g/queueId=0/part-0.c000.snappy.parquet"
RESTORE = "restore the file from a copy of the lake, or import the store into a new --lake"
FOOTER = "Could not read footer. Please ensure that the file is in either ORC or Parquet format."


def failed(why: str, file: str, more: str = "") -> str:
    """The text of an error of Spark, with the stack after it."""
    return f"[FAILED_READ_FILE.{why}] Encountered error while reading file {file}. {more} SQLSTATE: KD001\n\tat a.B.c(D.scala:1)\n" * 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (failed("CANNOT_READ_FILE_FOOTER", FILE, FOOTER), "one that is no Parquet file, or was cut short"),
        (failed("FILE_NOT_EXIST", FILE, "File does not exist."), "none: it was deleted or moved"),
        (failed("NO_HINT", FILE), "one with damaged bytes"),
    ],
)
def test_a_damaged_data_file_is_named_without_a_stack(text: str, found: str) -> None:
    message = f"table commit_log, file {FILE}: expected a data file of the lake, found {found}; {RESTORE}"
    assert damaged_file(text) == message
    assert judged(RuntimeError(text)) == (2, f"error: {message}")


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted",
        failed("NO_HINT", "s3a://bucket/lake/commit_log/part-0.parquet"),
        failed("FILE_NOT_EXIST", "file:///elsewhere/data/part-0.parquet"),
        failed("UNSUPPORTED_FILE_SYSTEM", FILE),
    ],
)
def test_other_failures_stay_the_engines(text: str) -> None:
    assert damaged_file(text) is None
    assert judged(RuntimeError(text))[0] == 3


def table_of(folder: Path) -> tuple[str, Path]:
    """A Delta table with one data file, and this file."""
    write_deltalake(folder.as_uri(), pa.table({"a": list(range(1000))}))
    (file,) = folder.glob("*.parquet")
    return str(folder), file


def test_the_driver_names_the_data_file_that_it_cannot_read(tmp_path: Path) -> None:
    path, file = table_of(tmp_path / "broker")
    schema = pa.schema({"a": pa.int64()})
    whole = small_table(path, 0, schema)
    assert whole is not None
    assert whole.num_rows == 1000
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(OSError, match=f"expected Parquet in its data file {file.name}, found a damaged file"):
        small_table(path, 0, schema)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=f"expected its data file {file.name}, found none: it was deleted or moved"):
        small_table(path, 0, schema)


@pytest.mark.parametrize("place", ["../other/{}", "a/%2e%2E/../{}", "{folder}/{}", "file://{folder}/{}", "%2f{}"])
def test_a_data_file_of_another_folder_is_refused(tmp_path: Path, place: str) -> None:
    path, file = table_of(tmp_path / "broker")
    file.rename(tmp_path / file.name)
    commit = tmp_path / "broker" / "_delta_log" / f"{0:020d}.json"
    commit.write_text(commit.read_text().replace(file.name, place.format(file.name, folder=tmp_path)))
    with pytest.raises(OSError, match="expected data files in its folder, found"):
        small_table(path, 0, pa.schema({"a": pa.int64()}))


@pytest.mark.parametrize("line", [b'{"commitInfo": {"userMeta', b"\x00\xff", b"[1]", b"[" * 100_000])
def test_a_broken_commit_is_named(line: bytes, tmp_path: Path) -> None:
    path, _ = table_of(tmp_path / "broker")
    commit = tmp_path / "broker" / "_delta_log" / f"{0:020d}.json"
    commit.write_bytes(line + b"\n")
    with pytest.raises(StoreError) as refused:
        run_of(path, 0)
    said = str(refused.value)
    assert said.startswith(f"{commit}: expected a commit of the table: a JSON object a line, found ")
    assert said.endswith(RESTORE)
    assert said.isprintable()
