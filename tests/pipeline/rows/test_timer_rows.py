"""Which files of a store are read as timerlog, and the times of slots by the timer's precision."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.rows.timer_rows import log_files, slot_rows
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


DUE = 1_795_579_538_000
LOG = "00000000000104857600"
HISTORY = (DUE // 200 - 9, 0, 52, 2, 0)  # a slot whose units were deleted


@pytest.mark.parametrize(
    ("slots", "given", "times"),
    [
        ([HISTORY, (DUE // 200, int(LOG) + 52, int(LOG) + 52, 1, 0)], None, [DUE - 9 * 200, DUE]),
        ([(DUE // 1000, int(LOG), int(LOG), 1, 0)], None, [DUE]),
        # a timer of 250 ms has steps of 200 ms
        ([(DUE // 200, int(LOG), int(LOG), 1, 0)], 250, [DUE]),
        # nothing tells: the default
        ([(7, 0, 0, 1, 0), (9, int(LOG) + 104, int(LOG) + 104, 1, 0), (11, int(LOG) + 53, int(LOG), 1, 0)], None, [7000, 9000, 11_000]),
    ],
)
def test_units_tell_how_long_the_steps_of_the_timer_are(
    tmp_path: Path, slots: list[tuple[int, ...]], given: int | None, times: list[int]
) -> None:
    # TimerLog.append: size, prevPos, magic, currWriteTime, delayedTime, offsetPy, sizePy, hashCode, reserved
    unit = struct.pack(">iqiqiqiiq", 52, -1, 1, DUE - 5000, 5000, 777, 99, -3, 0)
    store = folder(tmp_path)
    (tmp_path / "timerlog" / LOG).write_bytes(unit * 2 + bytes(52))
    (tmp_path / "timerwheel").write_bytes(b"".join(struct.pack(">qqqii", *slot) for slot in slots))
    [wheel] = [entry for entry in store.folder() if entry.name == "timerwheel"]
    rows = [row for batch in slot_rows(store, "b", wheel, log_files(store), given) for row in batch.to_pylist()]
    assert [row["timeMs"] for row in rows] == times
    assert [row["firstPos"] for row in rows] == [slot[1] for slot in slots]
