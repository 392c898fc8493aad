"""Lakes that are damaged, or that another program made: each is refused in a sentence that names the table, by commands without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.lake.committed import LakeVersion, named_in_errors, newest_version
from pipeline.lake.data_files import parquet_file
from pipeline.lake.lake_errors import LakeError
from pipeline.main import run
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_schema
from store_format.errors import StoreError
from tests.makers.plain_lakes import NOON, add_rows

BROKER = {"brokerName": "b", "mappedFileSizeCommitLog": 1024, "mappedFileSizeConsumeQueue": 600, "maxPhyOffset": 0}
EXPLAIN = ("--group", "g", "--topic", "t", "--queue", "0", "--offset", "0")


def lake_of(root: Path, *rows: dict[str, Any]) -> str:
    """A lake with a broker, whose lake_version has given rows."""
    add_rows(root, t.BROKER, [BROKER])
    add_rows(root, t.QUEUE, [{"brokerName": "b", "topic": "t", "queueId": 0, "minOffset": 0, "maxOffset": 0}])
    found = {"version": 1, "runId": "run", "what": "import", "brokerName": "b", "tables": [("broker", 0), ("queue", 0)]}
    found |= {"tablesVersion": t.TABLES_VERSION, "committedAt": NOON}
    add_rows(root, t.LAKE_VERSION, [found | row for row in rows])
    return str(root)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"tables": None}, "expected the versions of the tables, found NULL"),
        ({"tables": [("queue", None)]}, "expected a version of table queue from 0 to 9223372036854775807, found None"),
        ({"tables": [("queue", -1)]}, "expected a version of table queue from 0 to 9223372036854775807, found -1"),
        ({"version": None}, "expected versions from 0 to 9223372036854775807, found None"),
        ({"version": -1}, "expected versions from 0 to 9223372036854775807, found -1"),
        *(
            ({"tables": [("queue", 0), (name, 0)]}, f"expected names of tables, of the letters A-Z a-z 0-9 _, found {name!r}")
            for name in ("", ".", "..", "/", "/other", "../other", "a/b", "a\0b", "queue\n", "a\x1b")
        ),
    ],
)
@pytest.mark.parametrize("command", ["sql", "explain", "vacuum"])
def test_a_damaged_version_of_a_lake_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, row: dict[str, Any], says: str
) -> None:
    asked = {"sql": ("--engine", "duckdb", "SELECT count(*) FROM queue"), "explain": EXPLAIN, "vacuum": ()}[command]
    lake = lake_of(tmp_path / "lake", row)
    assert run([command, "--lake", lake, *asked]) == 2
    err = capsys.readouterr().err
    assert f"{lake}/lake_version: {says}; restore the file" in err
    assert err.count("\n") == 1


def test_a_version_without_a_number_is_passed_over(tmp_path: Path) -> None:
    root = lake_of(tmp_path / "lake", {"version": None, "tables": None}, {"version": 1}, {"version": None, "tables": None})
    assert newest_version(root, 0) == LakeVersion(1, {"broker": 0, "queue": 0})


@pytest.mark.parametrize("name", ["99999999999999999999.json", "²" * 20 + ".json"])
def test_other_files_in_the_log_of_a_lake_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    lake = lake_of(tmp_path / "lake", {})
    (Path(lake) / "lake_version" / "_delta_log" / name).write_text("{}")
    assert run(["sql", "--engine", "duckdb", "--lake", lake, "SELECT count(*) AS n FROM queue", "--format", "json"]) == 0
    assert capsys.readouterr().out == '{"n": 1}\n'


def not_utf8(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("brokerName")
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    return table.set_column(place, table.schema.field(place), text)


def of_lists(table: pa.Table) -> pa.Table:
    return pa.table({"brokerName": [["b"]]})


def without_figures(table: pa.Table) -> pa.Table:
    return pa.table({"brokerName": ["b"]})


@pytest.mark.parametrize(
    ("table", "change", "says"),
    [
        (t.BROKER, not_utf8, "found a damaged file (Column 0: In chunk 0: Invalid: Invalid UTF8 sequence"),
        (t.BROKER, of_lists, "Unsupported cast from list<"),
        (t.QUEUE, of_lists, "Unsupported cast from list<"),
        (t.BROKER, without_figures, "expected maxPhyOffset, mappedFileSizeConsumeQueue, mappedFileSizeCommitLog of broker 'b', found NULL"),
    ],
)
def test_a_table_with_other_values_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: t.Table, change: Any, says: str
) -> None:
    path = tmp_path / "lake" / table.name
    write_deltalake(path, change(pa.Table.from_pylist([{name: BROKER.get(name) for name in table.names}], arrow_schema(table))))
    assert DeltaTable(path).version() == 0
    others = {t.BROKER: [BROKER], t.QUEUE: [{"brokerName": "b", "topic": "t", "queueId": 0, "minOffset": 0, "maxOffset": 0}]}
    for other in others.keys() - {table}:
        add_rows(tmp_path / "lake", other, others[other])
    row = {"version": 1, "tables": [(one.name, 0) for one in others], "tablesVersion": t.TABLES_VERSION, "committedAt": NOON}
    add_rows(tmp_path / "lake", t.LAKE_VERSION, [row])
    assert run(["explain", "--lake", str(tmp_path / "lake"), *EXPLAIN]) == 2
    err = capsys.readouterr().err
    assert f"{path}: " in err
    assert says in err
    assert err.rstrip().endswith("restore the file from a copy of the lake, or import the store into a new --lake")


@pytest.mark.parametrize("error", [pa.ArrowNotImplementedError("x"), ValueError("x"), TypeError("x"), OverflowError("x")])
def test_errors_of_reading_name_the_table_and_the_file(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(LakeError, match=r"queue: cannot read version 3 of the Delta table: x; restore"), named_in_errors("queue", 3):
        raise error
    (tmp_path / "part").write_bytes(b"")
    with pytest.raises(StoreError, match=r"part: expected a Parquet file of the table, found x"), parquet_file(str(tmp_path / "part")):
        raise error


def test_errors_that_say_what_to_do_stay_as_they_are(tmp_path: Path) -> None:
    """LakeError is a ValueError, too."""
    (tmp_path / "part").write_bytes(b"")
    with pytest.raises(LakeError, match=r"^what to do"), named_in_errors("queue", 3):
        raise LakeError("what to do")
    with pytest.raises(LakeError, match=r"^what to do"), parquet_file(str(tmp_path / "part")):
        raise LakeError("what to do")
