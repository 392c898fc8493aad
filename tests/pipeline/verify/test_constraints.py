"""The constraints of the tables: a row that breaks one is found and named, and no real table has such a row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame

from pipeline.lake.lake import Lake
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.schema.table import never_null
from pipeline.verify.verify_constraints import broken_constraints, counted
from tests.makers.captured_runs import ok
from tests.makers.lakes import import_as
from tests.runs.in_session import pullsim_in
from tests.runs.replaying import NOON
from tests.runs.sampling import sampled, slow_proof
from tests.truth.captured import CAPTURES, unpack
from tests.truth.golden import names, needs_golden, recovery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
ANY: Row = {"BIGINT": 1, "INT": 1, "STRING": "x", "BINARY": bytes(8), "BOOLEAN": True, "TIMESTAMP": NOON}
# what a row needs beside values of its columns' types so that it breaks nothing
SOUND: Mapping[str, Row] = {
    "consume_queue_segment": {"entries": bytes(20)},
    "commit_log_segment": {"firstPhysicOffset": 0},
    "broker": {"layout": "partitioned", "brokerRole": "SLAVE"},
    "replay_run": {"at": "snapshot"},
    "pull_response": {"status": "FOUND", "entries": [(0, 0, 100)]},
    "pull_request": {"registration": "NO_TOPIC", "recordedBodySha256": "0" * 64},
    "offset_history": {"origin": "PULL_MESSAGE"},
    "subscription": {"event": "CLOSED"},
    "follow_event": {"event": "CLEANED"},
    "lag_history": {"lag": 0},
    "simulated_lag": {"lag": 0},
    "consumption": {"result": "LOST"},
    "simulated_transactions": {"committed": 0, "rolledBack": 0},
    "broker_history": {"kind": "message"},
    "pending_messages": {"file": "timermetrics"},
}
# for each check what a sound row has to have so that it breaks this one alone
BREAKING: Mapping[str, list[Row]] = {
    "commit_log": [{"physicOffset": -1}, {"storeSize": 0}, {"recordCrc32": -1}],
    "consume_queue": [{"queueOffset": -1}],
    "consume_queue_segment": [
        {"fileFirstOffset": 2},
        {"entryCount": 0, "storeTimestamps": b""},
        {"entries": bytes(19)},
        {"storeTimestamps": bytes(16)},
    ],
    "consume_queue_properties": [{"firstQueueOffset": -1}, {"lengths": b""}],
    "odd_entry": [{"recordCrc32": -1}],
    "commit_log_segment": [
        {"firstPhysicOffset": 1},
        {"recordCount": 0, "ends": b"", "storeTimestamps": b""},
        {"ends": bytes(7)},
        {"storeTimestamps": bytes(9)},
    ],
    "queue": [{"minOffset": 2}],
    "store_file": [{"length": -1, "wrote": None}, {"wrote": 2}, {"fromOffset": -1}],
    "store_file_range": [{"position": -1}, {"bytes": bytes((1 << 20) + 1)}],
    "index_entry": [{"entry": 0}],
    "broker": [{"minPhyOffset": 2}, {"layout": "x"}, {"brokerRole": "MASTER"}],
    "lake_version": [{"version": 0}],
    "replay_run": [{"at": "now"}],
    "pull_response": [{"status": "OFFSET_TOO_SMALL"}, {"messageCount": 2}, {"wokenMillis": 0}],
    "pull_request": [{"registration": "x"}, {"recordedBodyLength": -1}, {"recordedBodySha256": "0" * 63}],
    "offset_history": [{"origin": "x"}],
    "subscription": [{"event": "x"}],
    "bad_request": [{"position": -1}],
    "follow_event": [{"event": "x"}],
    "lag_history": [{"minOffset": 2}, {"lag": 1}],
    "simulation_run": [{"caughtUpMillis": 2}, {"lastLag": 2}, {"pullsFound": 2}, {"duplicates": 2}],
    "consumption": [{"pulledMicros": 2}, {"endedMicros": 0}, {"result": "x"}],
    "simulated_lag": [{"lag": 1}, {"waitedMillis": -1}],
    "simulated_transactions": [{"sent": 3}, {"commitMillis50": 2}, {"commitMillisMax": 0}],
    "scenario_step": [{"step": 0}],
    "broker_history": [{"step": -1}, {"kind": "x"}],
    "pending_messages": [{"file": "x"}],
    "timer_log": [{"position": -1}, {"magic": 16}],
}
ALL_TABLES = (*t.TABLES.values(), t.LAKE_VERSION)


def sound(table: t.Table) -> dict[str, Any]:
    """A row that breaks nothing; columns of arrays, maps and structs are empty or NULL where nothing is said of them."""
    empty: dict[str, Any] = {"ARRAY": [], "MAP": {}, "STRUCT": None}
    values = {one.name: ANY[one.type] if one.type in ANY else empty[one.type.partition("<")[0]] for one in table.columns}
    return values | SOUND.get(table.name, {})


def test_every_check_has_a_row_that_breaks_it() -> None:
    assert {table.name: len(table.checks) for table in ALL_TABLES if table.checks} == {name: len(rows) for name, rows in BREAKING.items()}


def test_a_row_that_breaks_a_constraint_is_counted_under_it_alone(spark: SparkSession) -> None:
    told = []
    some = sampled(ALL_TABLES, 8)
    for table in some:
        whole = sound(table)
        broken = [whole | {one.name: None} for one in table.columns if not one.nullable]
        broken += [whole | row for row in BREAKING.get(table.name, [])]
        rows = spark.createDataFrame([tuple(row[name] for name in table.names) for row in (whole, *broken)], table.schema).coalesce(1)
        told.append(counted(rows, table))
    found = [(row["path"], row["constraint"], row["rows"]) for row in reduce(DataFrame.unionAll, told).collect()]
    assert found == [(table.name, one, 1) for table in some for one in table.constraints]


def test_a_key_is_never_null() -> None:
    for table in ALL_TABLES:
        assert {never_null(name) for name in table.key} <= set(table.constraints), table.name


def test_a_column_that_a_table_of_an_earlier_release_lacks_breaks_nothing(spark: SparkSession) -> None:
    rows = spark.createDataFrame([tuple(sound(t.STORE_FILE).values())], t.STORE_FILE.schema).drop("path", "wrote")
    assert counted(rows, t.STORE_FILE).collect() == []


def told(spark: SparkSession, lake: Path, broker: str) -> list[tuple[str, ...]]:
    return [tuple(row) for row in broken_constraints(OpenedBroker(Lake(spark, str(lake)), broker)).collect()]


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", sorted({name.partition("--")[0] for name in names("recover", "*.json")}))
def test_no_imported_store_breaks_one(spark: SparkSession, stores: Path, tmp_path: Path, name: str) -> None:
    import_as(spark, tmp_path / "lake", stores / name, "found", as_found=True)
    assert told(spark, tmp_path / "lake", "found") == []
    if recovery(name).get("start") == "ok":  # not so where the load refuses the store
        import_as(spark, tmp_path / "lake", stores / name, "started")
        assert told(spark, tmp_path / "lake", "started") == []


@slow_proof
@needs_golden
@pytest.mark.parametrize("name", CAPTURES)
def test_no_capture_and_no_replay_of_it_breaks_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pullsim, folder, lake = pullsim_in(spark, monkeypatch, capsys), unpack(name, tmp_path, store=True), tmp_path / "lake"
    of_lake = ("--lake", lake, "--broker", "b")
    ok(pullsim("import", folder / "store", "--lake", lake, "--broker-name", "b", "--properties", folder / "broker.conf"))
    ok(pullsim("capture", folder / "traffic.pcap", *of_lake))
    for at in ("recorded-max", "request-time"):
        ok(pullsim("replay", *of_lake, "--at", at))
    ok(pullsim("lag", *of_lake, "--record"))
    assert told(spark, lake, "b") == []
