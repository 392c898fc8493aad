"""Golden scenarios of long polling through `stream` and `replay --hold`: their messages are the store, their pulls the files of requests.

Each scenario has its own stretch of time and its own topics, so that one store and one stream are enough for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from pipeline.schema.tables import PULL_RESPONSE
from pipeline.stream import batches
from pipeline.stream.batches import Batches
from tests.makers.held_store import START
from tests.makers.lakes import import_as
from tests.runs.in_session import ON_SPARK, Pullsim, pullsim_in
from tests.runs.replaying import write_lines
from tests.runs.sampling import slow_proof
from tests.runs.streamed_answers import answered
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.golden_holds import Sent, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRETCH = 100_000  # a whole number of sweeps, whatever their interval here
SUBSCRIPTION = 4
QUEUES = 4
# the steps and settings that files of requests can express; they cannot express a group's registration, changes while a pull waits, or
# checks before the store
OPS = {"topic", "group", "send", "brokerConfig", "syncHoldTick", "pull", "expectNoResponse", "holdCount", "await", "sleep", "disconnect"}
SETTINGS = {"longPollingEnable", "shortPollingTimeMills", "enablePropertyFilter"}
NOT_COMPILED = "hold_bad_sql_wakes_on_anything"  # the checks hand the store no filter then


def can_be_asked(case: dict[str, Any]) -> bool:
    """Whether files of requests can express a scenario. A pull with its own subscription needs no heartbeat."""
    steps = case["steps"]
    pulls = [step["ext"] for step in steps if step["op"] == "pull"]
    first = next(number for number, step in enumerate(steps) if step["op"] == "pull")
    changes = [step for step in steps if step["op"] in {"group", "brokerConfig"}]
    return (
        {step["op"] for step in steps} - {"heartbeat"} <= OPS
        and all(ext["sysFlag"] & SUBSCRIPTION and ext["queueId"] < QUEUES for ext in pulls)
        and all(step in steps[:first] for step in changes)
        and all(step["set"].keys() <= SETTINGS for step in changes if step["op"] == "brokerConfig")
        and case["name"] != NOT_COMPILED
    )


@dataclass
class Played:
    """A scenario on the clock: its messages, its pulls, and the expected answers."""

    case: dict[str, Any]
    now: int
    config: dict[str, Any] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    pulls: dict[str, dict[str, Any]] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)  # until when there is no answer
    expected: dict[str, tuple[dict[str, Any], int]] = field(default_factory=dict)  # with the time of the last message before it

    def __post_init__(self) -> None:
        for step in self.case["steps"]:
            self.now += 10
            getattr(self, f"_{step['op']}", lambda _: None)(step)

    def _brokerConfig(self, step: dict[str, Any]) -> None:
        self.config |= step["set"]

    def _syncHoldTick(self, _: dict[str, Any]) -> None:
        interval = 5000 if self.config.get("longPollingEnable", True) else self.config.get("shortPollingTimeMills", 1000)
        self.now += -self.now % interval

    def _sleep(self, step: dict[str, Any]) -> None:
        self.now += step["ms"]

    def _expectNoResponse(self, step: dict[str, Any]) -> None:
        self.now += step["ms"]
        self.silent[step["id"]] = self.now

    def _send(self, step: dict[str, Any]) -> None:
        for one in step["messages"]:
            self.sent.append((self.now, step["topic"], step["queueId"], one.get("tags"), one.get("props") or {}))

    def _pull(self, step: dict[str, Any]) -> None:
        ext = step["ext"]
        name = step.get("id", f"pull {len(self.pulls)}")
        fields = {"group": "consumerGroup", "topic": "topic", "queueId": "queueId", "offset": "queueOffset", "maxMsgNums": "maxMsgNums"}
        same = ("sysFlag", "suspendTimeoutMillis")
        wanted = None if ext["subscription"] == "*" else {"type": ext["expressionType"], "expression": ext["subscription"]}
        asked = {ours: ext[theirs] for ours, theirs in fields.items()} | {one: ext[one] for one in same}
        self.pulls[name] = asked | {"filter": wanted, "timestamp": self.now}
        if step.get("result"):
            self.expected[name] = (step["result"], self.now)

    def _await(self, step: dict[str, Any]) -> None:
        self.expected[step["id"]] = (step["result"], self.sent[-1][0] if self.sent else 0)
        self.now += 1000 * step["result"].get("heldSeconds", 0)


def holds() -> Iterator[dict[str, Any]]:
    for case in golden_lines("broker", "pull_codes.jsonl"):
        if case["name"].startswith(("hold_", "short_polling_")) and can_be_asked(case):
            yield case


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@dataclass(frozen=True)
class Scenarios:
    """All scenarios, the lake with their messages, and a folder with a file of pulls for each scenario."""

    played: list[Played]
    lake: Path
    folder: Path


@pytest.fixture
def scenarios(spark: SparkSession, tmp_path: Path) -> Scenarios:
    played = [Played(case, START + number * STRETCH) for number, case in enumerate(holds())]
    assert len(played) == 17
    lake, folder = tmp_path / "lake", tmp_path / "incoming"
    import_as(spark, lake, store_of(tmp_path / "store", [sent for one in played for sent in one.sent]))
    folder.mkdir()
    for one in played:
        header = {"kind": "trace", "config": one.config}
        write_lines(folder / f"{one.case['name']}.jsonl", [header, *({"request": asked} for asked in one.pulls.values())])
    return Scenarios(played, lake, folder)


@needs_golden
@pytest.mark.parametrize("answers", ["the driver", pytest.param("Spark", marks=slow_proof)])
def test_held_pulls_get_what_the_broker_gave_them(
    spark: SparkSession, pullsim: Pullsim, scenarios: Scenarios, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: str
) -> None:
    answered_here = list[bool]()
    answer_here = Batches._is_answered_here

    def noted(*of: Any) -> bool:
        answered_here.append(answer_here(*of))
        return answered_here[-1]

    monkeypatch.setattr(Batches, "_is_answered_here", noted)
    if answers == "Spark":
        monkeypatch.setattr(batches, "_SMALL_BYTES", -1)
    write_lines(scenarios.folder / "end.jsonl", [{"kind": "heartbeat", "timestamp": START + STRETCH * (len(scenarios.played) + 1)}])
    stream = ("stream", "--lake", scenarios.lake, "--requests", scenarios.folder, "--checkpoint", tmp_path / "checkpoint", "--run-id", "r")
    code, out, err = pullsim(*stream, "--at", "request-time", "--hold", "--once")
    count = sum(len(one.pulls) for one in scenarios.played)
    assert (code, out.split(": ")[1].split(" in ")[0]) == (0, f"answered {count} requests"), err
    assert set(answered_here) == ({True} if answers == "the driver" else set())
    assert all_differences(scenarios.played, answered(spark, scenarios.lake, "r")) == []


@needs_golden
@pytest.mark.parametrize("engine", [pytest.param((), id="driver"), pytest.param(ON_SPARK, id="Spark", marks=slow_proof)])
def test_held_pulls_of_files_get_what_the_broker_gave_them(
    spark: SparkSession, pullsim: Pullsim, scenarios: Scenarios, engine: tuple[str, ...]
) -> None:
    for file in sorted(scenarios.folder.iterdir()):
        code, _, err = pullsim(
            "replay", "--lake", scenarios.lake, "--requests", file, "--at", "request-time", "--hold", "--verbose", *engine
        )
        assert (code, "the driver answers" in err) == (0, engine == ()), err
    rows = Lake(spark, str(scenarios.lake)).table(PULL_RESPONSE).collect()
    assert all_differences(scenarios.played, [row.asDict(recursive=True) for row in rows]) == []


def all_differences(scenarios: list[Played], answers: list[dict[str, Any]]) -> list[Any]:
    rows = {(row["topic"], row["queueId"], row["consumerGroup"], row["requestId"][-1]): row for row in answers}
    wrong = list[Any]()
    for played in scenarios:
        for number, (name, asked) in enumerate(played.pulls.items(), 2):
            row = rows[asked["topic"], asked["queueId"], asked["group"], str(number)]
            if name in played.expected:
                wrong += [(played.case["name"], name, what, row) for what in differences(played, name, asked, row)]
    return wrong


def differences(played: Played, name: str, asked: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """The fields in which an answer differs from the broker's."""
    result, last_sent = played.expected[name]
    woken = row["wokenMillis"]
    offsets = {one: int(value) for one, value in result["ext"].items() if one.endswith("Offset")}
    given = list(range(row["nextBeginOffset"] - row["messageCount"], row["nextBeginOffset"]))
    right = {
        "code": row["code"] == result["code"],
        **{one: row[one] == value for one, value in offsets.items()},
        "messages": "messageOffsets" not in result or given == result["messageOffsets"],
        "silence": name not in played.silent or woken >= played.silent[name],
        "sweep": result["timing"] != "tick" or (woken - asked["timestamp"] + 500) // 1000 == result["heldSeconds"],
        "arrival": result["timing"] != "woken" or not played.config.get("longPollingEnable", True) or woken == last_sent,
    }
    return [what for what, is_right in right.items() if not is_right]
