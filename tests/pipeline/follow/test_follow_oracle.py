"""A running real broker is followed: messages, queues and lag reach the lake while producers write, also if processes are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.lake import Lake
from pipeline.schema import tables as t
from tests.runs.following import assert_as_imported
from tests.runs.in_session import pullsim_in
from tests.runs.replaying import BROKER
from tests.runs.sampling import slow_proof
from tests.truth.live_broker import TOPIC, LiveBroker
from tests.truth.oracle import needs_oracle
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.runs.in_session import Pullsim

pytestmark = [*needs_oracle(), slow_proof]

LAG = "SELECT sum(lag) FROM consume_lag WHERE consumerGroup = 'FollowedGroup' AND topic = 'FollowedTopic' AND lag IS NOT NULL"


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


class Live(LiveBroker):
    """The broker, its clients, and the process that follows it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lake, self.log = folder / "lake", folder / "follow.log"

    @contextmanager
    def followed(self, *, ends_by: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        command: list[str | Path] = [sys.executable, "-m", "pipeline.main", "import", self.store]
        command += ["--lake", self.lake, "--broker-name", BROKER]
        settings = [part for line in self.options for part in ("--set", line)]
        with self.log.open("a", encoding="utf-8") as log:
            running = subprocess.Popen([*command, "--follow", *settings], stdout=log, stderr=log, cwd=PROJECT)
            try:
                yield
            finally:
                running.send_signal(ends_by)
                code = running.wait(timeout=120)
        assert code == (0 if ends_by is signal.SIGTERM else -ends_by), self.log.read_text(encoding="utf-8")


def eventually(holds: Callable[[], bool], seconds: float = 400) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(1)


def test_a_running_broker_is_followed(spark: SparkSession, tmp_path: Path, pullsim: Pullsim) -> None:
    live = Live(tmp_path)

    def table(of: t.Table) -> DataFrame:
        return Lake(spark, str(live.lake)).table(of)

    def messages() -> int:
        return table(t.COMMIT_LOG).where(f"topic = '{TOPIC}'").count() if live.lake.exists() else 0

    def lag() -> int | None:
        code, out, err = pullsim("sql", "--lake", live.lake, LAG, "--format", "csv")
        assert code == 0, err
        found = out.splitlines()[1]
        return None if found in {"", '""'} else int(found)

    with live.broker(ends_by=signal.SIGKILL):
        live.produce(300)
        with live.followed(ends_by=signal.SIGKILL):
            eventually(lambda: messages() == 300)
            live.produce(500)
            eventually(lambda: messages() > 300)
        live.produce(200)
        with live.followed():
            eventually(lambda: messages() == 1000)
            live.consume(400)
            eventually(lambda: lag() is not None)
            before = lag()
            live.produce(300)
            eventually(lambda: messages() == 1300)
            after = lag()
            assert after == (before or 0) + 300
    with live.followed():
        with live.broker():
            live.produce(400)
            eventually(lambda: messages() == 1700)
        time.sleep(3)
    assert len(list((live.store / "commitlog").iterdir())) > 1
    assert_as_imported(spark, pullsim, live.lake, live.store, tmp_path / "other")
