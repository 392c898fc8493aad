"""When the broker deletes files of its commit log, and which.

Broker source (4.9.3): DefaultMessageStore.CleanCommitLogService (deleteExpiredFiles, isTimeToDelete, isSpaceToDelete), MappedFileQueue.
deleteExpiredFileByTime, UtilAll.isItTimeToDo and getDiskPartitionSpaceUsedPercent, MessageStoreConfig.getDiskMaxUsedSpaceRatio.
Rules: a pass runs every cleanResourceInterval. It deletes files in an hour of deleteWhen, if the disk is used above diskMaxUsedSpaceRatio,
or if an operator requests it. From the oldest file on it deletes files without a write for fileReservedTime, ten files at most. It stops
at the first younger file, and never deletes the last file. Above 85 % (diskSpaceCleanForciblyRatio) a file's age does not count, unless
cleanFileForciblyEnable is off.
Surprises: a file's age is counted from its last write, so its first message is kept longer, by the time that the file took to fill. If the
disk is used above diskMaxUsedSpaceRatio but not above 85 %, the broker deletes at any hour, but no file younger than fileReservedTime. With
diskMaxUsedSpaceRatio above 85 the forced deletion waits for the hour of deleteWhen. If a part of deleteWhen is no number, the broker
deletes only in the hours before that part, even if the disk is full. A file that is still being read is deleted up to
destroyMapedFileIntervalForcibly later, but the log's minOffset is past it at once. Queues and index follow in the same pass.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from udfs.java.texts import NumberFormatError, integer_value_of

DELETE_FILES_BATCH_MAX: Final = 10
CLEAN_FORCIBLY_PERCENT: Final = 85  # diskSpaceCleanForciblyRatio, a property of the JVM
WARNING_LEVEL_PERCENT: Final = 90  # diskSpaceWarningLevelRatio: above it the broker refuses messages
HOUR: Final = 3_600_000  # ms
_LEAST_RATIO, _MOST_RATIO = 10, 95
_END_OF_CALENDARS: Final = 253_402_214_400_000  # ms, a day before the year 10000
_HOURS_TRIED: Final = 50  # two days: a clock that is put forward may skip the hour on one day


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """The settings of a pass, under the broker's own names: fileReservedTime in hours, intervals in ms, ratios in percent."""

    file_reserved_time: int = 72
    delete_when: str = "04"
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000


class DeleteWhen(NamedTuple):
    """The hours of a deleteWhen; if a part is no number, it is broken: outside the hours a pass then throws before it deletes a file."""

    hours: frozenset[int]
    is_broken: bool


def parse_delete_when(text: str) -> DeleteWhen:
    """Return the hours of a deleteWhen, separated by `;`; empty parts at its end are ignored (String.split)."""
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
    """Return the ms since the begin of the hour, on the clock of the broker's machine."""
    local = _local(millis, zone)
    return (local.minute * 60 + local.second) * 1000 + millis % 1000


def is_time_to_delete(when: DeleteWhen, millis: int, zone: dt.tzinfo) -> bool:
    """Return whether a time (ms) is in an hour of deleteWhen, on the clock of the broker's machine."""
    return _local(millis, zone).hour in when.hours


def next_time_to_delete(when: DeleteWhen, since: int, zone: dt.tzinfo) -> int | None:
    """Return the first time at or after `since` (ms) in an hour of deleteWhen; None if there is none."""
    time = max(since, 0)
    for _ in range(_HOURS_TRIED):
        if time > _END_OF_CALENDARS:
            return None
        if is_time_to_delete(when, time, zone):
            return time
        time += HOUR - _into_hour(time, zone)
    return None


def last_time_to_delete(when: DeleteWhen, before: int, zone: dt.tzinfo) -> int | None:
    """Return the last time before `before` (ms) in an hour of deleteWhen; None if there is none."""
    time = min(before, _END_OF_CALENDARS) - 1
    for _ in range(_HOURS_TRIED):
        if time < 0:
            return None
        if is_time_to_delete(when, time, zone):
            return time
        time -= _into_hour(time, zone) + 1
    return None


def used_percent(used: int, usable: int) -> int:
    """Return the used percent of a disk, rounded up, from used and usable bytes without those reserved for the system.

    Tests of the forecast use it, to run every pass for comparison.
    """
    return -(-used * 100 // (used + usable))


class Space(NamedTuple):
    """How a pass rates the use of the disk: whether it is full, so that files are deleted at any hour.

    `clean_immediately` is whether files are deleted whatever their age, if cleanFileForciblyEnable is on.
    """

    is_full: bool
    clean_immediately: bool


def max_used_percent(ratio: int) -> int:
    """Return the effective diskMaxUsedSpaceRatio: the setting, limited to the broker's least and greatest values."""
    return min(max(ratio, _LEAST_RATIO), _MOST_RATIO)


def space_to_delete(percent: int, settings: CleanSettings) -> Space:
    """Return the rating of a disk used to `percent`, for a commit log and queues on one disk: isSpaceToDelete."""
    return Space(percent > max_used_percent(settings.disk_max_used_space_ratio), percent > CLEAN_FORCIBLY_PERCENT)


def deleted_by_time(modified: Sequence[int], now: int, settings: CleanSettings, *, clean_at_once: bool) -> int:
    """Return how many files, from the oldest on, a pass deletes if `now` (ms) is a time at which it may delete.

    `modified` are the times of the files' last writes, ms, the oldest file first; with `clean_at_once` a file's age does not count.
    """
    reserved = settings.file_reserved_time * HOUR
    for number, time in enumerate(modified[:-1]):
        if number >= DELETE_FILES_BATCH_MAX or not (clean_at_once or now >= time + reserved):
            return number
    return max(len(modified) - 1, 0)


def deleted_in_pass(
    modified: Sequence[int], now: int, settings: CleanSettings, *, percent: int, zone: dt.tzinfo, manually: bool = False
) -> int:
    """Return how many files, from the oldest on, a pass at `now` (ms) deletes (deleteExpiredFiles).

    Tests compare it with a broker, and run every pass with it to check the forecast. `modified` are the times of the files' last writes,
    ms, the oldest file first; `percent` of the disk are used; `manually` is whether an operator has requested the deletion.
    """
    when = parse_delete_when(settings.delete_when)
    is_time = is_time_to_delete(when, now, zone)
    if when.is_broken and not is_time:
        return 0
    space = space_to_delete(percent, settings)
    if not (is_time or space.is_full or manually):
        return 0
    return deleted_by_time(modified, now, settings, clean_at_once=settings.clean_file_forcibly_enable and space.clean_immediately)
