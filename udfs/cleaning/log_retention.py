"""Forecast when files of a commit log will be deleted, and which messages a group loses: future passes of `clean_commit_log`.

Not the broker's own. The forecast assumes a pass at the first time at which it would delete a file, and the next pass one
cleanResourceInterval later. A broker's passes come up to that interval later.
Rule: a group loses a message whose file is deleted before the group has consumed it. The group then continues after the deleted file.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple

from udfs.cleaning import clean_commit_log as cleaning
from udfs.cleaning.clean_commit_log import HOUR

EXPIRED: Final = "FILE_RESERVED_TIME"  # old enough, in an hour of deleteWhen
EXPIRED_AND_FULL: Final = "DISK_MAX_USED_SPACE_RATIO"  # old enough, at another hour
FORCED: Final = "CLEAN_FILE_FORCIBLY"  # younger than fileReservedTime
REMOVED: Final = "REMOVED"  # already deleted
_NEVER: Final = 1e18  # ms; later than any time


class LogFile(NamedTuple):
    """A file of the commit log: offset of its first byte, time of its last write (ms), and its length in bytes."""

    from_offset: int
    modified: int
    length: int


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the store: its size, and the used bytes at the start of the forecast."""

    size: int
    used: int


class Deletion(NamedTuple):
    """The deletion of a file: its time (ms) and its reason."""

    time: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The input of a forecast.

    Attributes:
        since: start of the forecast, ms.
        zone: time zone of the broker's clock.
        settings: the broker's settings.
        growth: growth of the log, bytes a second.
        fills_at: when the log's last file is full and another one follows, ms; None for never.
        disk: the disk; None if only the age of files counts.
    """

    since: int
    zone: dt.tzinfo
    settings: cleaning.CleanSettings
    growth: float = 0.0
    fills_at: int | None = None
    disk: Disk | None = None


def aged_from(files: Sequence[LogFile], outlook: Outlook) -> dict[int, int | None]:
    """Return when each file begins to age, ms, by first offset; never before an older file, None for a last file that never fills."""
    begins = [file.modified for file in files[:-1]]
    last = None if outlook.fills_at is None else max([outlook.fills_at, outlook.since, *begins])
    return dict(zip((file.from_offset for file in files), [*accumulate(begins, max), *[last] * bool(files)], strict=True))


def file_deletions(files: Sequence[LogFile], outlook: Outlook) -> list[Deletion]:
    """Return the deletions of the files, the oldest first; the last files, which are not deleted, have none.

    The log grows at a constant rate until the disk is used above the warning level. Above it the broker refuses messages.
    """
    passes = _Passes(files, outlook)
    found: list[Deletion] = []
    while len(found) < len(files) and (time := passes.next_time(len(found))) is not None:
        found += passes.deleted(len(found), time)
    return found


class _Passes:
    """The future passes."""

    def __init__(self, files: Sequence[LogFile], outlook: Outlook) -> None:
        self.outlook, self.settings = outlook, outlook.settings
        self.when = cleaning.parse_delete_when(outlook.settings.delete_when)
        self.files = files
        self.modified = [file.modified for file in files]
        if outlook.fills_at is not None:
            self.modified[-1] = max(outlook.fills_at, outlook.since)
        self.earliest = self.counted = outlook.since
        self.used = float(outlook.disk.used) if outlook.disk else 0.0

    def next_time(self, number: int) -> int | None:
        """Return the earliest time at which the file with this number, the oldest one left, will be deleted."""
        ready = self.earliest
        if number == len(self.files) - 1:
            if self.outlook.fills_at is None:
                return None
            ready = max(ready, self.modified[-1])
        expired = max(ready, self.modified[number] + self.settings.file_reserved_time * HOUR)
        full = self._used_above(cleaning.max_used_percent(self.settings.disk_max_used_space_ratio))
        forced = self._used_above(cleaning.CLEAN_FORCIBLY_PERCENT) if self.settings.clean_file_forcibly_enable else None
        times = [self._in_an_hour(expired)]
        if full is not None and not self.when.is_broken:
            times.append(max(expired, full))
        if forced is not None:
            times.append(self._in_an_hour(max(ready, forced)))
            if full is not None and not self.when.is_broken:
                times.append(max(ready, forced, full))
        return min((time for time in times if time is not None), default=None)

    def deleted(self, number: int, time: int) -> list[Deletion]:
        """Return the deletions of the pass at a time, from the file with this number on."""
        forced = self._used_above(cleaning.CLEAN_FORCIBLY_PERCENT)
        at_once = self.settings.clean_file_forcibly_enable and forced is not None and time >= forced
        is_followed = self.outlook.fills_at is not None and time >= self.modified[-1]
        modified = self.modified[number:] + [time] * is_followed
        count = cleaning.deleted_by_time(modified, time, self.settings, clean_at_once=at_once)
        in_an_hour = self._in_an_hour(time) == time
        found = [
            Deletion(time, FORCED if time < one + self.settings.file_reserved_time * HOUR else EXPIRED if in_an_hour else EXPIRED_AND_FULL)
            for one in modified[:count]
        ]
        self._count(time)
        self.used -= sum(file.length for file in self.files[number : number + count])
        self.earliest = time + max(self.settings.clean_resource_interval, 1)
        return found

    def _in_an_hour(self, since: int) -> int | None:
        return cleaning.next_time_to_delete(self.when, since, self.outlook.zone)

    def _line(self, percent: int) -> float:
        """Return the bytes above which the disk is used above `percent`."""
        return percent * self.outlook.disk.size / 100 if self.outlook.disk else 0.0

    def _count(self, time: int) -> None:
        """Add the growth up to a time to the used bytes."""
        grown = self.used + self.outlook.growth * (time - self.counted) / 1000
        self.used = max(self.used, min(grown, self._line(cleaning.WARNING_LEVEL_PERCENT) + 1))
        self.counted = time

    def _used_above(self, percent: int) -> int | None:
        """Return when the disk will be used above `percent`; None for never."""
        if self.outlook.disk is None:
            return None
        missing = self._line(percent) - self.used
        if missing < 0:
            return self.counted
        if percent > cleaning.WARNING_LEVEL_PERCENT or self.outlook.growth <= 0:
            return None
        return self.counted + int(missing * 1000 / self.outlook.growth) + 1


# what a group loses ---------------------------------------------------------------------------------------------------------------------


class Share(NamedTuple):
    """The messages of a queue in one log file: the file's first offset, queue offsets from `first` to before `end`, and their bytes."""

    from_offset: int
    first: int
    end: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The messages of a queue that a group will lose; times in ms.

    Attributes:
        next_file: first offset of the file with the group's next message.
        deletion: deletion of that file, None if it is not deleted.
        loss_at: when the group loses the first message; None if it loses none, or its rate is unknown.
        messages: number of messages lost at that time and in the following hour.
        size: bytes of these messages, by the mean size of the queue's messages in a file.
        min_offset: minOffset of the queue at that time. Surprise: it is unchanged if the queue has no message left.
        needed_reserved_hours: the least fileReservedTime with which age alone deletes no message too early; None if there is none.
    """

    next_file: int
    deletion: Deletion | None
    loss_at: int | None = None
    messages: int | None = None
    size: int | None = None
    min_offset: int | None = None
    needed_reserved_hours: int | None = None


def loss_of(
    shares: Sequence[Share],
    offset: int,
    rate: float | None,
    outlook: Outlook,
    deletions: Mapping[int, Deletion],
    aging: Mapping[int, int | None],
    min_offset: int,
) -> Loss:
    """Return the messages of a queue that a group will lose.

    Args:
        shares: messages of the queue in each file, from the file with the group's next message on; ascending, not empty.
        offset: queue offset of the group's next message.
        rate: messages a second that the group consumes; None if it is unknown.
        outlook: input of the forecast.
        deletions: first offset of a file -> its deletion.
        aging: result of `aged_from` for all files; a file before the first of them is already deleted.
        min_offset: the queue's present minOffset.
    """
    fates = [(share, _fate(share, outlook, deletions, aging)) for share in shares]
    loss = Loss(next_file=shares[0].from_offset, deletion=fates[0][1])
    if rate is None:
        return loss
    lost = _lost(fates, offset, rate, outlook.since)
    needed = _needed_hours(shares, offset, rate, outlook, aging)
    if not lost:
        return replace(loss, needed_reserved_hours=needed)
    loss_at = lost[0].time
    then = [one for one in lost if one.time < loss_at + HOUR]
    left = [share.first for share, fate in fates if fate is None or fate.time >= loss_at + HOUR]
    return replace(
        loss,
        loss_at=loss_at,
        messages=sum(one.messages for one in then),
        size=sum(one.size for one in then),
        min_offset=left[0] if left else min_offset,
        needed_reserved_hours=needed,
    )


def _fate(share: Share, outlook: Outlook, deletions: Mapping[int, Deletion], aging: Mapping[int, int | None]) -> Deletion | None:
    if aging and share.from_offset < min(aging):
        return Deletion(outlook.since, REMOVED)
    return deletions.get(share.from_offset)


class _Lost(NamedTuple):
    time: int
    messages: int
    size: int


def _lost(fates: Sequence[tuple[Share, Deletion | None]], offset: int, rate: float, since: int) -> list[_Lost]:
    """Return the messages lost with each file; after a loss the group continues after the deleted file."""
    found, reached, time = [], float(offset), float(since)
    for share, fate in fates:
        behind = share.end - max(reached, share.first)
        done = time + behind * 1000 / rate if rate > 0 else float("inf")
        if fate is None or done <= fate.time:
            reached, time = float(share.end), done
            continue
        consumed = int((fate.time - time) * rate / 1000) if fate.time > time else 0
        messages = int(behind) - min(consumed, int(behind))
        if messages:
            found.append(_Lost(fate.time, messages, round(share.size * messages / (share.end - share.first))))
        reached, time = float(share.end), max(time, float(fate.time))
    return found


def _needed_hours(shares: Sequence[Share], offset: int, rate: float, outlook: Outlook, aging: Mapping[int, int | None]) -> int | None:
    """Return the least fileReservedTime, in hours, with which no file expires before the group has consumed its messages.

    For each file the last hour of deleteWhen before that moment decides.
    """
    if rate <= 0:
        return None
    when, needed = cleaning.parse_delete_when(outlook.settings.delete_when), 0
    for share in shares:
        aged = aging.get(share.from_offset)
        if aged is None:
            continue
        through = min(outlook.since + (share.end - offset) * 1000 / rate, _NEVER)
        last = cleaning.last_time_to_delete(when, -int(-through // 1), outlook.zone)
        if last is not None and last >= outlook.since:
            needed = max(needed, (last - aged) // HOUR + 1)
    return needed
