"""When files are deleted and which messages groups lose: by hand, and compared with a model that takes every pass and every message."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from tests.runs.sampling import ALL
from udfs.cleaning.clean_commit_log import (
    HOUR,
    CleanSettings,
    deleted_in_pass,
    last_time_to_delete,
    next_time_to_delete,
    parse_delete_when,
    used_percent,
)
from udfs.cleaning.log_retention import (
    EXPIRED,
    EXPIRED_AND_FULL,
    FORCED,
    REMOVED,
    Deletion,
    Disk,
    LogFile,
    Loss,
    Outlook,
    Share,
    aged_from,
    file_deletions,
    loss_of,
)

UTC = ZoneInfo("UTC")
MIDNIGHT = int(dt.datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000


def at(hours: float) -> int:
    return MIDNIGHT + int(hours * HOUR)


def files(*ages: float, length: int = 1000) -> list[LogFile]:
    """Files by the hours since they were written to."""
    return [LogFile(number * length, at(-age), length) for number, age in enumerate(ages)]


def outlook(fills_at: int | None = None, growth: float = 0.0, disk: Disk | None = None, zone: str = "UTC", **settings: object) -> Outlook:
    made = CleanSettings(**settings)  # type: ignore[arg-type]
    return Outlook(since=MIDNIGHT, zone=ZoneInfo(zone), settings=made, growth=growth, fills_at=fills_at, disk=disk)


@pytest.mark.parametrize(
    ("ages", "given", "wanted"),
    [
        # old enough at 01:00; the hour is 04
        ((71, 10, 0), {}, [(4, EXPIRED), (24 * 3 + 4, EXPIRED)]),
        # old enough in the hour, and just after it
        ((72 - 4.5, 72 - 5, 0), {}, [(4.5, EXPIRED), (28, EXPIRED)]),
        # the first file is younger, and keeps the older one after it
        ((10, 71, 0), {}, [(76, EXPIRED), (76, EXPIRED)]),
        ((71, 0), {"delete_when": "13;2"}, [(2, EXPIRED)]),
        ((71, 0), {"zone": "Asia/Shanghai"}, [(20, EXPIRED)]),
        ((71, 0), {"zone": "Asia/Kolkata"}, [(22.5, EXPIRED)]),
        ((71, 0), {"file_reserved_time": 48}, [(4, EXPIRED)]),
        ((71, 0), {"delete_when": "25"}, []),
        ((71, 0), {"delete_when": "x;04"}, []),
        ((71, 0), {"file_reserved_time": 2**31 - 1}, []),
        # the last one once it is full
        ((71, 5), {"fills_at": at(2)}, [(4, EXPIRED), (76, EXPIRED)]),
        # 75 % are used 250 seconds later, 85 % another 1000 s later
        ((71.99, 10, 0), {"disk": Disk(1000, 725), "growth": 0.1}, [(250 / 3600, EXPIRED_AND_FULL), (1260 / 3600, FORCED)]),
        ((71, 10, 0), {"disk": Disk(1000, 725), "growth": 0.1}, [(1250 / 3600, FORCED), (1260 / 3600, FORCED)]),
        ((71, 10, 0), {"disk": Disk(1000, 725), "growth": 0.1, "clean_file_forcibly_enable": False},
         [(1, EXPIRED_AND_FULL), (62, EXPIRED_AND_FULL)]),
        # the forced deletion waits for the hour, and then for nothing
        ((71, 10, 0), {"disk": Disk(1000, 725), "growth": 0.1, "disk_max_used_space_ratio": 95}, [(4, EXPIRED), (4, FORCED)]),
    ],
)  # fmt: skip
def test_files_are_deleted_when_the_settings_say(
    ages: tuple[float, ...], given: dict[str, object], wanted: list[tuple[float, str]]
) -> None:
    # so short that their deletion makes hardly any room
    found = file_deletions([one._replace(length=1) for one in files(*ages)], outlook(**given))  # type: ignore[arg-type]
    assert [one.cause for one in found] == [cause for _, cause in wanted]
    assert [one.time for one in found] == [pytest.approx(at(hour), abs=10_001) for hour, _ in wanted]


def test_ten_files_go_in_a_pass() -> None:
    found = file_deletions(files(*[100] * 25, 0), outlook())
    assert [one.time - at(4) for one in found] == [0] * 10 + [10_000] * 10 + [20_000] * 5


def test_a_deletion_makes_room() -> None:
    # above 85 % at once: the first pass takes ten files, which leaves 76 %, so that the rest waits until 85 % are used again
    disk = Disk(100_000, 86_000)
    found = file_deletions(files(*[1] * 12, 0), outlook(disk=disk, growth=1.0))
    assert [(one.time - MIDNIGHT) // 1000 for one in found] == [0] * 10 + [9000, 9000]
    assert {one.cause for one in found} == {FORCED}


def test_a_disk_does_not_fill_beyond_what_the_broker_takes() -> None:
    stopped = outlook(disk=Disk(1000, 800), growth=1.0, clean_file_forcibly_enable=False, disk_max_used_space_ratio=92)
    assert file_deletions(files(71, 0), stopped) == [Deletion(at(4), EXPIRED)]


def test_a_disk_that_was_full_has_the_room_that_a_deletion_makes() -> None:
    # 90 % and a byte are used when the first file is old enough; without it 601 bytes, and 149 seconds later more than 75 % again
    given = outlook(disk=Disk(1000, 800), growth=1.0, clean_file_forcibly_enable=False)
    found = file_deletions(files(71, 71 - 1 / 60, 0, length=300), given)
    assert found == [Deletion(at(1), EXPIRED_AND_FULL), Deletion(at(1) + 149_001, EXPIRED_AND_FULL)]


@pytest.mark.parametrize(("before", "wanted"), [(6.5, 5), (4.5, 4.5), (4.0, -19), (5.0, 5), (3.9, -19)])
def test_the_last_moment_of_an_hour_is_the_one_before_the_next(before: float, wanted: float) -> None:
    assert last_time_to_delete(parse_delete_when("04"), at(before), UTC) == at(wanted) - 1


def test_hours_are_found_where_a_clock_is_put_forward_and_back() -> None:
    berlin, when = ZoneInfo("Europe/Berlin"), parse_delete_when("2")
    spring = int(dt.datetime(2024, 3, 30, 3, tzinfo=berlin).timestamp() * 1000)
    found = next_time_to_delete(when, spring, berlin)
    assert found == int(dt.datetime(2024, 4, 1, 2, tzinfo=berlin).timestamp() * 1000), "31 March has no second hour"
    autumn = int(dt.datetime(2024, 10, 27, 12, tzinfo=berlin).timestamp() * 1000)
    assert last_time_to_delete(when, autumn, berlin) == int(dt.datetime(2024, 10, 27, 1, tzinfo=UTC).timestamp() * 1000) + HOUR - 1


@pytest.mark.parametrize(("used", "usable", "percent"), [(0, 1, 0), (1, 99, 1), (1, 100, 1), (75, 25, 75), (7501, 2499, 76), (1, 0, 100)])
def test_a_part_of_a_percent_counts_as_one(used: int, usable: int, percent: int) -> None:
    assert used_percent(used, usable) == percent


# against every pass --------------------------------------------------------------------------------------------------------------------

TICK = 10 * MINUTE


def every_pass(log: list[LogFile], given: Outlook, until: int) -> list[int]:
    """The time at which each file is deleted, with a pass of cleaning every ten minutes."""
    deleted: list[int] = []
    used = given.disk.used if given.disk else 0
    for now in range(given.since, until, TICK):
        grown = used + given.growth * (now - given.since) / 1000
        percent = used_percent(int(grown), given.disk.size - int(grown)) if given.disk else 0
        follows = given.fills_at is not None and now >= given.fills_at
        modified = [file.modified for file in log[len(deleted) :]]
        if follows and modified:
            modified = [*modified[:-1], given.fills_at or 0, now]
        count = deleted_in_pass(modified, now, given.settings, percent=percent, zone=given.zone)
        used -= sum(file.length for file in log[len(deleted) : len(deleted) + count])
        deleted += [now] * count
    return deleted


@pytest.mark.parametrize("seed", range(400 if ALL else 80))
def test_files_are_deleted_as_by_a_pass_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    ages = [chance.randrange(0, 6 * 90) * TICK for _ in range(chance.randrange(1, 30))]
    ages = sorted(ages, reverse=True) if chance.random() < 0.8 else ages
    log = [LogFile(number, MIDNIGHT - age, chance.randrange(1, 2000)) for number, age in enumerate(ages)]
    settings = CleanSettings(
        file_reserved_time=chance.choice((0, 1, 24, 72)),
        delete_when=chance.choice(("04", "4;16", "0;1;2;3", "7;x", "x")),
        disk_max_used_space_ratio=chance.choice((75, 75, 50, 88)),
        clean_file_forcibly_enable=chance.random() < 0.5,
        clean_resource_interval=TICK,
    )
    zone = ZoneInfo(chance.choice(("UTC", "Asia/Kolkata", "America/New_York")))
    fills_at = MIDNIGHT + chance.randrange(300) * TICK if chance.random() < 0.5 else None
    disk = Disk(100_000, chance.randrange(40_000, 74_000)) if chance.random() < 0.5 else None
    # all that ever comes fits below the warning level
    growth = 15_000 / (4 * 24 * 3600) if disk else 0.0
    given = Outlook(since=MIDNIGHT, zone=zone, settings=settings, growth=growth, fills_at=fills_at, disk=disk)
    until = at(4 * 24)
    found = [one.time for one in file_deletions(log, given) if one.time < until - 2 * TICK]
    slow = every_pass(log, given, until)
    assert len(slow) >= len(found) >= sum(time < until - 2 * TICK for time in slow)
    assert all(0 <= theirs - ours <= 2 * TICK for ours, theirs in zip(found, slow, strict=False))
    if disk is None:  # all moments are those of a pass
        assert found == [time for time in slow if time < until - 2 * TICK]


# what groups lose ----------------------------------------------------------------------------------------------------------------------

LOG = files(71, 50, 0)
SHARES = [Share(0, 0, 10, 1000), Share(1000, 10, 20, 1000), Share(2000, 20, 30, 1000)]


def lost(offset: int, rate: float | None, given: Outlook, log: list[LogFile] = LOG, shares: list[Share] = SHARES) -> Loss:
    gone = {file.from_offset: one for file, one in zip(log, file_deletions(log, given), strict=False)}
    return loss_of([one for one in shares if one.end > offset], offset, rate, given, gone, aged_from(log, given), 0)


def test_what_a_group_has_not_consumed_when_a_file_goes_is_lost() -> None:
    # at 04:00 it has consumed two more; the next file goes a day later, and all of it is consumed by then
    found = lost(5, 0.5 / 3600, outlook())
    assert (found.next_file, found.deletion) == (0, Deletion(at(4), EXPIRED))
    assert (found.loss_at, found.messages, found.size, found.min_offset) == (at(4), 3, 300, 10)
    # it is through with the first file at 10:00, with the second one at 06:00 of the day after: they must outlive the hours before
    assert found.needed_reserved_hours == max(71 + 5, 50 + 29)


def test_the_least_reserved_time_keeps_all_and_one_hour_less_does_not() -> None:
    for hours, keeps in ((79, True), (78, False)):
        assert (lost(5, 0.5 / 3600, outlook(file_reserved_time=hours)).loss_at is None) is keeps


def test_files_that_go_in_the_same_hour_are_lost_together() -> None:
    found = lost(5, 0.0, outlook(file_reserved_time=24))
    assert (found.loss_at, found.messages, found.size, found.min_offset) == (at(4), 15, 1500, 20)
    assert found.needed_reserved_hours is None


def test_a_queue_of_which_nothing_is_left_keeps_its_begin() -> None:
    given = outlook(file_reserved_time=24)
    gone = {0: Deletion(at(4), EXPIRED), 1000: Deletion(at(4), EXPIRED)}
    assert loss_of(SHARES[:2], 5, 0.0, given, gone, aged_from(LOG, given), 3).min_offset == 3


def test_a_group_that_consumes_in_time_loses_nothing() -> None:
    found = lost(5, 100.0, outlook())
    assert (found.deletion, found.loss_at, found.needed_reserved_hours) == (Deletion(at(4), EXPIRED), None, 0)


def test_a_group_that_hardly_consumes_loses_all_that_is_deleted() -> None:
    found = lost(5, 1e-320, outlook(file_reserved_time=24))
    assert (found.loss_at, found.messages) == (at(4), 15)
    assert found.needed_reserved_hours is not None, "until the calendars end"


def test_without_a_rate_nothing_but_the_deletion_is_known() -> None:
    assert lost(5, None, outlook()) == Loss(next_file=0, deletion=Deletion(at(4), EXPIRED))


def test_messages_of_files_that_are_gone_are_lost_already() -> None:
    log = LOG[1:]
    found = lost(5, 1.0, outlook(), log)
    assert (found.deletion, found.loss_at, found.messages) == (Deletion(MIDNIGHT, REMOVED), MIDNIGHT, 5)


def by_message(shares: list[Share], offset: int, rate: Fraction, since: int, gone: dict[int, Deletion]) -> list[tuple[int, int]]:
    """(time, offset) of each lost message; the group consumes one message after the other."""
    found, free = [], Fraction(since)
    for share in shares:
        fate = gone.get(share.from_offset)
        for one in range(max(share.first, offset), share.end):
            done = free + 1000 / rate
            if fate is not None and done > fate.time:
                found.append((fate.time, one))
            else:
                free = done
        if fate is not None and found and found[-1][0] == fate.time:
            free = max(free, Fraction(fate.time))
    return found


@pytest.mark.parametrize("seed", range(2000 if ALL else 200))
def test_losses_are_those_of_a_group_that_takes_one_message_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    ages = [chance.randrange(200) for _ in range(chance.randrange(2, 9))]
    ages = sorted(ages, reverse=True) if chance.random() < 0.7 else ages
    log = files(*ages)
    given = outlook(file_reserved_time=chance.randrange(100), fills_at=chance.choice((None, at(chance.randrange(40)))))
    shares, first = [], chance.randrange(5)
    for file in log:
        count = chance.randrange(12)
        if count:
            shares.append(Share(file.from_offset, first, first + count, 7 * count))
        first += count
    if not shares:
        return
    offset = chance.randrange(shares[0].first, shares[0].end)
    rate = Fraction(1, chance.choice((1, 60, 3600, 4 * 3600, 16 * 3600)))
    gone = {file.from_offset: one for file, one in zip(log, file_deletions(log, given), strict=False)}
    found = lost(offset, float(rate), given, log, shares)
    slow = by_message(shares, offset, rate, MIDNIGHT, gone)
    if not slow:
        assert found.loss_at is None
    else:
        then = [one for one in slow if one[0] < slow[0][0] + HOUR]
        assert (found.loss_at, found.messages, found.size) == (slow[0][0], len(then), 7 * len(then))

    def loses(hours: int) -> bool:
        return (
            lost(offset, float(rate), replace(given, settings=replace(given.settings, file_reserved_time=hours)), log, shares).loss_at
            is not None
        )

    assert found.needed_reserved_hours == next(hours for hours in range(1000) if not loses(hours))
