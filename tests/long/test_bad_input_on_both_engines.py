"""Wrong questions and damaged lakes end with exit code 2 and a message that names the place, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.schema.tables import TABLES_VERSION
from tests.makers.plain_lakes import plain_lake
from tests.runs.in_session import pullsim_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = {"brokerName": "b", "consumerGroup": "g", "topic": "t", "queueId": 0, "consumerOffset": 1}
COUNT = ("sql", "SELECT count(consumerOffset) AS n FROM consumer_offset")


def whole(root: Path) -> Path:
    return plain_lake(root, {"consumer_offset": [ROW]})


def without_a_file(root: Path) -> Path:
    [file] = (whole(root) / "consumer_offset").glob("*.parquet")
    file.unlink()
    return root


def with_a_damaged_file(root: Path) -> Path:
    [file] = (whole(root) / "consumer_offset").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-4] + b"PARX")
    return root


def with_a_damaged_log(root: Path) -> Path:
    (whole(root) / "consumer_offset" / "_delta_log" / f"{0:020d}.json").write_text("{")
    return root


def of_another_version(root: Path) -> Path:
    return plain_lake(root, {"consumer_offset": [ROW]}, tables_version=TABLES_VERSION + 1)


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
@pytest.mark.parametrize(
    ("make", "words", "told"),
    [
        (without_a_file, COUNT, "found none: it was deleted or moved; restore the file"),
        (with_a_damaged_file, COUNT, "table consumer_offset, file"),
        (with_a_damaged_log, COUNT, "consumer_offset"),
        (of_another_version, COUNT, f"expected tables of version {TABLES_VERSION}, found {TABLES_VERSION + 1}"),
        (of_another_version, ("lag",), f"expected tables of version {TABLES_VERSION}, found {TABLES_VERSION + 1}"),
        (lambda root: root, ("lag",), "expected a lake, found no table lake_version"),
        (whole, ("sql", "SELECT * FROM consumer_ofset"), "the nearest known: consumer_offset"),
        (whole, ("sql", "SELECT topic,\n consumerGrup AS x FROM consumer_offset"), "line 2"),
        (whole, ("sql", "SELECT topic,\n consumerGrup AS x FROM consumer_offset"), "`consumerGroup`"),
        (whole, ("sql", "SELECT 1 / (queueId - queueId) AS x FROM consumer_offset"), "ivision by zero"),
        (whole, ("sql", "SELECT topic FROM consumer_offset WHERE (queueId = 0"), "ine 1"),
        (whole, ("lag", "--group", "G"), "the lake knows no consumer group 'G'; the nearest known: 'g'"),
        (whole, ("lag", "--topic", "tt"), "the lake knows no topic 'tt'; the nearest known: 't'"),
        (whole, ("report", "--out", "page.html", "--broker", "c"), "expected broker 'c', found"),
    ],
)
def test_bad_input_ends_with_2_and_names_the_place(
    make: Callable[[Path], Path],
    words: tuple[str, ...],
    told: str,
    engine: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pullsim = pullsim_in(spark, monkeypatch, capsys)
    code, out, err = pullsim(*words, "--lake", make(tmp_path / "lake"), "--engine", engine)
    assert (code, out) == (2, ""), err
    assert told in err
