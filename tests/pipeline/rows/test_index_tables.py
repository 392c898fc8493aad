"""Tables index_entry and checkpoint have the content of the real broker's files, which is read here with struct alone."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.rows.index_tables import IndexPiece, IndexRows, index_rows, pieces_of_index
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import DriverTasks
from store_format.index.index_file import IndexSizes
from tests.makers.lakes import import_as, rows, tiny_store
from tests.runs.replaying import lake_of
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.truth.golden import meta_of, needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

CLEAN = ("basic", "cleaned", "holes", "preblank0", "preblank1", "small", "window")


def expected_entries(store: Path, slots: int) -> list[tuple[Any, ...]]:
    """file, entry, keyHash, slot, phyOffset, timeDiff, storeTimestamp, previous."""
    found = []
    for path in sorted((store / "index").iterdir()):
        raw = path.read_bytes()
        (begin,) = struct.unpack_from(">q", raw, 0)
        (count,) = struct.unpack_from(">i", raw, 36)
        for entry in range(1, count):
            key_hash, offset, diff, previous = struct.unpack_from(">iqii", raw, 40 + 4 * slots + 20 * entry)
            found.append((path.name, entry, key_hash, key_hash % slots, offset, diff, begin + 1000 * diff, previous))
    return found


def entries_of(lake: Lake) -> list[tuple[Any, ...]]:
    names = [column.name for column in t.INDEX_ENTRY.columns if column.name != "brokerName"]
    assert names == ["file", "entry", "keyHash", "slot", "phyOffset", "timeDiff", "storeTimestamp", "previous"]
    return [tuple(row) for row in lake.table(t.INDEX_ENTRY).orderBy("file", "entry").select(*names).collect()]


def assert_index_and_checkpoint(lake: Lake, store: Path) -> None:
    entries = expected_entries(store, int(meta_of(store)["config"].get("maxHashSlotNum", 5_000_000)))
    assert entries
    assert entries_of(lake) == entries
    told = lake.table(t.CHECKPOINT).collect()
    # 4.9.3 has the three times only
    assert [tuple(row)[1:] for row in told] == [(*struct.unpack_from(">qqq", (store / "checkpoint").read_bytes()), None, None, None)]


def test_the_tables_hold_what_the_files_of_the_small_store_hold(
    spark: SparkSession, small_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_index_and_checkpoint(lake_of(spark, small_store, tmp_path_factory), small_store)


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", sampled(CLEAN, 1))
def test_the_tables_hold_what_the_files_of_a_golden_store_hold(
    spark: SparkSession, stores: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    assert_index_and_checkpoint(lake_of(spark, stores / name, tmp_path_factory), stores / name)


def rows_of(store: Path) -> IndexRows:
    return index_rows(DriverTasks(), StoreFiles(str(store)), "b", BrokerSettings({}))


def test_a_store_without_index_and_checkpoint_has_no_rows(tmp_path: Path) -> None:
    found = rows_of(tiny_store(tmp_path / "store", [("T", 0)]))
    assert found.notes == ()
    assert (found.entries.rows(t.INDEX_ENTRY).rows(), found.checkpoint.to_pylist()) == ([], [])


def test_chains_that_agree_with_no_sizes_give_a_note_and_no_rows(spark: SparkSession, small_store: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    path = sorted((store / "index").iterdir())[0]
    raw = bytearray(path.read_bytes())
    raw[-200] ^= 1
    path.write_bytes(raw)
    found = rows_of(store)
    assert [note for note in found.notes if note.startswith("index_entry has no rows")]
    assert found.entries.rows(t.INDEX_ENTRY).rows() == []
    if ALL:
        done = import_as(spark, tmp_path / "lake", store)
        assert [note for note in done.notes if note.startswith("index_entry has no rows")]
        assert rows(spark, tmp_path / "lake", t.INDEX_ENTRY) == []


SIZES = IndexSizes(hash_slot_num=2, index_num=5)
HEAD = struct.pack(">qqqqi", 1000, 2000, 0, 50, 1)


@pytest.mark.parametrize(
    ("count", "length", "after"),
    [
        (3, SIZES.file_length, 3),
        (0, SIZES.file_length, None),
        (1, SIZES.file_length, None),
        (2**31 - 1, SIZES.file_length, 5),
        (-5, SIZES.file_length, None),
        (5, SIZES.file_length - 1, 4),
        (5, SIZES.file_length + 100, 5),
        (5, 50, None),
        (5, 20, None),
        (5, 0, None),
    ],
)
def test_no_more_entries_are_read_than_the_file_has(tmp_path: Path, count: int, length: int, after: int | None) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20240101000000000").write_bytes((HEAD + struct.pack(">i", count) + bytes(200))[:length])
    settings = BrokerSettings.from_sources(options=["maxHashSlotNum=2", "maxIndexNum=5"])
    _, pieces = pieces_of_index(StoreFiles(str(tmp_path)), settings)
    expected = IndexPiece(name="20240101000000000", begin_timestamp=1000, first=1, after=after or 0)
    assert pieces == ([] if after is None else [expected])
