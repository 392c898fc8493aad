"""Reads the files of a followed broker's timer again if they changed.

The timer writes while its files are read. So its clock, config/timercheck, is read first, then timerwheel, then timerlog. Then each message
that the clock has passed has its unit. timerlog may have units that the wheel lacks; a start of the broker would put them back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.files.store_files import StoreFiles
from pipeline.lake.lake_writer import LakeWriter
from pipeline.rows.config_tables import timer_checkpoint_rows
from pipeline.rows.timer_rows import log_files, timer_rows
from pipeline.schema.tables import TIMER_CHECKPOINT
from pipeline.schema.timer_tables import TIMER_LOG, TIMER_SLOT
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import SparkTasks
from store_format.timer.timer_files import TIMER_WHEEL

# a read of all units may take long: after it, at least this many times its duration passes until the next read
_PAUSE = 50

# name, length and time of a file
Stamp = tuple[str, int, int]


@dataclass(slots=True, kw_only=True)
class FollowedTimer:
    """The files of a broker's timer, and when they are to be read again."""

    store: StoreFiles
    broker: str
    settings: BrokerSettings
    now: Callable[[], dt.datetime]
    _known: tuple[Stamp, ...] = ()
    _due: dt.datetime | None = None

    def are_due(self) -> bool:
        """Whether the files changed since the last read, and enough time has passed; False for a broker without a timer.

        Raises:
            CorruptStoreError: like `log_files`.
        """
        return (self._due is None or self.now() >= self._due) and self._stamps() not in {(), self._known}

    def replace_rows(self, writer: LakeWriter) -> None:
        """Replace the broker's rows of timer_checkpoint, timer_slot and timer_log."""
        started, self._known = self.now(), self._stamps()
        writer.replace_rows(TIMER_CHECKPOINT, timer_checkpoint_rows(self.store, self.broker))
        for rows in timer_rows(SparkTasks(writer.spark), self.store, self.broker, self.settings):
            for table in (TIMER_SLOT, TIMER_LOG):
                writer.replace_rows(table, rows.frame(table))
        self._due = self.now() + _PAUSE * (self.now() - started)

    def _stamps(self) -> tuple[Stamp, ...]:
        wheel = [entry for entry in self.store.folder() if entry.name == TIMER_WHEEL and not entry.is_folder]
        return tuple((entry.name, entry.length, entry.mtime_ms) for entry in (*wheel, *log_files(self.store)))
