"""The newest version of a table, and of a lake: found in the log, without reading older commits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.delta.delta_log import delta_version, oldest_version, restored_version, run_of
from pipeline.delta.small_table import greatest_row

SCHEMA = pa.schema([("version", pa.int64()), ("said", pa.string())])


def commits(log: Path, *versions: int) -> None:
    log.mkdir(parents=True, exist_ok=True)
    for version in versions:
        (log / f"{version:020d}.json").write_text("{}\n", "utf-8")


def test_commits_after_the_last_one_seen_are_found(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    assert delta_version(str(tmp_path)) is None
    commits(log, 0, 1)
    assert delta_version(str(tmp_path)) == 1
    commits(log, 2, 3, 4)
    assert delta_version(str(tmp_path)) == 4
    (log / f"{0:020d}.json").unlink()
    assert delta_version(str(tmp_path)) == 4


@pytest.mark.parametrize(
    "name",
    [
        "99999999999999999999.json",
        f"{2**63:020d}.json",
        "²" * 20 + ".json",
        "٣" * 20 + ".json",
        f"{1:020d}.{9:020d}.compacted.json",
        f"{9:020d}.json.tmp",
    ],
)
def test_other_files_in_the_log_are_no_commits(tmp_path: Path, name: str) -> None:
    commits(tmp_path / "_delta_log", 0, 1)
    (tmp_path / "_delta_log" / name).write_text("{}")
    assert delta_version(str(tmp_path)) == 1
    assert oldest_version(str(tmp_path)) == 0


@pytest.mark.parametrize(
    "info",
    [
        *(5, None, [1], {"userMetadata": 5}, {"userMetadata": "[" * 100_000}, {"userMetadata": "{"}),
        *({"operation": "RESTORE", "operationParameters": one} for one in (None, 5, {"version": None, "properties": 5})),
    ],
)
def test_commits_of_other_programs_name_no_run_and_no_version(tmp_path: Path, info: object) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n", "utf-8")
    assert run_of(str(tmp_path), 0) is None
    assert restored_version(str(tmp_path), 0) is None


@pytest.mark.parametrize("newest", [0, 2, 4, 7])
def test_a_new_table_at_the_path_of_another_one_has_its_own_versions(tmp_path: Path, newest: int) -> None:
    commits(tmp_path / "_delta_log", 0, 1, 2, 3, 4)
    assert delta_version(str(tmp_path)) == 4
    shutil.rmtree(tmp_path / "_delta_log")
    assert delta_version(str(tmp_path)) is None
    commits(tmp_path / "_delta_log", *range(newest + 1))
    assert delta_version(str(tmp_path)) == newest


@pytest.mark.parametrize("indexed", ["32", "0"])
def test_the_greatest_row_is_found_with_and_without_statistics(tmp_path: Path, indexed: str) -> None:
    for numbers in ([3, 1], [2, 9, 4], [8]):
        rows = pa.table({"version": numbers, "said": [f"v{number}" for number in numbers]}, SCHEMA)
        write_deltalake(tmp_path, rows, mode="append", configuration={"delta.dataSkippingNumIndexedCols": indexed})
    found = greatest_row(str(tmp_path), 2, SCHEMA, "version")
    assert found is not None
    assert found.to_pylist() == [{"version": 9, "said": "v9"}]
    earlier = greatest_row(str(tmp_path), 0, SCHEMA, "version")
    assert earlier is not None
    assert earlier["said"].to_pylist() == ["v3"]


def test_only_the_file_of_the_greatest_row_is_read(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_deltalake(tmp_path, pa.table({"version": [number], "said": ["v"]}, SCHEMA), mode="append")
    older = DeltaTable(tmp_path, version=1).file_uris()
    for file in older:
        Path(file.removeprefix("file://")).unlink()
    found = greatest_row(str(tmp_path), 2, SCHEMA, "version")
    assert found is not None
    assert found["version"].to_pylist() == [3]


def test_an_empty_table_has_no_greatest_row(tmp_path: Path) -> None:
    write_deltalake(tmp_path, SCHEMA.empty_table())
    found = greatest_row(str(tmp_path), 0, SCHEMA, "version")
    assert found is not None
    assert found.num_rows == 0
