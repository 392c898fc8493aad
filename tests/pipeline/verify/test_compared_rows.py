"""Rows of commit_log compared with the log files of a store, by the function that the tasks of `verify --lake` call."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.files.store_files import StoreFiles
from pipeline.store.open_log import OpenLog
from pipeline.verify.verify_lake import _compare_records
from store_format.files.mapped_files import offset_to_file_name
from store_format.record.message import Message
from tests.makers.log_rows import FILE, replaced, rows_of, two_files
from tests.makers.records import messages

FOUND = st.lists(messages(text_properties=True), min_size=2, max_size=6)
STARTS = (7 * FILE, 8 * FILE)


def stored(folder: Path, contents: tuple[bytes, ...]) -> list[str]:
    """Paths of the files of a log."""
    paths = [f"commitlog/{offset_to_file_name(start)}" for start in STARTS]
    (folder / "commitlog").mkdir(exist_ok=True)
    for path, content in zip(paths, contents, strict=True):
        (folder / path).write_bytes(content.ljust(FILE, b"\0"))
    return paths


def compared(folder: Path, content: bytes, start: int) -> list[tuple[str, int, str | None]]:
    return list(_compare_records(OpenLog(StoreFiles(str(folder))), FILE, rows_of(content, start)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FOUND, st.data())
def test_bytes_are_counted_and_the_first_other_one_is_named(tmp_path: Path, found: list[Message], data: st.DataObject) -> None:
    contents = two_files(found)
    paths = stored(tmp_path, contents)
    for path, content, start in zip(paths, contents, STARTS, strict=True):
        used = len(content) - content.count(0)
        assert compared(tmp_path, content, start) == [(path, used, None)]
        at = data.draw(st.integers(0, len(content) - 1))
        altered = bytearray(content)
        altered[at] ^= 1
        (tmp_path / path).write_bytes(bytes(altered).ljust(FILE, b"\0"))
        assert compared(tmp_path, content, start) == [(path, used, f"byte {at}: other bytes than the rows give")]


@given(FOUND)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
def test_a_file_that_is_short_or_not_there(tmp_path: Path, found: list[Message]) -> None:
    contents = two_files(found)
    path = stored(tmp_path, contents)[0]
    (tmp_path / path).write_bytes(contents[0][:-1])
    told = f"rows for bytes past the file's {len(contents[0]) - 1:,}"
    assert compared(tmp_path, contents[0], STARTS[0]) == [(path, 0, told)]
    (tmp_path / path).unlink()
    assert compared(tmp_path, contents[0], STARTS[0]) == [(path, 0, "rows for a file that the store does not have")]


@pytest.mark.parametrize(("name", "value"), [("physicOffset", -FILE), ("physicOffset", 2**62 - 1), ("storeSize", 3), ("recordCrc32", 1)])
@given(FOUND)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5)
def test_a_row_of_which_no_record_can_be_made(tmp_path: Path, name: str, value: int, found: list[Message]) -> None:
    contents = two_files(found)
    stored(tmp_path, contents)
    rows = replaced(rows_of(contents[0], STARTS[0]), name, value)
    ((path, used, text),) = _compare_records(OpenLog(StoreFiles(str(tmp_path))), FILE, rows)
    assert (path, used) == ("commitlog", 0)
    assert text is not None
    assert "found a row with" in text
