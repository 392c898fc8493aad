"""A real 5.5.0 broker runs with clients anew: what its timer, POP and lag are by its store, against what it told of them.

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

from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import ask
from tests.makers.lakes import import_as
from tests.truth.oracle import harness, needs_oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_oracle()
SEED = os.environ.get("PULLSIM_ORACLE_SEED", "0")


@pytest.fixture(scope="module", params=["timerPrecisionMs=1000", "timerPrecisionMs=100", "timerRollWindowSlot=10"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the harness wrote.

    One broker has default settings, one a timer of finer steps, which its files tell, and one stores most timer messages again and again.
    """
    out = tmp_path_factory.mktemp("live") / "live"
    command = [harness(), "live", "--seed", SEED, "--config", request.param, "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=600, env=os.environ | {"ORACLE_VERSION": "5.5.0"})
    return out


def test_the_store_tells_what_the_broker_told(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    import_as(spark, tmp_path / "lake", place / "store", "b")
    said = json.loads((place / "broker.json").read_text("utf-8"))

    def rows(query: str) -> list[tuple[Any, ...]]:
        return list(ask(EmbeddedLake(str(tmp_path / "lake")), query).rows)

    counts = {topic: one["count"] for topic, one in said["timers"]["pendingByTopic"].items()}
    assert {row[0]: row[1] for row in rows("SELECT topic, pending FROM timer_topic")} == counts
    assert rows("SELECT count_if(problem IS NOT NULL) AS broken, sum(messages) AS messages FROM timer_check") == [
        (0, said["timers"]["slotsCounted"])
    ]
    held = Counter(rows("SELECT consumerGroup, topic, queueId FROM pop_message WHERE state IN ('HELD', 'EXPIRED')"))
    flights = ((one["group"], one["topic"], one.get("popInFlightByQueue", ())) for one in said["lag"])
    assert held == {(group, topic, queue): count for group, topic, counts in flights for queue, count in enumerate(counts) if count}
    lags = rows("SELECT consumerGroup, topic, sum(brokerLag), sum(inFlight), sum(available) FROM broker_lag GROUP BY consumerGroup, topic")
    told = {(one["group"], one["topic"]): (one["lag"], one["inFlight"], one["available"]) for one in said["lag"]}
    assert {row[:2]: row[2:] for row in lags if row[:2] in told} == told
    pending = {topic: one["count"] for topic, one in said["transactions"]["pendingByTopic"].items()}
    assert Counter(row[0] for row in rows("SELECT topic FROM open_transaction WHERE state = 'PENDING'")) == pending
