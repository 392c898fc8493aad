"""Import of the small store beside the tests: the rows of the tables."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from pipeline.tasks.work import DriverTasks
from tests.makers.lakes import import_as, put_together
from tests.runs.in_session import pullsim_in
from tests.runs.replaying import BROKER, lake_of
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden import needs_golden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.runs.in_session import Pullsim


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def imported(spark: SparkSession, small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(spark, small_store, tmp_path_factory, by_spark=True)


def rows(frame: DataFrame) -> list[Any]:
    return sorted(map(str, frame.collect()))


def test_every_record_of_the_log_is_a_row_that_gives_its_bytes_back(imported: Lake, small_store: Path) -> None:
    log = [row.asDict() for row in imported.table(t.COMMIT_LOG).collect()]
    ranges = [row.asDict() for row in imported.table(t.STORE_FILE_RANGE).collect()]
    assert len(log) > 500
    assert put_together(small_store, log, ranges) == {path.name: path.read_bytes() for path in (small_store / "commitlog").iterdir()}


def test_every_entry_of_a_queue_is_a_row_with_the_time_of_its_message(imported: Lake, small_store: Path) -> None:
    stamps = {row["physicOffset"]: row["storeTimestamp"] for row in imported.table(t.COMMIT_LOG).collect()}
    bounds = {(row["topic"], row["queueId"]): row for row in imported.table(t.QUEUE).collect()}
    expected = []
    for file in sorted((small_store / "consumequeue").glob("*/*/*")):
        topic, queue_id = file.parent.parent.name, int(file.parent.name)
        content = file.read_bytes()
        first = int(file.name) // 20
        end = min(bounds[topic, queue_id]["maxOffset"] - first, len(content) // 20)
        units = [struct.unpack_from(">qiq", content, 20 * i) for i in range(end)]
        for i, (offset, size, code) in enumerate(units):
            expected.append((topic, queue_id, first + i, offset, size, code, None, stamps[offset], sum(unit[1] for unit in units[:i])))
    found = [tuple(row)[1:] for row in imported.table(t.CONSUME_QUEUE).collect()]
    assert sorted(found) == sorted(expected)


@needs_golden
@pytest.mark.parametrize("given", sampled([None, "true", "false"], 1))
def test_a_store_with_a_queue_extension_has_it_enabled_unless_told_otherwise(
    given: str | None, spark: SparkSession, stores: Path, tmp_path: Path, pullsim: Pullsim
) -> None:
    more = [] if given is None else ["--set", f"enableConsumeQueueExt={given}"]
    code, out, err = pullsim("import", stores / "ext", "--lake", tmp_path / "lake", "--broker-name", BROKER, *more)
    assert code == 0, err
    assert ("enableConsumeQueueExt=true, as the store has files for it" in out) == (given is None)
    lake = Lake(spark, str(tmp_path / "lake"))
    assert OpenedBroker(lake, BROKER).properties()["enableConsumeQueueExt"] == str(given != "false")
    assert (lake.table(t.CONSUME_QUEUE).where("extUnit IS NOT NULL").count() > 0) == (given != "false")


@slow_proof
def test_a_store_that_has_lost_its_queues_gets_them_again(
    spark: SparkSession, imported: Lake, small_store: Path, tmp_path: Path, pullsim: Pullsim
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(small_store, store)
    shutil.rmtree(store / "consumequeue")
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    code, out, err = pullsim("import", store, "--lake", lake, "--broker-name", BROKER, "--set", "mappedFileSizeConsumeQueue=1000")
    assert code == 0, err
    assert "start would dispatch" in out
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    opened = Lake(spark, str(lake))
    for table in (t.CONSUME_QUEUE, t.QUEUE, t.COMMIT_LOG):
        assert rows(opened.table(table).select(*table.names)) == rows(imported.table(table).select(*table.names)), table.name


def test_the_data_source_reads_a_store_without_any_lake(spark: SparkSession, imported: Lake, small_store: Path) -> None:
    from pipeline.importing.store_source import NAME, StoreDataSource

    spark.dataSource.register(StoreDataSource)
    for table in (t.COMMIT_LOG, t.CONSUME_QUEUE):
        found = spark.read.format(NAME).option("table", table.name).option("brokerName", BROKER).load(str(small_store))
        assert rows(found.select(*table.names)) == rows(imported.table(table).select(*table.names))


@slow_proof
def test_a_used_bak_file_is_told(small_store: Path, tmp_path: Path, pullsim: Pullsim, spark: SparkSession) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    shutil.copytree(small_store, store)
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text("")
    (store / "config" / "consumerOffset.json.bak").write_text('{\n\t"offsetTable":{\n\t\t"%RETRY%g@g":{0:12,3:4\n\t\t}\n\t}\n}')
    code, out, err = pullsim("import", store, "--lake", lake)
    assert code == 0, err
    assert "read from its .bak" in out
    offsets = Lake(spark, str(lake)).table(t.CONSUMER_OFFSET).collect()
    assert {row["consumerGroup"] for row in offsets} == {"g"}
    assert sorted((row["topic"], row["queueId"], row["consumerOffset"]) for row in offsets) == [("%RETRY%g", 0, 12), ("%RETRY%g", 3, 4)]


def test_segments_of_one_age_are_placed_together() -> None:
    """The newest segment of a queue, the two before it, the four before these, and so on, whatever queue files have them."""
    from pipeline.importing.loaded_queues import LOADED_QUEUE, segments_by_age

    entries, a_file = 8192 * 9 + 5, 8192 * 4
    files = [(first, min(entries - first, a_file)) for first in range(0, entries, a_file)]
    rows = [(str(first * 20), first * 20, count * 20, entries) for first, count in files] + [("empty", entries * 20, 0, entries)]
    names = ("name", "fromOffset", "wrote", "maxOffset")
    given = [dict(zip(names, row, strict=True)) for row in (*rows, (None, None, None, 7))]
    queues = DriverTasks().of_rows(pa.Table.from_pylist(given, arrow_schema(LOADED_QUEUE)))
    found = sorted((row["fromOffset"], row["segment"], row["age"]) for row in segments_by_age(queues).rows())
    places = [(first * 20, number) for first, count in files for number in range(-(-count // 8192))]
    assert [row[:2] for row in found] == places
    assert [age for *_, age in found] == [3, 3, 3, 2, 2, 2, 2, 1, 1, 0]


def test_entries_whose_bytes_are_no_record_have_one_row_each_in_a_lake_of_any_name(
    spark: SparkSession, small_store: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    file = max((store / "consumequeue").glob("*/*/*"), key=lambda path: sum(map(bool, path.read_bytes())))
    content = bytearray(file.read_bytes())
    offset, size = struct.unpack_from(">qi", content)
    for place in (1, 3):  # both point into the first entry's message
        struct.pack_into(">qi", content, place * 20, offset + 7, size - 7)
    file.write_bytes(content)
    lake = tmp_path / "l[1]{a}"
    import_as(spark, lake, store)
    found = [(row["physicOffset"], row["size"]) for row in Lake(spark, str(lake)).table(t.ODD_ENTRY).collect()]
    assert found == [(offset + 7, size - 7)]
