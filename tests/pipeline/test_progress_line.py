"""The line of progress: on a terminal, after some seconds, and gone before anything else is printed."""

from __future__ import annotations

import io
import sys
import time

import pytest

from pipeline import progress_line as pl
from pipeline.tasks.running import Running, watched
from pipeline.terminal import progress_to_stderr, say


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    # not as a fixture: pytest puts its own stderr in place between fixtures and tests
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(pl, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(pl, "_FIRST_SECONDS", 0.0)
    return found


def test_a_line_has_counts_rate_and_the_time_that_is_left() -> None:
    progress = pl.Progress()
    assert progress.text([], 0) is None
    assert progress.text([Running("a", 10, 1200)], 1) == "10 of 1,200 tasks done"
    assert progress.text([Running("a", 60, 1200)], 11) == "60 of 1,200 tasks done, 5.0/s, 3 min 48 s left"
    both = [Running("a", 1200, 1200), Running("b", 0, 1)]
    assert progress.text(both, 12) == "1,200 of 1,201 tasks done", "another thing runs: its rate is not known"
    assert progress.text([Running("a", 1200, 1200), Running("b", 1, 1)], 13) == "1,201 of 1,201 tasks done, 1.0/s, nothing left"
    assert progress.text([Running("c", 0, 1)], 14) == "0 of 1 task done"
    assert progress.text([Running("d", 5, 9)], 15) == "5 of 9 tasks done"
    assert progress.text([Running("d", 6, 9)], 65) == "6 of 9 tasks done, < 0.1/s, 2 min 30 s left"
    assert progress.text([Running("d", 2, 9)], 66) == "2 of 9 tasks done", "it is tried again"


def seen_again(terminal: Terminal) -> None:
    """Wait until the line is the last thing on the terminal."""
    looked_until = time.monotonic() + 60
    while not terminal.getvalue().endswith("1 of 2 tasks done") and time.monotonic() < looked_until:
        time.sleep(0.01)


def test_the_line_is_shown_while_something_runs_and_gone_before_other_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(sys, "stdout", terminal)
    with pl.progress_line(), watched(lambda: [Running("it", 1, 2)]):
        seen_again(terminal)
        say("a result")
        seen_again(terminal)
        progress_to_stderr("a step")
        seen_again(terminal)
    told = terminal.getvalue()
    assert "1 of 2 tasks done\r\x1b[Ka result\n" in told
    assert "1 of 2 tasks done\r\x1b[Kpullsim: a step\n" in told
    assert told.endswith("1 of 2 tasks done\r\x1b[K")


def test_short_work_and_pipes_get_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setattr(pl, "_FIRST_SECONDS", 60.0)
    with pl.progress_line(), watched(lambda: [Running("it", 1, 2)]):
        time.sleep(0.05)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(pl, "_FIRST_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "dumb")
    with pl.progress_line(), watched(lambda: [Running("it", 1, 2)]):
        time.sleep(0.05)
    assert terminal.getvalue() == ""
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with pl.progress_line(), watched(lambda: [Running("it", 1, 2)]):
        time.sleep(0.05)
    assert pipe.getvalue() == ""
