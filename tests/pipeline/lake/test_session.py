"""Settings that hold for a block, such as those with which plans are walked, and the options of the JVM that a session starts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.session import INTERPRETED_PLANS, java_options, run_worker, temporary_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")


def put(spark: SparkSession, values: list[str | None]) -> None:
    for name, value in zip(SETTINGS, values, strict=True):
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def found(spark: SparkSession) -> list[str | None]:
    return [spark.conf.get(name, None) for name in SETTINGS]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    before = found(spark)
    yield spark
    put(spark, before)


@pytest.mark.parametrize("walked", [True, False])
@pytest.mark.parametrize("former", ["true", None])
def test_settings_are_those_of_before_again(session: SparkSession, former: str | None, *, walked: bool) -> None:
    put(session, [former, "CODEGEN_ONLY"])
    before = found(session)
    with suppress(ZeroDivisionError), temporary_settings(session, INTERPRETED_PLANS if walked else {}):
        within = found(session)
        assert sorted(row["next"] for row in session.sql("SELECT id + 1 AS next FROM range(3)").collect()) == [1, 2, 3]
        raise ZeroDivisionError
    assert within == (["false", "NO_CODEGEN"] if walked else before)
    assert found(session) == before


@pytest.mark.parametrize(
    ("environment", "given"),
    [
        ({"JAVA_TOOL_OPTIONS": "-Xss2m -XX:+UseG1GC"}, ""),
        ({"JDK_JAVA_OPTIONS": "-XX:+UseZGC"}, "-Xss2m"),
        ({"_JAVA_OPTIONS": "-XX:+UseShenandoahGC"}, ""),
        ({}, "-XX:+UseSerialGC -Xss2m"),
    ],
)
def test_no_collector_of_ours_beside_one_that_is_named(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    options = java_options(given)
    assert "UseParallelGC" not in options
    assert options.endswith(given)


@pytest.mark.parametrize("given", ["", "-Xss2m", "-XX:+UseDynamicNumberOfGCThreads -XX:-UseGCOverheadLimit"])
def test_a_collector_of_ours_where_none_is_named(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert java_options(given).endswith(f"-XX:+UseParallelGC {given}".strip())


def test_a_worker_is_started_before_it_is_needed(spark: SparkSession) -> None:
    run_worker(spark)  # start_workers calls it where nobody sees an error


@pytest.mark.skipif(not shutil.which("ss"), reason="ss, which lists open ports, is missing (Debian: apt-get install iproute2)")
def test_a_local_session_listens_on_loopback_only(spark: SparkSession) -> None:
    java = f"pid={spark.sparkContext._gateway.proc.pid},"  # type: ignore[union-attr]
    ports = subprocess.run(["ss", "-ltnpH"], check=True, capture_output=True, text=True).stdout.splitlines()
    listening = [line.split()[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:") for line in ports if java in line]
    assert listening
    assert set(listening) <= {"127.0.0.1", "::1"}
