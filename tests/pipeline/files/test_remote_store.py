"""A store that is no local folder: its reader gives the same as for local files, and fetches no more than it needs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from pipeline.files import store_files
from pipeline.files.store_files import StoreFiles
from pipeline.importing.store_source import LogFilePartition, StoreReader, read_stretch
from pipeline.rows.log_batches import Stretch
from pipeline.schema.tables import COMMIT_LOG, COMMIT_LOG_SEGMENT, CONSUME_QUEUE, STORE_FILE_RANGE, Table
from pipeline.store.load_files import FileSizes
from store_format.big_endian import Bytes
from store_format.broker_version import DEFAULT_VERSION

URI = "elsewhere://store"


@pytest.fixture
def remote_store(small_store: Path, monkeypatch: pytest.MonkeyPatch) -> StoreFiles:
    """The store beside the tests under a URI of its own."""

    def elsewhere(path: str) -> tuple[pafs.FileSystem, str]:
        return pafs.SubTreeFileSystem(str(small_store), pafs.LocalFileSystem()), path.removeprefix(URI).lstrip("/")

    monkeypatch.setattr(store_files, "filesystem_of", elsewhere)
    return StoreFiles(URI)


def sizes_of(store: StoreFiles) -> FileSizes:
    topic = store.folder("consumequeue")[0].name
    queue = store.folder("consumequeue", topic)[0].name
    return FileSizes(commit_log=store.folder("commitlog")[0].length, consume_queue=store.folder("consumequeue", topic, queue)[0].length)


def read(reader: StoreReader) -> pa.Table:
    return pa.Table.from_batches(batch for piece in reader.partitions() for batch in reader.read(piece)).combine_chunks()


@pytest.mark.parametrize("table", [COMMIT_LOG, COMMIT_LOG_SEGMENT, STORE_FILE_RANGE, CONSUME_QUEUE], ids=lambda table: table.name)
def test_its_rows_are_those_of_the_local_files(table: Table, small_store: Path, remote_store: StoreFiles) -> None:
    local = StoreFiles(str(small_store))
    found = read(StoreReader(table, remote_store, "broker", sizes_of(remote_store)))
    assert found.equals(read(StoreReader(table, local, "broker", sizes_of(local))))


def test_a_task_fetches_no_more_of_a_log_file_than_its_part(
    small_store: Path, remote_store: StoreFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = StoreReader(COMMIT_LOG, StoreFiles(str(small_store)), "broker", sizes_of(StoreFiles(str(small_store))))
    partition = reader.partitions()[0]
    assert isinstance(partition, LogFilePartition)
    file = partition.stretch.file
    whole = pa.Table.from_batches(reader.read(partition)).sort_by("physicOffset")
    cuts = [offset - file.from_offset for offset in whole["physicOffset"].to_pylist()][5::5]
    fetched: list[tuple[int, int]] = []
    part = StoreFiles.part

    def noted(store: StoreFiles, start: int, stop: int, *parts: str) -> Bytes:
        fetched.append((start, stop))
        return part(store, start, stop, *parts)

    monkeypatch.setattr(StoreFiles, "part", noted)
    monkeypatch.delattr(StoreFiles, "content")
    borders = [*pairwise((0, *cuts, file.wrote))]
    stretches = [Stretch(file, *border) for border in borders]
    wanted = frozenset({COMMIT_LOG.name})
    batches = [batch for one in stretches for _, batch in read_stretch(remote_store, "broker", one, wanted, DEFAULT_VERSION)]
    assert pa.Table.from_batches(batches).sort_by("physicOffset").equals(whole)
    assert len(cuts) > 1
    assert fetched == [*borders[:-1], (borders[-1][0], file.length)]
