"""Imports that die anywhere: after each table, and as processes killed at random moments, first imports and replacements; runs at once."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.lake import Lake, LakeError, LakeVersion
from pipeline.schema import tables as t
from tests.makers.lakes import contents, import_as, tiny_store
from tests.runs.dying_runs import FORMER, check_dying_runs, kill_import

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# an import beside another broker makes ten commits, the last ones within milliseconds; tables without rows get none
COMMITS_MAX = 6
QUEUES = [("TopicA", 0), ("TopicB", 0), ("%RETRY%g", 3)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("one") / "store", QUEUES)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("other") / "store", QUEUES[1:], without_queue=[b"", b"gone"])


@pytest.mark.parametrize("former", FORMER)
@pytest.mark.parametrize("table", [*t.IMPORTED, None], ids=lambda table: table.name if table else "no commit")
def test_a_run_that_dies_after_a_table_is_invisible_and_the_next_one_succeeds(
    spark: SparkSession, one: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: str, table: t.Table | None
) -> None:
    check_dying_runs(spark, one, other, tmp_path, monkeypatch, FORMER[former], (table,))


@pytest.mark.parametrize("seed", range(12))
def test_a_process_killed_at_a_random_moment_leaves_reads_as_they_were(
    spark: SparkSession, one: Path, other: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lake, alone = tmp_path / "lake", tmp_path / "alone"
    for broker in FORMER[chance.choice(list(FORMER))]:
        import_as(spark, lake, one, broker)
    before = Lake(spark, str(lake)).at
    contents_before = contents(lake, before.tables)
    for _ in range(chance.randint(1, 3)):
        kill_import(other, lake, commits=chance.randint(0, COMMITS_MAX), by_spark=chance.random() < 0.5)
        assert Lake(spark, str(lake)).at == before
        assert contents(lake, before.tables) == contents_before
    import_as(spark, lake, other)
    import_as(spark, alone, other)
    after = Lake(spark, str(lake)).at.tables
    assert contents(lake, after, "b") == contents(alone, Lake(spark, str(alone)).at.tables)
    assert contents(lake, after, "x") == {name: [] for name in after} | contents(lake, before.tables, "x")


@pytest.mark.parametrize("seed", range(6))
def test_of_runs_at_the_same_time_one_at_most_is_visible(spark: SparkSession, one: Path, other: Path, tmp_path: Path, seed: int) -> None:
    former = FORMER[random.Random(seed).choice(list(FORMER))]
    lake = tmp_path / "lake"
    for broker in former:
        import_as(spark, lake, one, broker)
    before = Lake(spark, str(lake)).at
    outcomes: dict[str, LakeError | None] = {}

    def run(broker: str) -> None:
        try:
            import_as(spark, lake, other, broker, run_id=f"run {broker}")
            outcomes[broker] = None
        except LakeError as error:
            outcomes[broker] = error

    threads = [threading.Thread(target=run, args=(broker,)) for broker in ("b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.keys() == {"b", "c"}
    done = [broker for broker, error in outcomes.items() if error is None]
    import_as(spark, tmp_path / "alone", other, "b")
    check_visible(spark, tmp_path, before, former, done)
    import_as(spark, lake, other, "last")
    check_visible(spark, tmp_path, before, former, [*done, "last"])


def check_visible(spark: SparkSession, folder: Path, before: LakeVersion, former: tuple[str, ...], done: list[str]) -> None:
    """Check that the lake holds the rows of the brokers `former`, and those of the runs that say they are done."""
    lake, alone = Lake(spark, str(folder / "lake")), Lake(spark, str(folder / "alone"))
    assert lake.at.version == before.version + len(done)
    expected = contents(folder / "alone", alone.at.tables)
    for broker in done:
        found = contents(folder / "lake", lake.at.tables, broker)
        assert {name: [row.replace(repr(broker), repr("b")) for row in found[name]] for name in found} == expected
    for broker in {*lake.brokers(), *former} - set(done):
        assert contents(folder / "lake", lake.at.tables, broker) == contents(folder / "lake", before.tables, broker)
