"""lag_history: the rows of an observation, when an observation is new, and how old ones are deleted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.embedded.database import EmbeddedLake
from pipeline.lag.lag_history import is_new, record_here
from pipeline.lake.lake import Lake, LakeError
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.makers.lag_lakes import FILE_SIZE, write_state
from tests.makers.lakes import live_files, rows
from tests.makers.plain_lakes import add_rows, plain_lake
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import NOON
from tests.runs.sampling import slow_proof
from tests.runs.views_by_hand import ENGINES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES = {("orders", 0): (10, 100), ("orders", 1): (0, 50)}
OFFSETS = {("g", "orders", 0): 40}
DAY = 86_400_000
# brokers and days of observations
FORMER = (("a'\\", 0), ("a'\\", 1), ("a'\\", 2), ("b", 0))


def is_new_here(folder: Path, broker: str, at: int) -> bool:
    lake = EmbeddedLake(str(folder))
    return is_new(lake.asked, lake.at.version, broker, at)


def times(spark: SparkSession, folder: Path) -> list[tuple[str, int, int]]:
    """(broker, queueId, observedAt) of each row."""
    return sorted((row["brokerName"], row["queueId"], row["observedAt"]) for row in rows(spark, folder, LAG_HISTORY))


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_observation_has_every_queue_of_its_broker_and_is_made_once(
    pullsim: Pullsim, spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    write_state(
        spark, tmp_path, "a", OFFSETS, QUEUES, stamps={("orders", 0, 40): 7_000}, as_of=9_500, log_files={0: 7_000, FILE_SIZE: 9_500}
    )
    write_state(spark, tmp_path, "b", {("g", "orders", 0): 1})
    command = ("lag", "--lake", tmp_path, "--engine", engine, "--record", "--observed-at")
    assert pullsim(*command, "1970-01-01T00:00:20")[:2] == (0, "recorded 2 queues of broker a at 20000 ms, lake version 3\n")
    same = {"brokerName": "a", "consumerGroup": "g", "topic": "orders", "observedAt": 20_000, "asOf": 9_500, "lakeVersion": 2}
    assert sorted(rows(spark, tmp_path, LAG_HISTORY), key=lambda row: row["queueId"]) == [
        same
        | {"queueId": 0, "consumerOffset": 40, "brokerOffset": 100, "minOffset": 10, "lag": 60, "lagMillis": 2_500}
        | {"reason": "NO_QUEUE_FILE"},
        same
        | {"queueId": 1, "consumerOffset": None, "brokerOffset": 50, "minOffset": 0, "lag": None, "lagMillis": None}
        | {"reason": "NO_OFFSET"},
    ]
    query = """SELECT s.queueId, why, messagesToLoss, timeToLossMillis FROM group_status s
        JOIN retention_risk r ON r.brokerName = s.brokerName AND r.queueId = s.queueId ORDER BY s.queueId, why"""
    _, out, _ = pullsim("sql", "--lake", tmp_path, query, "--format", "csv")
    assert out.splitlines()[1:] == [f"0,INCOMPLETE_WINDOW,30,{76 * 3_600_000 - 9_500}", "0,NOT_OBSERVED,,", "1,NO_OFFSET,,"]

    before = Lake(spark, str(tmp_path)).at
    code, out, _ = pullsim(*command, 21_000)
    assert (code, out.partition(":")[0]) == (0, "nothing new of broker a")
    assert Lake(spark, str(tmp_path)).at == before
    # an import of another broker is nothing new for this one, although it writes the same tables
    write_state(spark, tmp_path, "b", {("g", "orders", 0): 2})
    assert [is_new_here(tmp_path, broker, 22_000) for broker in "ab"] == [False, True]
    write_state(spark, tmp_path, "a", OFFSETS)
    assert is_new_here(tmp_path, "a", 22_000)
    assert not is_new_here(tmp_path, "a", 20_000), "there is one of that time"


@pytest.mark.parametrize("engine", ENGINES)
def test_old_observations_go_and_the_others_are_joined(pullsim: Pullsim, spark: SparkSession, tmp_path: Path, engine: str) -> None:
    odd = FORMER[0][0]
    former = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "lakeVersion": 0}
    for broker, day in FORMER:
        add_rows(tmp_path, LAG_HISTORY, [former | {"brokerName": broker, "observedAt": day * DAY}])
    plain_lake(tmp_path, {LAG_HISTORY.name: []})
    write_state(spark, tmp_path, odd, OFFSETS, QUEUES)
    record = ("lag", "--lake", tmp_path, "--engine", engine, "--record", "--broker", odd, "--keep", 2, "--observed-at")
    assert pullsim(*record, 3 * DAY)[0] == 0
    assert times(spark, tmp_path) == [(odd, 0, DAY), (odd, 0, 2 * DAY), (odd, 0, 3 * DAY), (odd, 1, 3 * DAY), ("b", 0, 0)]
    files = live_files(tmp_path / LAG_HISTORY.name, Lake(spark, str(tmp_path)).at.tables[LAG_HISTORY.name])
    assert len(files) == 2, "what is kept, and the new observation"


def test_a_time_before_1970_is_refused(tmp_path: Path) -> None:
    lake = EmbeddedLake(str(plain_lake(tmp_path / "lake", {LAG_HISTORY.name: []})))
    with pytest.raises(LakeError, match="from 1970 to the year 9999, in ms, found -1"):
        record_here(lake, "a", observed_at=-1, keep_days=None, run_id="r", committed_at=NOON)


@slow_proof
def test_in_a_lake_of_two_brokers_one_is_recorded_or_shown(pullsim: Pullsim, spark: SparkSession, tmp_path: Path) -> None:
    write_state(spark, tmp_path, "a", OFFSETS, QUEUES)
    write_state(spark, tmp_path, "b", {}, QUEUES)
    code, _, err = pullsim("lag", "--lake", tmp_path, "--record")
    assert (code, "say which one with --broker" in err) == (2, True)
    code, out, _ = pullsim("lag", "--lake", tmp_path, "--broker", "b")
    assert (code, out.splitlines()[-1]) == (0, "Diff Total: 0 (no stored offset matches)")
    code, out, _ = pullsim("lag", "--lake", tmp_path, "--broker", "a")
    assert (code, out.splitlines()[-1]) == (0, "Diff Total: 60 (1 of 2 queues left out: their lag is not known)")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--record", "--watch"], "--record cannot be combined with --watch: it records all of a broker"),
        (["--record", "--group", "g"], "--record cannot be combined with --group: it records all of a broker"),
        (["--keep", "3"], "give --record too"),
        (["--observed-at", "5"], "give --record too"),
        (["--record", "--keep", "0"], "0 is not in the range 1<=x<=36500"),
        (["--record", "--observed-at", "noon"], "expected ms since 1970"),
    ],
)
def test_options_that_do_not_go_together_end_with_2(pullsim: Pullsim, tmp_path: Path, options: list[str], hint: str) -> None:
    code, out, err = pullsim("lag", "--lake", tmp_path, *options)
    assert (code, out, hint in err) == (2, "", True)
