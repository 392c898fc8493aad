"""Imports that die: by an exception that nothing catches after a chosen table, or by a kill of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.importing import import_store as import_module
from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema import tables as t
from tests.makers.lakes import contents, import_as, rows
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PULLSIM = ("-m", "pipeline.main")
# what the lake holds before runs import broker b
FORMER: dict[str, tuple[str, ...]] = {"the first import": (), "a replacement": ("b",), "one of two brokers": ("b", "x")}


class Killed(BaseException):
    """An exception in place of a kill: nothing catches it."""


def die_after(monkeypatch: pytest.MonkeyPatch, table: t.Table | None) -> None:
    """Make runs write their tables one by one, and die after this table, or right before the commit."""
    written = LakeWriter.replace_broker

    def replace_broker(self: LakeWriter, now: t.Table, *rest: Any) -> None:
        written(self, now, *rest)
        if now is table:
            raise Killed

    def commit(self: LakeWriter, *rest: Any) -> int:
        raise Killed

    monkeypatch.setattr(import_module, "_TABLES_AT_ONCE", 1)
    monkeypatch.setattr(LakeWriter, "replace_broker", replace_broker)
    monkeypatch.setattr(LakeWriter, "commit", commit)


def check_dying_runs(
    spark: SparkSession,
    one: Path,
    other: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    former: tuple[str, ...],
    deadly: tuple[t.Table | None, ...],
) -> None:
    """Check a lake whose brokers `former` hold store `one`: runs that import `other` as b die one after the other, then one succeeds."""
    lake, alone = folder / "lake", folder / "alone"
    for broker in former:
        import_as(spark, lake, one, broker, by_spark=True)
    before = Lake(spark, str(lake)).at
    contents_before = contents(lake, before.tables)
    for number, table in enumerate(deadly):
        with monkeypatch.context() as dying:
            die_after(dying, table)
            with pytest.raises(Killed):
                import_as(spark, lake, other, layout="clustered" if former == ("b",) else None, run_id=f"dead {number}", by_spark=True)
        assert Lake(spark, str(lake)).at == before
        assert contents(lake, before.tables) == contents_before

    import_as(spark, lake, other, run_id="next", by_spark=True)
    # a clustered table stays clustered, even if the run that clustered it died
    import_as(spark, alone, other, layout=rows(spark, lake, t.BROKER, "brokerName = 'b'")[0]["layout"], by_spark=True)
    after, expected = Lake(spark, str(lake)).at, Lake(spark, str(alone)).at
    assert after.version == before.version + 1
    assert contents(lake, after.tables, "b") == contents(alone, expected.tables)
    assert contents(lake, after.tables, "x") == {name: [] for name in after.tables} | contents(lake, before.tables, "x")
    assert contents(lake, before.tables) == contents_before
    log = sorted(map(repr, rows(spark, lake, t.COMMIT_LOG, "brokerName = 'b'")))
    assert log == sorted(map(repr, rows(spark, alone, t.COMMIT_LOG)))


def commits_made(*lakes: Path) -> int:
    """The number of commits to the tables of some lakes."""
    return len([path for lake in lakes for path in lake.glob("*/_delta_log/*.json") if path.stem.isdigit()])


@contextmanager
def doomed(command: list[str], told: Path, program: Sequence[str] = PULLSIM) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of pullsim as a process, and kill it with its JVM at the end of the block; `told` gets its stderr."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    with told.open("wb") as err:
        run = subprocess.Popen(
            [sys.executable, *program, *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def kill_import(store: Path, lake: Path, *, commits: int, by_spark: bool) -> None:
    """Start an import as a process, and kill it after `commits` commits to tables; without `by_spark` the driver may import."""
    until, told = commits_made(lake) + commits, lake.parent / "killed.err"
    call = ["import", str(store), "--lake", str(lake), "--broker-name", "b", *(["--master", "local[1]"] if by_spark else [])]
    with doomed(call, told) as run:
        while commits_made(lake) < until:
            assert run.poll() is None, f"the import ended before it could be killed: {told.read_text()}"
            time.sleep(0.02 if by_spark else 0.001)
