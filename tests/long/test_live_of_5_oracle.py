"""A real 5.5.0 broker runs with clients anew: timer, POP and lag that are computed from its store equal those that it reported.

PULLSIM_ORACLE_SEED is the seed of what is sent (0).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.makers.lakes import import_as
from tests.runs.in_session import pullsim_in
from tests.truth.oracle import harness, needs_oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_oracle()
SEED = os.environ.get("PULLSIM_ORACLE_SEED", "0")


@pytest.fixture(scope="module", params=["timerPrecisionMs=1000", "timerPrecisionMs=100", "timerRollWindowSlot=10"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the harness wrote.

    One broker has default settings. One has a timer with finer steps, which its files show. One stores most timer messages again and again.
    """
    out = tmp_path_factory.mktemp("live") / "live"
    command = [harness(), "live", "--seed", SEED, "--config", request.param, "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=600, env=os.environ | {"ORACLE_VERSION": "5.5.0"})
    return out


@pytest.fixture(scope="module")
def lake(spark: SparkSession, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the store that the broker left."""
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    import_as(spark, lake, place / "store", "b")
    return lake


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_the_store_tells_what_the_broker_told(
    engine: str, spark: SparkSession, place: Path, lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pullsim = pullsim_in(spark, monkeypatch, capsys)
    said = json.loads((place / "broker.json").read_text("utf-8"))

    def rows(query: str) -> list[tuple[Any, ...]]:
        code, out, err = pullsim("sql", "--lake", lake, "--engine", engine, "--format", "json", query)
        assert code == 0, err
        return [tuple(json.loads(line).values()) for line in out.splitlines()]

    counts = {topic: one["count"] for topic, one in said["timers"]["pendingByTopic"].items()}
    assert {row[0]: row[1] for row in rows("SELECT topic, pending FROM timer_topic")} == counts
    assert rows("SELECT count_if(problem IS NOT NULL) AS broken, sum(messages) AS messages FROM timer_check") == [
        (0, said["timers"]["slotsCounted"])
    ]
    held = Counter(rows("SELECT consumerGroup, topic, queueId FROM pop_message WHERE state IN ('HELD', 'EXPIRED')"))
    flights = ((one["group"], one["topic"], one.get("popInFlightByQueue", ())) for one in said["lag"])
    assert held == {(group, topic, queue): count for group, topic, counts in flights for queue, count in enumerate(counts) if count}
    lags = rows(
        "SELECT consumerGroup, topic, sum(brokerLag) AS lag, sum(inFlight) AS inFlight, sum(available) AS available FROM broker_lag "
        "GROUP BY consumerGroup, topic"
    )
    told = {(one["group"], one["topic"]): (one["lag"], one["inFlight"], one["available"]) for one in said["lag"]}
    assert {row[:2]: row[2:] for row in lags if row[:2] in told} == told
    pending = {topic: one["count"] for topic, one in said["transactions"]["pendingByTopic"].items()}
    assert Counter(topic for (topic,) in rows("SELECT topic FROM open_transaction WHERE state = 'PENDING'")) == pending
    # the broker may deliver messages of a level after its report and before its end
    levels = {int(name.removeprefix("level")): one for name, one in said["delayLevels"].items() if one["max"]}
    delays = {row[0]: row[1:] for row in rows("SELECT delayLevel, maxOffset, storedOffset, waiting FROM delay_level")}
    assert {level: row[0] for level, row in delays.items()} == {level: one["max"] for level, one in levels.items()}
    for level, (end, stored, waiting) in delays.items():
        assert waiting == end - stored <= end - (levels[level]["delivered"] or 0)
    assert sum(waiting for *_, waiting in delays.values()) > 10
