"""A run of real clients against a real broker, predicted before it begins: who gets which message, and where the offsets end."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from pipeline.lake.lake import Lake
from pipeline.schema.simulation_tables import CONSUMPTION, SIMULATED_LAG
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import import_into
from tests.runs.sampling import slow_proof
from tests.truth.captured import committed
from tests.truth.live_broker import PORT, TOPIC, LiveBroker
from tests.truth.oracle import harness, needs_oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [*needs_oracle(), slow_proof]

FIRST_LEAVES, SECOND_JOINS, SECOND_LEAVES = 32, 17, 50
SCENARIO = f"""
group = "predicted"
topic = "{TOPIC}"
until = "{SECOND_LEAVES}s"
begin = "never"
subscription = "%s"
consumption = true
[messages]
%s
[listener]
takes = "1ms"
[[clients]]
name = "first"
leaves = "{FIRST_LEAVES}s"
[[clients]]
name = "second"
joins = "{SECOND_JOINS}s"
[consumer]
consumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
"""
THERE_BEFORE = 603
# (second, number of messages): the four queues share each burst equally, and no client joins or leaves at its time
BURSTS = [(25, 400), (42, 200)]
Message = tuple[int, int]  # queue and offset


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


class Prediction:
    """What a simulation predicts."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def given(self) -> dict[str, Counter[Message]]:
        found = {client: Counter[Message]() for client in ("first", "second")}
        for row in self.lake.table(CONSUMPTION).where(f"topic = '{TOPIC}'").collect():
            found[row["clientId"].rpartition("-")[0].rpartition("@")[2]][row["queueId"], row["queueOffset"]] += 1
        return found

    def offsets(self) -> dict[int, int]:
        queues = self.lake.table(SIMULATED_LAG).where(f"topic = '{TOPIC}'").groupBy("queueId")
        return {row["queueId"]: row["told"] for row in queues.agg(F.max_by("consumerOffset", "atMillis").alias("told")).collect()}


def predicted(lake: Lake, pullsim: Pullsim, folder: Path, *, subscription: str, messages: str) -> Prediction:
    """What the simulation predicts for the two clients."""
    (folder / "scenario.toml").write_text(SCENARIO % (subscription, messages), "utf-8")
    code, _, err = pullsim("simulate", "--lake", lake.root, "--scenario", folder / "scenario.toml")
    assert code == 0, err
    return Prediction(Lake(lake.spark, lake.root))  # as it is now


def consumed(live: LiveBroker, folder: Path, *tags: str, bursts: list[tuple[int, int]]) -> dict[str, Counter[Message]]:
    """The messages that two real clients get, which join and leave as the scenario says, while bursts of messages come."""
    clients = {"first": (0, FIRST_LEAVES), "second": (SECOND_JOINS, SECOND_LEAVES)}
    running = []

    def client(name: str) -> None:
        joins, leaves = clients[name]
        # more messages than there are, so that the client stays until its time is over
        times = ["--messages", "100000", "--seconds", str(leaves - joins), "--out", str(folder / f"{name}.jsonl")]
        command: list[str | Path] = [harness(), "consume", "--port", str(PORT), "--topic", TOPIC, "--group", "predicted", *tags, *times]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    began = time.monotonic()
    to_do = [(joins, partial(client, name)) for name, (joins, _) in clients.items()]
    to_do += [(moment, partial(live.produce, number)) for moment, number in bursts]
    for moment, do in sorted(to_do, key=itemgetter(0)):
        time.sleep(max(began + moment - time.monotonic(), 0))
        do()
    for process in running:
        process.wait(timeout=120)
    lines = {name: map(json.loads, (folder / f"{name}.jsonl").read_text("utf-8").splitlines()) for name in clients}
    return {name: Counter((line["queueId"], line["queueOffset"]) for line in of_client) for name, of_client in lines.items()}


@pytest.mark.parametrize("tag", [None, "TagA"])
def test_what_real_clients_get_of_a_store_was_predicted(tag: str | None, spark: SparkSession, tmp_path: Path, pullsim: Pullsim) -> None:
    live = LiveBroker(tmp_path)
    with live.broker():
        live.produce(THERE_BEFORE)
    lake = import_into(spark, tmp_path / "lake", live.store, options=live.options)
    begins = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    messages = f"recorded = true\nbegins = {begins}"
    prediction = predicted(lake, pullsim, tmp_path, subscription=tag or "*", messages=messages)
    with live.broker(ends_by=signal.SIGTERM):
        found = consumed(live, tmp_path, *(["--tags", tag] if tag else []), bursts=[])
    assert found == prediction.given()
    assert found["first"].total() == (-(-THERE_BEFORE // 2) if tag else THERE_BEFORE)
    assert committed(tmp_path, TOPIC, "predicted") == prediction.offsets()


def test_who_gets_what_comes_while_clients_come_and_go_was_predicted(spark: SparkSession, tmp_path: Path, pullsim: Pullsim) -> None:
    live = LiveBroker(tmp_path)
    steps = [["0s", 0], *(step for moment, number in BURSTS for step in ([f"{moment}s", number], [f"{moment + 1}s", 0]))]
    messages = f"backlog = 600\nqueues = 4\neven = true\nrate = {json.dumps(steps)}"
    prediction = predicted(Lake(spark, str(tmp_path / "lake")), pullsim, tmp_path, subscription="*", messages=messages)
    with live.broker(ends_by=signal.SIGTERM):
        live.produce(600)
        found = consumed(live, tmp_path, bursts=BURSTS)
    assert found == prediction.given()
    assert found["second"].total() == 400
    assert committed(tmp_path, TOPIC, "predicted") == prediction.offsets()
