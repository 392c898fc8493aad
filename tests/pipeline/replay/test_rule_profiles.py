"""Pulls answered by the rules of brokers 4.9.8 and 5.5.0, compared with what these brokers answered on the golden stores of 4.9.3."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.models.without_spark import Tables, answers, tables_of, unequal
from tests.runs.replaying import all_lines, differences, import_into, read_lines, run
from tests.runs.sampling import sampled, slow_proof
from tests.truth.golden5 import VERSIONS, needs_golden5, own_traces, trace, trace_names, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACES = [(version, name) for version in VERSIONS for name in trace_names(version)]


def settings_of(header: dict[str, Any]) -> list[str]:
    """The settings of the broker that answered a trace, as values of --set."""
    config = {"rulesVersion": header["version"]} | header["config"]
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items() if name != "bloom"]


@cache
def tables(store: Path, settings: tuple[str, ...]) -> Tables:
    return tables_of(store, settings)


@needs_golden5
@pytest.mark.parametrize(("version", "name"), sampled(TRACES, 24))
def test_recorded_pulls_of_later_versions_are_answered_alike(version: str, name: str, stores: Path) -> None:
    header, *lines = all_lines(trace(version, name))
    assert header["version"] == version
    rows = answers(
        tables(stores / header["store"], tuple(settings_of(header))), lines, header["config"] | {"rulesVersion": header["version"]}
    )
    assert unequal(lines, rows) == []


@needs_golden5
@pytest.mark.parametrize("name", sampled([name for name in own_traces() if name != "torn-cq-wrong-size"], 12))  # which no broker loads
def test_pulls_on_a_store_that_5_5_0_wrote_are_answered_alike(name: str) -> None:
    header, *lines = all_lines(unpacked("answers") / "traces" / f"{name}.jsonl")
    store = unpacked("stores") / "stores" / header["store"]
    rows = answers(tables(store, tuple(settings_of(header))), lines, header["config"] | {"rulesVersion": header["version"]})
    assert unequal(lines, rows) == []


@slow_proof
@needs_golden5
@pytest.mark.parametrize("name", ["preblank0-default"])  # min by search, and filters that look into messages
def test_a_replay_with_rules_writes_every_field_of_that_version(name: str, stores: Path, spark: SparkSession, tmp_path: Path) -> None:
    recorded = trace("5.5.0", name)
    header = all_lines(recorded)[0]
    lake = import_into(spark, tmp_path / "lake", stores / header["store"], options=settings_of(header))
    done = run(lake, recorded, out=str(tmp_path / "out"), compare=True)
    assert differences(read_lines(recorded), read_lines(tmp_path / "out")) == []
    assert done.comparison is not None
    assert (done.comparison.compared, done.comparison.differ) == (len(read_lines(recorded)), 0)


@slow_proof
@needs_golden5
def test_a_replay_reads_several_queue_files_where_the_settings_say_so(spark: SparkSession, tmp_path: Path) -> None:
    recorded = unpacked("answers") / "traces" / "window-travel.jsonl"
    header = all_lines(recorded)[0]
    assert header["config"]["travelCqFileNumWhenGetMessage"] > 1
    lake = import_into(spark, tmp_path / "lake", unpacked("stores") / "stores" / header["store"], options=settings_of(header))
    run(lake, recorded, out=str(tmp_path / "out"))
    assert differences(read_lines(recorded), read_lines(tmp_path / "out")) == []
