"""Which files of a store are read as timerlog."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.rows.timer_rows import log_files
from store_format.errors import CorruptStoreError


def folder(root: Path, *names: str) -> StoreFiles:
    (root / "timerlog").mkdir()
    for name in names:
        (root / "timerlog" / name).write_bytes(bytes(52))
    return StoreFiles(str(root))


def test_only_names_of_20_digits_are_files_of_timerlog(tmp_path: Path) -> None:
    good = "00000000000104857600"
    store = folder(tmp_path, good, "9" * 31, "104857600", "\u0660" * 20, "copy of " + good)
    assert [entry.name for entry in log_files(store)] == [good]


@pytest.mark.parametrize("name", ["9" * 20, str(2**63 - 52).zfill(20)])
def test_a_file_past_the_greatest_offset_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorruptStoreError, match=f"timerlog/{name}"):
        log_files(folder(tmp_path, name))


def test_a_store_without_timerlog_has_none(tmp_path: Path) -> None:
    assert log_files(StoreFiles(str(tmp_path))) == []
