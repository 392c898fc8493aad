"""`pullsim capture` of a small file: this process fills the tables as tasks of Spark do, without Java."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.capture import small_capture
from pipeline.capture.capture_job import Captured, broker_of, run_capture
from pipeline.capture.small_capture import read_small_capture
from pipeline.lake.lake import Lake
from pipeline.schema import capture_tables as ct
from store_format.errors import StoreError
from tests.makers.lakes import file_rows, live_files
from tests.runs.replaying import NOON
from tests.runs.sampling import slow_proof
from tests.truth.captured import unpack
from tests.truth.golden import needs_golden
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = PROJECT / "examples" / "traffic.pcap"
TABLES = (ct.PULL_REQUEST, ct.OFFSET_HISTORY, ct.SUBSCRIPTION, ct.BAD_REQUEST)


def by_driver(lake: Path | str, file: Path | str) -> Captured | str:
    """The result of a capture by the driver, or the reason why Spark has to read the file."""
    told: list[str] = []
    done = read_small_capture(str(lake), None, str(file), run_id="small", now=lambda: NOON, progress=lambda _: None, tell=told.append)
    assert (done is None) == told[-1].startswith("Spark reads: ")
    return told[-1].removeprefix("Spark reads: ") if done is None else done


def by_spark(spark: SparkSession, lake: Path, file: Path) -> Captured:
    return run_capture(broker_of(Lake(spark, str(lake)), None), str(file), run_id="run", now=lambda: NOON, progress=lambda _: None)


def rows_of(lake: Path, name: str) -> list[str]:
    live = live_files(lake / name, Lake(None, str(lake)).at.tables[name])
    return sorted(repr(sorted(row.items())) for add in live.values() for row in file_rows(lake / name, add))


def assert_both_read(spark: SparkSession, folder: Path, file: Path) -> None:
    found, wanted = folder / "found", folder / "wanted"
    assert by_driver(found, file) == by_spark(spark, wanted, file)
    for table in TABLES:
        assert rows_of(found, table.name) == rows_of(wanted, table.name), table.name
    assert rows_of(found, ct.PULL_REQUEST.name)


def test_the_tables_are_those_that_tasks_of_spark_fill(spark: SparkSession, tmp_path: Path) -> None:
    assert_both_read(spark, tmp_path, EXAMPLE)


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", ["json", "rocketmq"])
def test_the_tables_of_a_minute_of_real_clients_are_those_that_tasks_of_spark_fill(spark: SparkSession, tmp_path: Path, name: str) -> None:
    assert_both_read(spark, tmp_path, unpack(name, tmp_path) / "traffic.pcap")


def test_another_file_is_added_and_the_same_one_is_left_to_spark(tmp_path: Path) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other.pcap"
    other.write_bytes(EXAMPLE.read_bytes() + bytes(16 + 60))  # a packet more, which is none of a broker
    first, second = by_driver(lake, EXAMPLE), by_driver(lake, other)
    assert isinstance(first, Captured)
    assert isinstance(second, Captured)
    assert (first.lake_version, second.lake_version, second.pulls) == (1, 2, first.pulls)
    before = rows_of(lake, ct.PULL_REQUEST.name)
    assert len(before) == first.pulls + second.pulls
    assert by_driver(lake, EXAMPLE) == "the table pull_request may have rows of the same file"
    assert (rows_of(lake, ct.PULL_REQUEST.name), Lake(None, str(lake)).at.version) == (before, 2)


def test_what_is_large_or_not_local_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    assert by_driver("hdfs://nobody/lake", EXAMPLE) == "the capture and the lake must be local, or on S3"
    assert by_driver(lake, "hdfs://nobody/traffic.pcap") == "the capture and the lake must be local, or on S3"
    assert "needs Spark" in str(by_driver(tmp_path / "50%", EXAMPLE))
    monkeypatch.setattr(small_capture, "_MOST_BYTES", 1 << 10)
    assert by_driver(lake, EXAMPLE) == "the capture has more than 0 MiB"
    assert not lake.exists()


def test_a_file_that_is_no_capture_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    lake, garbage = tmp_path / "lake", tmp_path / "garbage"
    by_driver(lake, EXAMPLE)
    before = shutil.copytree(lake, tmp_path / "before")
    garbage.write_bytes(b"garbage" * 100)
    with pytest.raises(StoreError, match="garbage"):
        by_driver(lake, garbage)
    assert sorted(path.relative_to(lake) for path in lake.rglob("*")) == sorted(path.relative_to(before) for path in before.rglob("*"))
