"""`pullsim stream --hold`: pulls wait in the state of the stream, and are answered once, as a replay answers them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lake.lake import Lake
from pipeline.schema.capture_tables import BAD_REQUEST
from pipeline.settings.settings import BrokerSettings
from pipeline.stream import batches as of_batches
from pipeline.stream.batches import Batches
from pipeline.stream.holding import hold
from pipeline.stream.request_stream import STREAM_SCHEMA, heartbeat_of
from pipeline.stream.stream_run import REQUESTS, run_of_checkpoint, store_versions
from tests.makers.held_store import CASES, NEVER_SWEPT, START, held_store, pull
from tests.makers.lakes import import_as
from tests.runs.held_answers import answered, told
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import NOON, write_lines
from tests.runs.sampling import slow_proof
from tests.truth.golden_holds import store_of
from udfs.pull.pull_request_hold import NEVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState


class State:
    """The state of pulls that are kept together, as Spark gives it."""

    def __init__(self) -> None:
        self.now, self.timeout = 0, NEVER
        self.get: tuple[str] | None = None

    @property
    def exists(self) -> bool:
        return self.get is not None

    def getCurrentWatermarkMs(self) -> int:
        return self.now

    def update(self, value: tuple[str]) -> None:
        self.get = value

    def remove(self) -> None:
        self.get = None

    def setTimeoutTimestamp(self, moment: int) -> None:
        assert moment >= max(self.now, 1), "Spark refuses it"
        self.timeout = moment

    def released(self, came: Iterable[tuple[int, int]] = ()) -> list[int]:
        """The pulls that are released when new pulls come, each with the moment that wakes it."""
        self.timeout = NEVER  # as Spark forgets it before each call
        rows = pd.DataFrame([(wakes, str(pull)) for pull, wakes in came], columns=["wakes", "pull"])
        return sorted(int(pull) for frame in hold(("file", 0), iter([rows]), cast("GroupState", self)) for pull in frame["pull"])

    def released_by(self, now: int) -> list[int]:
        """The pulls that are released at a time of the clock; none if Spark would not call the state."""
        self.now = now
        return self.released() if self.exists and self.timeout < now else []


@given(st.lists(st.tuples(st.lists(st.integers(2, 30), max_size=4), st.integers(1, 10)), max_size=6))
def test_each_pull_is_given_out_once_at_the_first_time_that_is_not_before_its_moment(batches: list[tuple[list[int], int]]) -> None:
    state, now, count = State(), 0, 0
    expected: list[tuple[int, int]] = []  # pull, and its moment
    for moments, passes in batches:
        came = [(count + number, moment) for number, moment in enumerate(moments)]
        count += len(came)
        assert not came or state.released(came) == [pull for pull, moment in came if moment <= now]
        expected += [one for one in came if one[1] > now]
        now += passes
        assert state.released_by(now) == [pull for pull, moment in expected if moment <= now]
        expected = [one for one in expected if one[1] > now]
    assert state.released_by(now + 30) == [pull for pull, _ in expected]
    assert not state.exists


def test_the_least_moment_of_a_pull_counts_and_what_is_never_woken_is_not_kept() -> None:
    state = State()
    assert state.released([(1, 20), (1, 10), (1, NEVER), (2, NEVER)]) == [2]
    assert state.released_by(9) == []
    assert state.released_by(10) == [1]
    assert not state.exists


@pytest.mark.parametrize(
    ("line", "time"),
    [
        (b'{"kind": "heartbeat", "timestamp": 5}', 5),
        (b'{"kind": "heartbeat", "timestamp": 9223372036854775807}', 2**63 - 1),
        (b'{"kind": "heartbeat", "timestamp": 9223372036854775808}', None),
        (b'{"kind": "heartbeat", "timestamp": true}', None),
        (b'{"kind": "heartbeat", "timestamp": 5, "request": {}}', None),
        (b'{"kind": "heartbeat"}', None),
        (b'{"kind": "trace", "timestamp": 5}', None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_a_heartbeat_says_a_time_and_no_more(line: bytes, time: int | None) -> None:
    assert heartbeat_of(line) == time


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@slow_proof
def test_pulls_are_answered_once_when_their_time_has_come(spark: SparkSession, pullsim: Pullsim, tmp_path: Path) -> None:
    answered_by_first_query(spark, pullsim, tmp_path)


def answered_by_first_query(spark: SparkSession, pullsim: Pullsim, tmp_path: Path) -> tuple[Path, Path, tuple[object, ...], str]:
    """Assert what the first query of a stream answers; returns the lake, the folder of requests, the command and the run."""
    lake, folder = tmp_path / "lake", tmp_path / "incoming"
    import_as(spark, lake, held_store(tmp_path / "store"))
    folder.mkdir()
    write_lines(folder / "pulls.jsonl", [*(case[0] for case in CASES), NEVER_SWEPT, pull(1, 0, timeout=None)])
    # beside them one of other settings, which does not wait
    write_lines(
        folder / "other.jsonl", [{"kind": "trace", "config": {"diskFallRecorded": False}}, pull(0, 2500, sys_flag=0, topic="other")]
    )
    hold = ("--at", "request-time", "--hold", "--once")
    command = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", *hold)

    # the last of these pulls came at 9 s; pulls whose filters read messages are answered at the next sweep
    code, out, err = pullsim(*command)
    assert code == 0, err
    run = out.splitlines()[-1].split(":")[0].removeprefix("run ")
    due = [case for case in CASES if case[1] is None or (case[1] <= 9000 and "SQL92" not in str(case[0]))]
    *rows, never, other = sorted(answered(spark, lake, run), key=lambda row: (row["topic"] == "other", row["error"] is not None))
    assert other["topic"] == "other"
    assert sorted(map(told, rows), key=repr) == sorted((case[1:] for case in due), key=repr)
    assert never["error"] == "NEVER_WOKEN"
    [bad] = Lake(spark, str(lake)).table(BAD_REQUEST).collect()
    assert 'expected a "suspendTimeoutMillis" in the request' in bad["error"]
    return lake, folder, command, run


@slow_proof
def test_a_query_that_is_started_again_goes_on_with_the_pulls_that_wait(spark: SparkSession, pullsim: Pullsim, tmp_path: Path) -> None:
    lake, folder, command, run = answered_by_first_query(spark, pullsim, tmp_path)
    # another query goes on with the state; of itself nothing is in the file but how late it is
    write_lines(folder / "later.jsonl", [{"kind": "heartbeat", "timestamp": START + 60_000}])
    code, out, err = pullsim(*command)
    assert code == 0, err
    rows = [row for row in answered(spark, lake, run) if row["error"] is None and row["topic"] != "other"]
    by_line = sorted(rows, key=lambda row: int(row["requestId"].rpartition("-")[2]))
    assert [told(row) for row in by_line] == [case[1:] for case in CASES]

    code, out, err = pullsim(*command)
    assert (code, out.split(": ")[1].split(" in ")[0]) == (0, "answered 0 requests"), err
    code, _, err = pullsim(*command[:7], "--at", "request-time", "--once")
    assert (code, "expected the checkpoint of a stream with hold False, found one with True" in err) == (2, True), err


# messages of the store when a pull for offset 1 comes at 2 s, and of the one that is imported then; what the pull gets, once.
# On its own time it finds the message at 1.5 s; that at 4 s wakes it; else its patience ends with the sweep at 20 s.
FIRST, FOUND, WAKES = (1000, "a"), (1500, "b"), (4000, "b")
IMPORTS: dict[str, tuple[tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]]] = {
    "the pull would not have waited": ((FIRST,), (FIRST, FOUND)),
    "the pull would have waited": ((FIRST, FOUND), (FIRST,)),
    "the pull would have been woken": ((FIRST,), (FIRST, WAKES)),
    "the pull would not have been woken": ((FIRST, WAKES), (FIRST,)),
}
ANSWERS = {(FIRST,): (20_000, "OFFSET_OVERFLOW_ONE", 1, 0), (FIRST, FOUND): (None, "FOUND", 2, 1), (FIRST, WAKES): (4000, "FOUND", 2, 1)}


PULLS = {topic: number for number, topic in enumerate(IMPORTS, 1)}  # a topic for each kind, and the line of its pull


def store_with(path: Path, which: int) -> Path:
    """A store with all kinds of IMPORTS, as it was before the import (0) or after it (1)."""
    found = ((topic, message) for topic, both in IMPORTS.items() for message in both[which])
    return store_of(path, [(START + time, topic, 0, tag, {}) for topic, (time, tag) in found])


def given_out(which: int, *, at_once: bool) -> list[str]:
    """The kinds whose pull the state releases in the pull's own batch at 5 s, or later, by the store before (0) or after the import (1)."""
    return [topic for topic, both in IMPORTS.items() if (ANSWERS[both[which]][0] != 20_000) == at_once]


def batch_of(spark: SparkSession, *, fresh: Iterable[str] = (), released: Iterable[str] = ()) -> DataFrame:
    """The rows of a batch, as the query of a stream makes them: new pulls, and pulls that the state released."""
    of_all = {"consumerGroup": "g", "queueId": 0, "queueOffset": 1, "maxMsgNums": 32, "sysFlag": 3, "suspendTimeoutMillis": 15_000}
    of_all |= {"timestamp": START + 2000, "source": "file", "sourceDigest": "d" * 64}
    rows = [
        of_all | {"topic": topic, "seq": PULLS[topic], "released": given}
        for given, all_ in ((False, fresh), (True, released))
        for topic in all_
    ]
    return spark.createDataFrame(rows, f"{STREAM_SCHEMA}, released BOOLEAN")


def batches_of(spark: SparkSession, lake: Path, checkpoint: Path) -> Batches:
    """The Batches that answer them, as after a start of the process."""
    run, _ = run_of_checkpoint(
        str(checkpoint),
        run_id="r",
        lake=str(lake),
        broker="b",
        source="in",
        at="request-time",
        settings={},
        hold=True,
        store=store_versions(Lake(spark, str(lake))),
    )
    settings = BrokerSettings.from_sources()
    log = f"{checkpoint}/{REQUESTS}"
    return Batches(root=str(lake), run=run, settings_of=lambda *_: settings, requests=log, now=lambda: NOON, stop=threading.Event())


@slow_proof
@pytest.mark.parametrize("small", [True, False], ids=["on the driver", "on Spark"])
@pytest.mark.parametrize("dies", [False, True], ids=["it goes on", "the process dies"])
def test_an_import_while_pulls_wait_neither_loses_nor_repeats_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(of_batches, "_SMALL_BYTES", -1)
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    import_as(spark, lake, store_with(tmp_path / "before", 0))
    batches = batches_of(spark, lake, checkpoint)
    batches(batch_of(spark, fresh=PULLS, released=given_out(0, at_once=True)), 0)
    import_as(spark, lake, store_with(tmp_path / "after", 1))
    if dies:  # after the commit of the lake, before that of Spark: the batch is run again, and the state as well
        batches = batches_of(spark, lake, checkpoint)
        batches(batch_of(spark, fresh=PULLS, released=given_out(1, at_once=True)), 0)
    batches(batch_of(spark, released=given_out(int(dies), at_once=False)), 1)
    rows = {row["topic"]: row for row in answered(spark, lake, "r")}
    assert len(rows) == len(answered(spark, lake, "r")) == len(IMPORTS)
    for topic, both in IMPORTS.items():
        assert told(rows[topic]) in {ANSWERS[store] for store in both}, topic


@slow_proof
@pytest.mark.parametrize(("kind", "dies"), [("the pull would not have waited", False), ("the pull would have been woken", True)])
def test_an_import_while_a_pull_waits_neither_loses_nor_repeats_it(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dies: bool
) -> None:
    lake, folder = tmp_path / "lake", tmp_path / "incoming"
    before, after = IMPORTS[kind]
    import_as(spark, lake, held_store(tmp_path / "before", before))
    folder.mkdir()
    stream = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--run-id", "r")
    command = (*stream, "--at", "request-time", "--hold", "--once")
    # the time of the second batch is 5 s, and its pull comes late
    write_lines(folder / "0.jsonl", [pull(0, 5000, sys_flag=0, topic="other")])
    assert pullsim(*command)[0] == 0
    write_lines(folder / "1.jsonl", [pull(1, 2000), pull(0, 2500, sys_flag=0, topic="other")])
    answer = Batches._answer

    def answer_and_die(self: Batches, *rest: Any) -> None:
        answer(self, *rest)
        raise RuntimeError("died behind the commit of the lake")

    with monkeypatch.context() as dying:
        if dies:
            dying.setattr(Batches, "_answer", answer_and_die)
        assert pullsim(*command)[0] == (3 if dies else 0)
    others = [row for row in answered(spark, lake, "r") if row["topic"] == "other"]
    assert len(others) == 2, "the second batch was committed"
    import_as(spark, lake, held_store(tmp_path / "after", after))
    write_lines(folder / "2.jsonl", [{"kind": "heartbeat", "timestamp": START + 60_000}])
    code, _, err = pullsim(*command)
    assert code == 0, err
    [row] = [row for row in answered(spark, lake, "r") if row["topic"] == "t"]
    assert told(row) in {ANSWERS[before], ANSWERS[after]}
    assert len(answered(spark, lake, "r")) == 3
