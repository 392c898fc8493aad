"""Two runs replace tables of one lake at once: the lake's commit decides which run counts, as a whole."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest

from pipeline.delta.delta_log import is_empty
from pipeline.lake import lake_writer
from pipeline.lake.lake import Lake, LakeConflictError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema.arrow_types import arrow_schema
from pipeline.schema.tables import REPLAY_RUN, STORE_FILE, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def opened(root: Path) -> Lake:
    return Lake(cast("SparkSession", Mock()), str(root))


def rows_of(writer: LakeWriter, table: Table) -> pa.Table:
    """A row of replay_run or store_file that names the run."""
    row: dict[str, Any] = {"brokerName": writer.broker, "runId": writer.run_id, "source": "", "settings": [], "at": "snapshot"}
    row |= {"lakeVersion": 0, "startedAt": NOON, "kind": "commitlog", "name": "0", "fromOffset": 0, "length": 1, "wrote": 1, "mtimeMs": 1}
    row |= {"path": writer.run_id}
    return pa.Table.from_pylist([{name: row.get(name) for name in table.names}], arrow_schema(table))


def test_of_two_runs_that_write_tables_in_another_order_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []
    monkeypatch.setattr(lake_writer, "is_empty", lambda path: looked.pop() if looked else is_empty(path))
    one, other = (LakeWriter(opened(tmp_path), run_id=name, what="import", broker=name) for name in ("one", "other"))
    for writer, table in ((one, REPLAY_RUN), (other, STORE_FILE), (one, STORE_FILE), (other, REPLAY_RUN)):
        looked.append(True)  # each looked before the other one wrote
        writer.replace_broker(table, rows_of(writer, table))
    assert one.commit(NOON) == 1
    with pytest.raises(LakeConflictError, match="expected no other run to write to the lake since its version 0, found one"):
        other.commit(NOON)
    for table in (REPLAY_RUN, STORE_FILE):
        assert opened(tmp_path).rows(table)["brokerName"].to_pylist() == ["one"]


def test_a_run_does_not_write_again_what_another_one_has_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, first = (LakeWriter(opened(tmp_path), run_id=name, what="import", broker=name) for name in ("late", "first"))
    first.replace_broker(REPLAY_RUN, rows_of(first, REPLAY_RUN))
    first.commit(NOON)
    before = sorted((tmp_path / "replay_run").rglob("*.json"))
    monkeypatch.setattr(lake_writer, "is_empty", lambda _: True)
    with pytest.raises(LakeConflictError, match="expected no other run to write"):
        late.replace_broker(REPLAY_RUN, rows_of(late, REPLAY_RUN))
    assert sorted((tmp_path / "replay_run").rglob("*.json")) == before


def test_the_driver_replaces_rows_in_one_commit_and_pyarrow_filters_what_is_left(tmp_path: Path) -> None:
    """The files that deltalake itself writes again have texts of a type that pyarrow's filters do not take."""
    for name in ("one", "other", "third"):
        writer = LakeWriter(opened(tmp_path), run_id=name, what="import", broker=name)
        writer.replace_rows(REPLAY_RUN, rows_of(writer, REPLAY_RUN))
        writer.commit(NOON)
    before = sorted((tmp_path / "replay_run" / "_delta_log").glob("*.json"))
    writer = LakeWriter(opened(tmp_path), run_id="again", what="import", broker="other")
    writer.replace_rows(REPLAY_RUN, rows_of(writer, REPLAY_RUN))
    writer.commit(NOON)
    assert len(sorted((tmp_path / "replay_run" / "_delta_log").glob("*.json"))) == len(before) + 1
    found = opened(tmp_path).rows_with(REPLAY_RUN, {"brokerName": ["one", "other", "third"]}, ["brokerName", "runId"]).to_pylist()
    assert sorted((row["brokerName"], row["runId"]) for row in found) == [("one", "one"), ("other", "again"), ("third", "third")]


def test_rows_without_the_value_stay_when_rows_with_it_are_replaced(tmp_path: Path) -> None:
    for equal in (None, {"topic": "T"}):
        writer = LakeWriter(opened(tmp_path), run_id="one", what="import", broker="one")
        writer.replace_rows(STORE_FILE, rows_of(writer, STORE_FILE), equal)
        writer.commit(NOON)
    assert opened(tmp_path).rows(STORE_FILE)["topic"].to_pylist() == [None, None]
