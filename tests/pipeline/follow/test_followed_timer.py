"""When the files of a followed broker's timer are read again."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.files.store_files import StoreFiles
from pipeline.follow import followed_timer
from pipeline.follow.followed_timer import FollowedTimer
from pipeline.settings.settings import BrokerSettings
from tests.runs.replaying import NOON


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> dt.datetime:
        return NOON + dt.timedelta(seconds=self.seconds)


class SlowWriter:
    """A writer that takes two seconds for a table."""

    spark: Any = None

    def __init__(self, clock: Clock) -> None:
        self.clock, self.tables = clock, list[str]()

    def replace_rows(self, table: Any, _rows: Any) -> None:
        self.tables.append(table.name)
        self.clock.seconds += 2


def timer_of(root: Path, clock: Clock) -> FollowedTimer:
    return FollowedTimer(store=StoreFiles(str(root)), broker="b", settings=BrokerSettings.from_sources(), now=clock)


def test_a_broker_without_a_timer_has_nothing_to_read(tmp_path: Path) -> None:
    assert not timer_of(tmp_path, Clock()).are_due()


def test_files_are_read_again_where_they_changed_and_time_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_timer, "timer_rows", lambda *_: ())
    (tmp_path / "timerwheel").write_bytes(bytes(32))
    clock = Clock()
    timer = timer_of(tmp_path, clock)
    writer: Any = SlowWriter(clock)
    assert timer.are_due()
    timer.replace_rows(writer)
    assert writer.tables == ["timer_checkpoint"]
    clock.seconds += 1000
    assert not timer.are_due(), "nothing changed"
    os.utime(tmp_path / "timerwheel", ns=(0, 10**9))
    assert timer.are_due()
    timer.replace_rows(writer)
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / f"{0:020}").write_bytes(bytes(52))
    clock.seconds += 99
    assert not timer.are_due(), "the last read took two seconds"
    clock.seconds += 1
    assert timer.are_due()


class Rows:
    """Rows that only have names."""

    def frame(self, table: Any) -> str:
        return str(table.name)


def test_the_clock_is_read_before_the_wheel_and_the_wheel_before_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_timer, "timer_rows", lambda *_: (Rows(),))
    clock = Clock()
    writer: Any = SlowWriter(clock)
    timer_of(tmp_path, clock).replace_rows(writer)
    assert writer.tables == ["timer_checkpoint", "timer_slot", "timer_log"]
