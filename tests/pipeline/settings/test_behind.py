"""The answers of a slave that lags behind its master, compared with getMessage in plain Python over the slave's data, and by hand."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.main import run as run_command
from pipeline.settings.slave_lag import SlaveLag
from tests.makers.made_store import MadeStore, Record, make_store
from tests.makers.wild_requests import CAPS, pulls, raw, settings_of, times, wild_records
from tests.models.slow_broker import Bounds, SlowBroker
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import Line, answers_of, differences, lake_of, write_lines
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLAVE = ["brokerRole=SLAVE", "brokerId=1"]


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    # files of 20,000 entries: three segments each
    return make_store(tmp_path_factory.mktemp("made") / "behind", wild_records(26_000), log_file=1 << 20, queue_file=400_000)


def slave_of(broker: SlowBroker, topic: str, queue_id: int, whole: Bounds, log_end: int) -> Bounds:
    """The bounds of a slave whose log ends at `log_end`: up to the last entry whose message is before that end as a whole."""
    visible = [whole.min_offset]
    for first, content in broker.queue(topic, queue_id).items():
        for number, (physic, size, _) in enumerate(struct.iter_unpack(">qiq", content)):
            if first + number < whole.max_offset and physic + size <= log_end:
                visible.append(first + number + 1)
    return Bounds(whole.min_offset, max(visible), log_end)


@slow_proof
@pytest.mark.parametrize(("at", "behind"), [(at, size) for at in ("snapshot", "request-time") for size in ("777", "1M", "9G")])
def test_a_slave_lacks_the_last_bytes_of_the_log(
    made: MadeStore, at: str, behind: str, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    digits = random.Random(f"{at} {behind}")
    broker = SlowBroker(made.path, settings_of([*CAPS, *SLAVE]) | made.sizes, made.log_end)
    moments = times(digits, [stamp for _, stamp in broker.records if stamp < 2**62])
    missing = SlaveLag.of(behind).bytes
    expected: list[Line] = []
    for request, time in zip(pulls(digits, made, 300), moments, strict=False):
        queue = request["topic"], request["queueId"]
        whole = made.queues[queue]
        log_end = broker.as_of(*queue, whole, time).log_end if at == "request-time" else made.log_end
        bounds = slave_of(broker, *queue, whole, max(log_end - missing, 0))
        near_end = {"offset": bounds.max_offset + digits.choice([-900, -33, -2, -1, 0, 1])} if digits.random() < 0.6 else {}
        asking = request | {"timestamp": time} | near_end
        expected.append({"request": asking, "response": broker.get_message(asking, bounds)})
    assert len(expected) == 300
    asked = [{"request": line["request"]} for line in expected]
    lake = lake_of(spark, made.path, tmp_path_factory)
    ours = answers_of(lake, asked, tmp_path, at=at, settings=[*CAPS, *SLAVE], slave_lag=SlaveLag.of(behind))
    assert differences(expected, raw(ours)) == []


@slow_proof
def test_a_slave_has_the_store_of_a_while_ago(
    made: MadeStore, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    digits = random.Random("while")
    broker = SlowBroker(made.path, settings_of([*CAPS, *SLAVE]) | made.sizes, made.log_end)
    expected: list[Line] = []
    moments = times(digits, [stamp for _, stamp in broker.records if stamp < 2**62])
    for request, time in zip(pulls(digits, made, 300), moments, strict=False):
        queue = request["topic"], request["queueId"]
        bounds = broker.as_of(*queue, made.queues[queue], max(time - 2500, -(2**63)))
        asking = request | {"timestamp": time, "offset": bounds.max_offset + digits.choice([-33, -1, 0, 1])}
        expected.append({"request": asking, "response": broker.get_message(asking, bounds)})
    assert len(expected) == 300
    asked = [{"request": line["request"]} for line in expected]
    lake = lake_of(spark, made.path, tmp_path_factory)
    ours = answers_of(lake, asked, tmp_path, at="request-time", settings=[*CAPS, *SLAVE], slave_lag=SlaveLag.of("2.5s"))
    assert differences(expected, raw(ours)) == []


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    """A queue of ten messages of one size."""
    return make_store(tmp_path_factory.mktemp("made") / "ten", [Record()] * 10, log_file=1 << 20, queue_file=400_000)


def pull(offset: int) -> Line:
    return {"request": {"group": "g", "topic": "T", "queueId": 0, "offset": offset, "maxMsgNums": 32, "filter": None}}


def pulls_around_the_end(ten: MadeStore, folder: Path) -> list[str | Path]:
    """Options that replay pulls on a slave that lacks the last two messages, and a byte of the one before."""
    requests = write_lines(folder / "requests.jsonl", [pull(6), pull(7), pull(8), pull(10)])
    return ["--requests", requests, "--behind", str(ten.log_end // 10 * 2 + 1)]


@slow_proof
def test_a_consumer_that_is_ahead_of_a_slave_is_sent_back_to_the_master(
    ten: MadeStore, pullsim: Pullsim, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, ten.path, tmp_path_factory).root
    given = pulls_around_the_end(ten, tmp_path)
    assert pullsim("replay", "--lake", lake, *given, "--set", "brokerRole=SLAVE", "--set", "brokerId=1")[0] == 0
    query = """SELECT queueOffset, status, code, nextBeginOffset, maxOffset, messageCount,
      suggest_which_broker_id(status, queueOffset, suggestPullingFromSlave, 'SLAVE', FALSE, TRUE, 0, 1) AS broker
      FROM pull_response ORDER BY ALL"""
    rows = [tuple(json.loads(line).values()) for line in pullsim("sql", "--lake", lake, query, "--format", "json")[1].splitlines()]
    assert rows == [
        (6, "FOUND", 0, 7, 7, 1, 0),
        (7, "OFFSET_OVERFLOW_ONE", 19, 7, 7, 0, 0),
        # PULL_RETRY_IMMEDIATELY: the client pulls the same offset again, of broker 0
        (8, "OFFSET_OVERFLOW_BADLY", 20, 8, 7, 0, 0),
        (10, "OFFSET_OVERFLOW_BADLY", 20, 10, 7, 0, 0),
    ]
    settings = json.loads(pullsim("sql", "--lake", lake, "SELECT settings FROM replay_run", "--format", "json")[1])["settings"]
    assert settings["behind"] == f"{given[-1]} bytes"


@slow_proof
def test_what_if_the_master_were_a_slave_that_is_behind(
    ten: MadeStore, pullsim: Pullsim, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, ten.path, tmp_path_factory).root
    given = pulls_around_the_end(ten, tmp_path)
    code, out, err = pullsim("whatif", "--lake", lake, *given, "--set", "brokerRole=SLAVE", "--format", "json")
    assert code == 0, err
    told = json.loads(out)
    outcomes = {(row["current"], row["proposed"]): row["pulls"] for row in told["outcomes"]}
    assert outcomes == {
        ("FOUND", "FOUND"): 1,
        ("FOUND", "OFFSET_OVERFLOW_ONE"): 1,
        ("FOUND", "OFFSET_OVERFLOW_BADLY"): 1,
        ("OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"): 1,
    }
    assert told["measures"]["messages"] == {"current": 4 + 3 + 2, "proposed": 1}


@slow_proof
def test_only_a_slave_can_be_behind(
    ten: MadeStore, pullsim: Pullsim, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, ten.path, tmp_path_factory).root
    requests = write_lines(tmp_path / "requests.jsonl", [pull(6)])
    out = tmp_path / "out.jsonl"
    code, _, err = pullsim("replay", "--lake", lake, "--requests", requests, "--behind", "1M", "--out", out)
    assert (code, out.exists()) == (2, False)
    assert "--behind: brokerRole must be SLAVE, but is ASYNC_MASTER" in err
    code, _, err = pullsim("whatif", "--lake", lake, "--requests", requests, "--behind", "1M", "--set", "brokerRole=SYNC_MASTER")
    assert (code, "brokerRole must be SLAVE, but is SYNC_MASTER" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["replay", "--behind", "1X"], "expected bytes such as 64M (of 1024), or a time such as 500ms or 2s, found '1X'"),
        (["replay", "--behind", "-1s"], "found '-1s'"),
        (
            ["replay", "--behind", "2s"],
            "--behind with a time: expected --at request-time, found --at snapshot; give --at request-time, or --behind as a size",
        ),
        (["replay", "--behind", "2M", "--at", "recorded-max"], "--behind cannot be combined with --at recorded-max"),
        (["replay", "--behind", "2M", "--at", "request-time", "--hold", "--requests", "x"], "--behind cannot be combined with --hold"),
        (
            ["whatif", "--behind", "2M", "--drain", "--requests", "x", "--set", "brokerRole=SLAVE"],
            "--behind cannot be combined with --drain",
        ),
    ],
)
def test_what_cannot_be_told_of_a_slave_is_refused(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*options, "--lake", "none"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", SlaveLag()),
        ("65536", SlaveLag(bytes=65_536)),
        ("64K", SlaveLag(bytes=65_536)),
        ("1.5GiB", SlaveLag(bytes=3 << 29)),
        ("500ms", SlaveLag(millis=500)),
        ("2.5s", SlaveLag(millis=2500)),
        ("3m", SlaveLag(millis=180_000)),
        ("999999999999999999P", SlaveLag(bytes=1 << 62)),
    ],
)
def test_bytes_and_times_are_told_apart(text: str, found: Any) -> None:
    assert SlaveLag.of(text) == found
