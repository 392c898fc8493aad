"""Files and commits of Delta tables that tasks and the driver make without Spark's own writer."""

from __future__ import annotations

import datetime as dt
import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.delta import table_commits, table_files
from pipeline.delta.small_table import has_plain_path, small_table
from pipeline.delta.table_commits import CommitConflictError, append_files, create_table, takes_files
from pipeline.delta.table_files import FileWriter, check_files
from pipeline.files.output_file import OutputError
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.table import Column, Table
from tests.runs.sampling import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = Table(
    "made",
    "rows made for a test",
    (
        Column("number", "BIGINT", "a number", nullable=True),
        Column("name", "STRING", "a text", nullable=True),
        Column("at", "TIMESTAMP", "a time", nullable=True),
        Column("given", "MAP<STRING, STRING>", "pairs", nullable=True),
        Column("entries", "ARRAY<BIGINT>", "numbers", nullable=True),
    ),
    stats=("number", "name", "at"),
)
SCHEMA = arrow_schema(TABLE)
TIMES = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - hypothesis adds the zone
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-(2**63), 2**63 - 1),
            "name": st.none() | st.text(max_size=40),
            "at": st.none() | TIMES,
            "given": st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2).map(lambda pairs: [*pairs.items()]),
            "entries": st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        }
    ),
    max_size=30,
)


def batches(rows: list[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=size)
    return found


def written(folder: Path, rows: list[dict[str, Any]], size: int = 7, group: int = 1 << 20) -> list[dict[str, Any]]:
    writer = FileWriter("made", str(folder), SCHEMA, TABLE.stats, row_group_bytes=group)
    return [file for batch in writer.write(iter(batches(rows, size))) for file in batch.to_pylist()]


def read(path: Path, version: int) -> pa.Table:
    found = small_table(str(path), version, SCHEMA)
    assert found is not None
    return found


@given(rows=ROWS, size=st.integers(1, 12), group=st.integers(1, 2000), at_once=st.integers(1, 4000), file=st.integers(1, 4000))
@settings(max_examples=examples(60), deadline=None)
def test_files_hold_the_rows_in_order_and_their_statistics(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], size: int, group: int, at_once: int, file: int
) -> None:
    folder = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "_WRITTEN_BYTES", at_once)
        patch.setattr(table_files, "_FILE_BYTES", file)
        files = written(folder, rows, size, group)
    found = [pq.read_table(folder / one["path"], schema=SCHEMA).to_pylist() for one in files]
    assert [row for part in found for row in part] == rows
    check_files(str(folder), files)
    for one, part in zip(files, found, strict=True):
        stats = json.loads(one["stats"])
        assert one["records"] == stats["numRecords"] == len(part)
        for name in TABLE.stats:
            values = [row[name] for row in part if row[name] is not None]
            assert stats["nullCount"][name] == len(part) - len(values)
            if name == "at":
                continue
            assert stats["minValues"].get(name) == min(values, default=None)
            assert stats["maxValues"].get(name) == max(values, default=None)


@given(times=st.lists(TIMES, min_size=1, max_size=5))
@settings(max_examples=examples(40), deadline=None)
def test_bounds_of_times_are_whole_milliseconds_around_them(tmp_path_factory: pytest.TempPathFactory, times: list[dt.datetime]) -> None:
    (file,) = written(tmp_path_factory.mktemp("table"), [dict.fromkeys(SCHEMA.names) | {"at": time} for time in times])
    stats = json.loads(file["stats"])
    least, most = (dt.datetime.fromisoformat(stats[bound]["at"]) for bound in ("minValues", "maxValues"))
    assert least <= min(times) < least + dt.timedelta(milliseconds=1)
    assert most - dt.timedelta(milliseconds=1) < max(times) <= most


def test_a_table_reads_back_with_its_comments_at_every_version(tmp_path: Path) -> None:
    first, second = ([{"number": number, "name": str(number)} for number in some] for some in (range(20), range(20, 25)))
    path = str(tmp_path / "made")
    create_table(TABLE, path, {}, written(tmp_path / "made", first), "created")
    append_files(path, 0, written(tmp_path / "made", second), "appended")
    numbers = [sorted(read(Path(path), version)["number"].to_pylist()) for version in (0, 1)]
    assert numbers == [[*range(20)], [*range(25)]]
    table = deltalake.DeltaTable(path)
    assert {field.name: field.metadata["comment"] for field in table.schema().fields} == {one.name: one.comment for one in TABLE.columns}
    assert [commit["userMetadata"] for commit in table.history()] == ["appended", "created"]


def test_only_values_that_repeat_have_a_dictionary(tmp_path: Path) -> None:
    rows = [{"number": number, "name": "same", "given": [("a", "b")], "entries": [number]} for number in range(50)]
    writer = FileWriter("made", str(tmp_path), SCHEMA, (), ("number", "entries.list.element"))
    (one,) = (file for batch in writer.write(iter(batches(rows, 50))) for file in batch.to_pylist())
    group = pq.read_metadata(tmp_path / one["path"]).row_group(0)
    found = {column.path_in_schema: column.has_dictionary_page for column in map(group.column, range(group.num_columns))}
    assert found == {
        "number": False,
        "name": True,
        "at": True,
        "given.key_value.key": True,
        "given.key_value.value": True,
        "entries.list.element": False,
    }


def test_numbers_have_statistics_in_the_file_and_texts_where_the_log_has_them(tmp_path: Path) -> None:
    schema = pa.schema([("size", pa.int32()), ("place", pa.int64()), ("name", pa.string()), ("body", pa.binary())])
    batch = pa.RecordBatch.from_pylist([{"size": 3, "place": 4, "name": "x", "body": b"y"}], schema)
    (row,) = next(FileWriter("made", str(tmp_path), schema, ("place",)).write(iter([batch]))).to_pylist()
    footer = pq.read_metadata(tmp_path / row["path"]).row_group(0)
    assert [footer.column(place).is_stats_set for place in range(4)] == [True, True, False, False]
    assert footer.column(0).statistics.max == 3


def test_a_page_of_large_values_has_about_a_megabyte(tmp_path: Path) -> None:
    """A reader holds a page in memory."""
    large = [{"number": number, "name": os.urandom(50_000).hex()} for number in range(64)]
    (file,) = written(tmp_path, large, 64)
    pa.default_memory_pool().release_unused()
    before = pa.total_allocated_bytes()
    with pq.ParquetFile(tmp_path / file["path"], buffer_size=4096, pre_buffer=False) as one:
        batches = one.iter_batches(1, columns=["name"])
        assert next(batches).column(0)[0].as_py() == large[0]["name"]
        assert pa.total_allocated_bytes() - before < 4 << 20


def test_rows_are_divided_by_partition(tmp_path: Path) -> None:
    values = [("%RETRY%g", 2), ("%RETRY%g", 3), ("a|b", 3), ("a|b", -1)]
    rows = [{"name": name, "number": number, "entries": [place]} for place, (name, number) in enumerate(values) for _ in range(3)]
    writer = FileWriter("made", str(tmp_path), SCHEMA, ("at",), (), ("name", "number"))
    files = [file for batch in writer.write(iter(batches(rows, 5))) for file in batch.to_pylist()]
    assert [json.loads(file["partition"]) for file in files] == [{"name": name, "number": str(number)} for name, number in values]
    assert [file["path"].rpartition("/")[0] for file in files] == [
        "name=%25RETRY%25g/number=2",
        "name=%25RETRY%25g/number=3",
        "name=a|b/number=3",
        "name=a|b/number=-1",
    ]
    create_table(TABLE, str(tmp_path), {}, files, "created", partitioned_by=("name", "number"))
    found = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    for name, number in values:
        kept = found.to_table(filter=(pads.field("name") == name) & (pads.field("number") == number)).to_pylist()
        assert [(row["name"], row["number"], row["entries"]) for row in kept] == [
            (row["name"], row["number"], row["entries"]) for row in rows if (row["name"], row["number"]) == (name, number)
        ]


def test_columns_that_a_table_lacks_are_null(tmp_path: Path) -> None:
    fewer = Table("made", "fewer columns", TABLE.columns[:1])
    writer = FileWriter("made", str(tmp_path / "made"), arrow_schema(fewer), ())
    files = [file for batch in writer.write(iter(batches([{"number": 1}], 1))) for file in batch.to_pylist()]
    create_table(fewer, str(tmp_path / "made"), {}, files, "created")
    assert read(tmp_path / "made", 0).to_pylist() == [dict.fromkeys(SCHEMA.names) | {"number": 1}]


def test_a_commit_that_comes_second_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "made")
    create_table(TABLE, path, {}, (), "created")
    append_files(path, 0, written(tmp_path / "made", [{"number": 1}]), "first", ("run", 5))
    for version, transaction in ((0, None), (1, ("run", 5)), (1, ("run", 4))):
        with pytest.raises(CommitConflictError):
            append_files(path, version, written(tmp_path / "made", [{"number": 2}]), "second", transaction)
    append_files(path, 1, written(tmp_path / "made", [{"number": 3}]), "third", ("run", 6))
    assert sorted(read(Path(path), 2)["number"].to_pylist()) == [1, 3]


def test_creating_replaces_what_a_dead_run_left_unless_it_must_not(tmp_path: Path) -> None:
    path = str(tmp_path / "made")
    create_table(TABLE, path, {}, written(tmp_path / "made", [{"number": 1}]), "dead")
    create_table(TABLE, path, {}, (), "too late", found="kept")
    with pytest.raises(CommitConflictError):
        create_table(TABLE, path, {}, (), "too late", found="refused")
    assert read(Path(path), 0)["number"].to_pylist() == [1]
    create_table(TABLE, path, {}, written(tmp_path / "made", [{"number": 2}]), "alive")
    assert read(Path(path), 1)["number"].to_pylist() == [2]


def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path) -> None:
    (file,) = written(tmp_path / "made", [{"number": 1}])
    shorter = tmp_path / "made" / file["path"]
    shorter.write_bytes(shorter.read_bytes()[:-1])
    with pytest.raises(OutputError, match=rf"expected {file['size']} bytes .* found {file['size'] - 1} bytes"):
        check_files(str(tmp_path / "made"), [file])
    shorter.unlink()
    with pytest.raises(OutputError, match="found none; do all machines see the same folder"):
        check_files(str(tmp_path / "made"), [file])


@pytest.mark.parametrize(
    ("number", "raised", "text"),
    [(errno.ENOSPC, OSError, "No space left on device"), (errno.EIO, OutputError, "expected a file of the table that can be written")],
)
@pytest.mark.parametrize("failing", ["write_table", "close"])
def test_a_file_that_cannot_be_written_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception], text: str, failing: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pq.ParquetWriter, failing, fail)
    with pytest.raises(raised, match=text) as error:
        written(tmp_path / "made", [{"number": 1}])
    assert type(error.value) is raised
    assert [*(tmp_path / "made").iterdir()] == []


def test_an_error_of_the_rows_is_not_called_one_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches([{"number": 1}], 1)
        raise OSError(errno.EIO, "of the input")

    monkeypatch.setattr(table_files, "_WRITTEN_BYTES", 1)
    with pytest.raises(OSError, match="of the input") as error:
        [*FileWriter("made", str(tmp_path / "made"), SCHEMA, ()).write(rows())]
    assert type(error.value) is OSError
    assert [*(tmp_path / "made").iterdir()] == []


def test_a_checkpoint_that_fails_fails_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_commits, "_CHECKPOINT_EVERY", 2)
    path = str(tmp_path / "made")
    create_table(TABLE, path, {}, (), "created")
    in_the_way = tmp_path / "made" / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    in_the_way.mkdir()
    for version in range(3):
        append_files(path, version, written(tmp_path / "made", [{"number": version}]), "more")
    assert sorted(read(Path(path), 3)["number"].to_pylist()) == [0, 1, 2]


def test_a_page_with_another_bit_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "made"
    (file,) = written(path, [{"name": "aaaabbbbccccdddd"}])
    create_table(TABLE, str(path), {}, [file], "created")
    raw = (path / file["path"]).read_bytes()
    (path / file["path"]).write_bytes(raw.replace(b"bbbb", b"bbcb", 1))
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        small_table(str(path), 0, SCHEMA)


@pytest.mark.parametrize(
    "properties",
    [{"delta.columnMapping.mode": "name"}, {"delta.enableDeletionVectors": "true"}, {"delta.enableInCommitTimestamps": "true"}],
)
def test_a_table_with_features_is_left_to_spark(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    path = str(tmp_path / "made")
    told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(f"CREATE TABLE delta.`{path}` (number BIGINT, name STRING) USING delta TBLPROPERTIES ({told})")
    assert small_table(path, 0, SCHEMA) is None
    assert not takes_files(Table("made", "", TABLE.columns[:2]), path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/lake/made", True),
        ("/data/größe #1 +x/made", True),
        ("/data/50%25/made", False),
        ("/data/a\\b/made", False),
        ("/data/a\tb/made", False),
        ("hdfs://host/lake/made", False),
        ("s3://bucket/lake/made", True),
        ("s3://bucket/100%/made", False),
    ],
)
def test_spark_reads_where_deltalake_cannot(path: str, expected: bool) -> None:
    assert has_plain_path(path) is expected


def test_names_with_blanks_and_umlauts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "größe #1 +x"
    create_table(TABLE, str(path), {}, written(path, [{"number": math.comb(60, 30)}]), "created")
    assert read(Path(path), 0)["number"].to_pylist() == [math.comb(60, 30)]


def test_a_file_has_row_groups_of_the_asked_size(tmp_path: Path) -> None:
    """A reader that needs few rows then reads little more than these."""
    schema = pa.schema([("number", pa.int64()), ("run", pa.binary())])
    rows = pa.record_batch([pa.array(range(64)), pa.array([bytes(1 << 16)] * 64)], schema=schema)
    (file,) = next(FileWriter("made", str(tmp_path), schema, ("number",), row_group_bytes=1 << 18).write(iter([rows]))).to_pylist()
    footer = pq.read_metadata(tmp_path / file["path"])
    sizes = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    assert sum(sizes) == 64
    assert max(sizes) == 3  # a run and its number are a little more than a quarter of that
