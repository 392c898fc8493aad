"""retention_risk, worked out by hand: the lost messages, the messages that remain before a loss, and the time until then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.schema import tables as t
from pipeline.schema.lag_tables import LAG_HISTORY
from pipeline.sql.statements import view_sql
from tests.runs.views_by_hand import ENGINES, Show, shown_by
from tests.truth.places import PROJECT

HOUR = 3_600_000
AS_OF = 1_000 * HOUR
ANY_HOUR = {"deleteWhen": ";".join(map(str, range(24)))}
# broker -> settings; all logs but that of `young` begin above 0, which says nothing of how early files are deleted
BROKERS: dict[str, dict[str, str]] = {
    "young": ANY_HOUR,
    "night": {},
    "evening": {"deleteWhen": "4;17;x;5"},
    "never": {"deleteWhen": "04,16"},
    "full": ANY_HOUR | {"fileReservedTime": "48"},
    "late": ANY_HOUR | {"fileReservedTime": "24"},
    "odd": {"fileReservedTime": "a while"},
    "grows": ANY_HOUR,
}
# first offset of a file -> hours ago that it was last written to; entry n of the queue is at byte n
FILES = {"young": {0: 20, 400: 10, 800: 0}}
LATER_FILES = {400: 10, 800: 0}
FILE_SIZE, GROWTH_SINCE, LOG_END = 200, 400, 900
BOUNDS = (100, 1000)  # of queue 0 of topic t, in all of them
ENTRIES = {"young": (100, 400, 499), "grows": (400, 850), "night": (400, 850)}
# observations of queue 0 of topic t: (hours ago, minOffset, consumerOffset)
Observations = list[tuple[int, int, int | None]]
DELETING: Observations = [(20, 0, 300), (10, 40, 350), (0, 100, 400)]  # 5 an hour are deleted, 5 consumed
SLOWER: Observations = [(20, 0, 380), (10, 40, 390), (0, 100, 400)]  # 1 an hour is consumed: 4 an hour nearer, 300 to go
STANDING: Observations = [(20, 100, 400), (0, 100, 400)]
# nothing was deleted but long ago, and consumed no longer: 100 in 40 hours, and the pace of the last ten observations
STOPPED: Observations = [(40, 0, 0), (20, 50, 300), *((10 - number, 100, 400) for number in range(1, 11))]
REWOUND: Observations = [(20, 0, 900), (0, 100, 400)]
# it stood at 10, was moved to the new begin, and consumed the 20 that follow: 1 an hour, not 19.5
MOVED: Observations = [(20, 0, 10), (10, 380, 390), (0, 390, 400)]
# the next pull will be moved: nothing was consumed
TO_BE_MOVED: Observations = [(20, 0, 400), (0, 450, 400)]

VIEWS = ("consume_lag", "group_pace", "log_file_deletion", "retention_risk")
Risks = dict[tuple[str, str, str, int], dict[str, Any]]
# times of a damaged record, each as the last of its broker, and as the first of a segment of its log
LEAST, GREATEST = -(2**63), 2**63 - 1

# (broker, group) -> offset, observations, (lostMessages, messagesToLoss, timeToLossMillis, basis, reason)
CASES: dict[tuple[str, str], tuple[int, Observations, tuple[Any, ...]]] = {
    ("young", "no-history"): (400, [], (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
    ("young", "one-look"): (400, STANDING[1:], (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
    ("young", "nothing-deleted"): (400, STANDING, (0, 300, 62 * HOUR, "HISTORY", None)),
    ("young", "entry-is-missing"): (500, [], (0, 400, None, None, "NO_FILE")),
    ("young", "all-consumed"): (1000, STOPPED, (0, 900, None, None, "NOTHING_WAITS")),
    ("young", "past-the-end"): (2**63 - 1, [], (0, 2**63 - 101, None, None, "NOTHING_WAITS")),
    ("young", "lost"): (30, DELETING, (70, 0, 0, None, "LOST")),
    ("young", "below-zero"): (-(2**63), [], (100, 0, 0, None, "LOST")),
    # 1 an hour: through with the first file in time, not with the second
    ("young", "next-to-go"): (100, SLOWER, (0, 0, 62 * HOUR, "HISTORY", None)),
    ("young", "new-at-the-begin"): (100, [], (0, 0, 52 * HOUR, "FILE_RESERVED_TIME", None)),
    # the file's 100 messages take 20 hours, or 100
    ("young", "as-fast"): (400, DELETING, (0, 300, None, None, "IN_TIME")),
    ("young", "slower"): (400, SLOWER, (0, 300, 62 * HOUR, "HISTORY", None)),
    ("young", "moved"): (400, MOVED, (0, 300, 62 * HOUR, "HISTORY", None)),
    ("young", "to-be-moved"): (400, TO_BE_MOVED, (0, 300, 62 * HOUR, "HISTORY", None)),
    ("young", "stopped"): (400, STOPPED, (0, 300, 62 * HOUR, "HISTORY", None)),
    ("young", "rewound"): (400, REWOUND, (0, 300, 62 * HOUR, "HISTORY", None)),
    ("young", "first-offset-now"): (400, [(20, 0, None), (0, 100, 400)], (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
    ("full", "no-history"): (400, [], (0, 300, 38 * HOUR, "FILE_RESERVED_TIME", None)),
    ("late", "no-history"): (400, [], (0, 300, 14 * HOUR, "FILE_RESERVED_TIME", None)),
    ("odd", "no-history"): (400, [], (0, 300, None, None, "NO_SETTING")),
    # AS_OF is at 16:00 of a day: in 62 hours it is 06:00, the next 04:00 comes 22 hours later, the next 17:00 11 hours later
    ("night", "no-history"): (400, [], (0, 300, 84 * HOUR, "FILE_RESERVED_TIME", None)),
    ("evening", "no-history"): (400, [], (0, 300, 73 * HOUR, "FILE_RESERVED_TIME", None)),
    ("never", "no-history"): (400, [], (0, 300, None, None, "NOT_DELETED")),
    ("night", "last-file"): (850, [], (0, 750, None, None, "NOT_DELETED")),
    # 500 bytes came in ten hours: the 100 that are left are full in two, and old enough 72 hours later
    ("grows", "last-file"): (850, [], (0, 750, 74 * HOUR, "FILE_RESERVED_TIME", None)),
}


def _row(table: t.Table, broker: str, **found: object) -> tuple[Any, ...]:
    return tuple(({"brokerName": broker} | found).get(name) for name in table.names)


def tables() -> dict[t.Table, list[tuple[Any, ...]]]:
    """The rows of the tables that the view reads."""
    return {
        t.BROKER: [
            _row(t.BROKER, name, properties=found, mappedFileSizeCommitLog=FILE_SIZE, maxPhyOffset=LOG_END, maxStoreTimestamp=AS_OF)
            for name, found in BROKERS.items()
        ],
        t.QUEUE: [(broker, "t", queue_id, *BOUNDS) for broker in BROKERS for queue_id in (0, 1)],
        t.CONSUMER_OFFSET: [
            *((broker, group, "t", 0, offset) for (broker, group), (offset, _, _) in CASES.items()),
            ("young", "no-history", "deleted", 0, 7),
        ],
        t.CONSUME_QUEUE: [
            (broker, "t", 0, offset, offset, 100, 0, None, AS_OF - HOUR, 100)
            for broker in BROKERS
            for offset in ENTRIES.get(broker, (400,))
        ],
        t.STORE_FILE: [
            _row(t.STORE_FILE, broker, kind="commitlog", fromOffset=first, length=FILE_SIZE, mtimeMs=AS_OF - ago * HOUR)
            for broker in BROKERS
            for first, ago in FILES.get(broker, LATER_FILES).items()
        ],
        t.COMMIT_LOG_SEGMENT: [_row(t.COMMIT_LOG_SEGMENT, "grows", firstPhysicOffset=GROWTH_SINCE, minStoreTimestamp=AS_OF - 10 * HOUR)],
        LAG_HISTORY: [
            (broker, group, "t", 0, AS_OF - ago * HOUR, offset, 1000, first, None, None, AS_OF, None, 1)
            for (broker, group), (_, observations, _) in CASES.items()
            for ago, first, offset in observations
        ],
    }


@pytest.fixture(params=ENGINES)
def show(request: pytest.FixtureRequest, tmp_path: Path) -> Show:
    return shown_by(request, tmp_path, request.param)


@pytest.fixture
def risks(show: Show) -> Risks:
    return risks_of(show, tables())


def risks_of(show: Show, found: dict[t.Table, list[tuple[Any, ...]]]) -> Risks:
    """The rows of the view, by (broker, group, topic, queueId)."""
    rows = show(found, *VIEWS)
    return {(row["brokerName"], row["consumerGroup"], row["topic"], row["queueId"]): row for row in rows}


def test_loss_is_counted_and_foretold_or_the_reason_is_given(risks: Risks) -> None:
    columns = ("lostMessages", "messagesToLoss", "timeToLossMillis", "basis", "reason")
    found = {case: tuple(risks[*case, "t", 0][name] for name in columns) for case in CASES}
    assert found == {case: wanted for case, (_, _, wanted) in CASES.items()}
    assert [risks["young", "no-history", "t", 1][name] for name in columns] == [None, None, None, None, "NO_OFFSET"]
    assert [risks["young", "no-history", "deleted", 0][name] for name in columns] == [None, None, None, None, "NO_QUEUE"]

    paces = {
        group: (risks["young", group, "t", 0]["minOffsetPerHour"], risks["young", group, "t", 0]["consumerOffsetPerHour"])
        for broker, group in CASES
        if broker == "young"
    }
    assert [
        paces[group]
        for group in ("slower", "moved", "to-be-moved", "stopped", "rewound", "as-fast", "nothing-deleted", "one-look", "no-history")
    ] == [*((5.0, 1.0), (19.5, 1.0), (22.5, 0.0), (2.5, 0.0), (5.0, 0.0), (5.0, 5.0), (0.0, 0.0), (None, None), (None, None))]


def test_messages_are_kept_for_as_long_as_the_broker_keeps_them_by_default() -> None:
    defaults = json.loads((PROJECT / "conf" / "broker-defaults.json").read_text())
    (found,) = [one["fileReservedTime"]["default"] for one in defaults.values() if isinstance(one, dict) and "fileReservedTime" in one]
    assert f"IS NULL THEN {found}L" in view_sql("log_file_deletion")


@pytest.mark.parametrize("first", [1, AS_OF, GREATEST])
@pytest.mark.parametrize("last", [LEAST, -1, GREATEST])
def test_a_time_of_a_damaged_record_leaves_the_others_their_losses(show: Show, last: int, first: int) -> None:
    damaged = _with_broker("grows", maxStoreTimestamp=last)
    damaged[t.COMMIT_LOG_SEGMENT].append(_row(t.COMMIT_LOG_SEGMENT, "grows", firstPhysicOffset=850, minStoreTimestamp=first))
    found, undamaged = ({key: row for key, row in risks_of(show, one).items() if key[0] != "grows"} for one in (damaged, tables()))
    assert found == undamaged


@pytest.mark.parametrize("setting", ["fileReservedTime", "cleanResourceInterval"])
def test_a_setting_that_no_broker_can_reckon_with_gives_no_time(show: Show, setting: str) -> None:
    found = risks_of(show, _with_broker("night", properties={setting: str(GREATEST)}))
    if setting == "fileReservedTime":
        assert (found["night", "no-history", "t", 0]["deletedAt"], found["night", "no-history", "t", 0]["reason"]) == (None, "NOT_DELETED")
    assert found["young", "no-history", "t", 0]["timeToLossMillis"] == 62 * HOUR


def test_a_last_file_that_fills_later_than_any_time_is_not_deleted(show: Show) -> None:
    """A damaged record in the middle of the log makes its growth next to nothing."""
    found = tables()
    found[t.COMMIT_LOG_SEGMENT] = [_row(t.COMMIT_LOG_SEGMENT, "grows", firstPhysicOffset=LOG_END - 1, minStoreTimestamp=1)]
    found[t.BROKER] = [row for row in _with_broker("grows", maxStoreTimestamp=2**62)[t.BROKER] if row[0] == "grows"]
    row = risks_of(show, found)["grows", "last-file", "t", 0]
    assert (row["deletedAt"], row["reason"]) == (None, "NOT_DELETED")


def _with_broker(broker: str, **changed: object) -> dict[t.Table, list[tuple[Any, ...]]]:
    """The tables, with other values of one broker."""
    found = tables()
    rows = [dict(zip(t.BROKER.names, row, strict=True)) for row in found[t.BROKER]]
    found[t.BROKER] = [tuple((row | changed if row["brokerName"] == broker else row).values()) for row in rows]
    return found
