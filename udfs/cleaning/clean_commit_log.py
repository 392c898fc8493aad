"""When the broker deletes files of its commit log, and which.

Broker source (4.9.3): DefaultMessageStore.CleanCommitLogService (deleteExpiredFiles, isTimeToDelete, isSpaceToDelete), MappedFileQueue.
deleteExpiredFileByTime, UtilAll.isItTimeToDo and getDiskPartitionSpaceUsedPercent, MessageStoreConfig.getDiskMaxUsedSpaceRatio.
Rules: every cleanResourceInterval there is a pass. In an hour of deleteWhen, where the disk is used above diskMaxUsedSpaceRatio, or where
an operator asks for it, it deletes from the oldest file on what nobody has written to for fileReservedTime, ten files at most; it stops at
the first that is younger, and never takes the last one. Above 85 % (diskSpaceCleanForciblyRatio) age does not count, unless
cleanFileForciblyEnable is off.
Surprises: a file ages from its last write on, so that its first message lives as much longer as the file took to fill. A disk that is
fuller than diskMaxUsedSpaceRatio but not than 85 % makes the broker delete at any hour, but nothing younger than fileReservedTime. With
diskMaxUsedSpaceRatio above 85 the forced deletion waits for the hour of deleteWhen. A deleteWhen with a part that is no number deletes in
the hours named before that part, and at no other time, full disk or not. A file that somebody still reads goes up to
destroyMapedFileIntervalForcibly later, but the log's minimum is past it at once. Queues and index follow in the same pass.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from udfs.java.texts import NumberFormatError, integer_value_of

DELETE_FILES_BATCH_MAX: Final = 10
CLEAN_FORCIBLY_PERCENT: Final = 85  # diskSpaceCleanForciblyRatio, a property of the JVM
WARNING_LEVEL_PERCENT: Final = 90  # diskSpaceWarningLevelRatio: above it the broker takes no messages
HOUR: Final = 3_600_000  # ms
_LEAST_RATIO, _MOST_RATIO = 10, 95
_END_OF_CALENDARS: Final = 253_402_214_400_000  # ms, a day before the year 10000
_HOURS_TRIED: Final = 50  # a clock that is put forward may leave one hour out


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """The settings, by their own names: hours, hours of the day, percent, whether, ms."""

    file_reserved_time: int = 72
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000


class DeleteWhen(NamedTuple):
    """What a deleteWhen says.

    Attributes:
        hours: of the day.
        is_broken: a part is no number; in other hours than these a pass ends with an exception before it has deleted anything.
    """

    hours: frozenset[int]
    is_broken: bool


def parse_delete_when(text: str) -> DeleteWhen:
    """The hours of a deleteWhen, `;` between them; empty parts at its end do not count (String.split)."""
    parts = text.split(";")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    if parts == [""] and text:
        parts = []
    hours = set()
    for part in parts:
        try:
            hours.add(integer_value_of(part))
        except NumberFormatError:
            return DeleteWhen(frozenset(hours), is_broken=True)
    return DeleteWhen(frozenset(hours), is_broken=False)


def _local(millis: int, zone: dt.tzinfo) -> dt.datetime:
    return dt.datetime.fromtimestamp(millis // 1000, zone)


def _into_hour(millis: int, zone: dt.tzinfo) -> int:
    """How many ms of its hour on the broker's clock are over."""
    local = _local(millis, zone)
    return (local.minute * 60 + local.second) * 1000 + millis % 1000


def is_time_to_delete(when: DeleteWhen, millis: int, zone: dt.tzinfo) -> bool:
    """Whether a moment (ms) is in an hour of deleteWhen, on the clock of the broker's machine."""
    return _local(millis, zone).hour in when.hours


def next_time_to_delete(when: DeleteWhen, since: int, zone: dt.tzinfo) -> int | None:
    """The first moment from `since` on in an hour of deleteWhen; None where there is none."""
    time = max(since, 0)
    for _ in range(_HOURS_TRIED):
        if time > _END_OF_CALENDARS:
            return None
        if is_time_to_delete(when, time, zone):
            return time
        time += HOUR - _into_hour(time, zone)
    return None


def last_time_to_delete(when: DeleteWhen, before: int, zone: dt.tzinfo) -> int | None:
    """The last moment before `before` in an hour of deleteWhen; None where there is none."""
    time = min(before, _END_OF_CALENDARS) - 1
    for _ in range(_HOURS_TRIED):
        if time < 0:
            return None
        if is_time_to_delete(when, time, zone):
            return time
        time -= _into_hour(time, zone) + 1
    return None


def used_percent(used: int, usable: int) -> int:
    """Percent of a disk that count as used, rounded up; both in bytes, what is kept for the system being no part of either."""
    return -(-used * 100 // (used + usable))


class Space(NamedTuple):
    """What a pass makes of the disk.

    Attributes:
        is_full: files are deleted at any hour.
        clean_immediately: whatever their age, where cleanFileForciblyEnable is on.
    """

    is_full: bool
    clean_immediately: bool


def max_used_percent(ratio: int) -> int:
    """The diskMaxUsedSpaceRatio that counts."""
    return min(max(ratio, _LEAST_RATIO), _MOST_RATIO)


def space_to_delete(percent: int, settings: CleanSettings) -> Space:
    """isSpaceToDelete, for a commit log and queues on one disk."""
    return Space(percent > max_used_percent(settings.disk_max_used_space_ratio), percent > CLEAN_FORCIBLY_PERCENT)


def deleted_by_time(modified: Sequence[int], now: int, settings: CleanSettings, *, clean_at_once: bool) -> int:
    """How many files, from the oldest on, one pass deletes that may delete.

    Args:
        modified: when each file was last written to, ms, the oldest file first.
        now: ms.
        settings: the broker's.
        clean_at_once: whatever their age.
    """
    reserved = settings.file_reserved_time * HOUR
    for number, time in enumerate(modified[:-1]):
        if number >= DELETE_FILES_BATCH_MAX or not (clean_at_once or now >= time + reserved):
            return number
    return max(len(modified) - 1, 0)


def deleted_in_pass(
    modified: Sequence[int], now: int, settings: CleanSettings, *, percent: int, zone: dt.tzinfo, manually: bool = False
) -> int:
    """How many files, from the oldest on, a pass deletes (deleteExpiredFiles).

    Args:
        modified: as for `deleted_by_time`.
        now: ms.
        settings: the broker's.
        percent: of the disk that are used.
        zone: of the broker's clock.
        manually: an operator has asked for it.
    """
    when = parse_delete_when(settings.delete_when)
    is_time = is_time_to_delete(when, now, zone)
    if when.is_broken and not is_time:
        return 0
    space = space_to_delete(percent, settings)
    if not (is_time or space.is_full or manually):
        return 0
    return deleted_by_time(modified, now, settings, clean_at_once=settings.clean_file_forcibly_enable and space.clean_immediately)
