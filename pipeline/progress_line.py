"""The last line of a terminal while a command works: how many tasks are done, how fast, and how long the others take."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pipeline.settings.quantities import counted, duration_text, rate_text
from pipeline.tasks.running import Running, running
from pipeline.terminal import WITHOUT_CURSOR, hide_status, show_status

# s between two looks, and before the first line, so that short work shows no line
_LOOK_SECONDS, _FIRST_SECONDS = 0.5, 3.0
# most s that the end of a command waits for a look
_END_SECONDS = 2.0


@contextmanager
def progress_line() -> Iterator[None]:
    """Show the line during the block, if stderr is a terminal that can overwrite its last line."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "") in WITHOUT_CURSOR:
        yield
        return
    stop = threading.Event()
    shown = threading.Thread(target=_show, args=(stop,), daemon=True)
    shown.start()
    try:
        yield
    finally:
        stop.set()
        shown.join(_END_SECONDS)
        hide_status()


def _show(stop: threading.Event) -> None:
    begun = time.monotonic()
    progress = Progress()
    while not stop.wait(_LOOK_SECONDS):
        found: list[Running] = []
        with suppress(Exception):  # the session may have ended
            found = running()
        now = time.monotonic()
        text = progress.text(found, now)
        if text is None or stop.is_set() or not _is_in_front():
            hide_status()
        elif now - begun >= _FIRST_SECONDS:
            show_status(text)


def _is_in_front() -> bool:
    """Whether the command is in the foreground of the terminal; if it is in the background, the line would disturb a shell's prompt."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return True


class Progress:
    """Makes the line from repeated looks at what runs."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._what: frozenset[object] = frozenset()
        self._since, self._before = 0.0, 0

    def text(self, found: Sequence[Running], now: float) -> str | None:
        """Return the line for what runs at `now`, s; None if nothing runs. The rate is measured since this same work was first seen."""
        if not found:
            return None
        done, tasks = sum(one.done for one in found), sum(one.tasks for one in found)
        what = frozenset(one.what for one in found)
        if what != self._what or done < self._before:  # a stage that is tried again begins anew
            self._what, self._since, self._before = what, now, done
        line = f"{done:,} of {counted(tasks, 'task')} done"
        if done == self._before or now == self._since:
            return line
        rate = (done - self._before) / (now - self._since)
        left = duration_text(round((tasks - done) / rate) * 1000) if done < tasks else "nothing"
        return f"{line}, {rate_text(rate)}, {left} left"
