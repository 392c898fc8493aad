"""`pullsim delays` and its views without Spark: stores of the real broker against their files, and states worked out by hand."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import ask
from pipeline.listings import table
from pipeline.main import run
from tests.makers.plain_lakes import plain_lake
from tests.runs.verdicts import on_one_line
from tests.truth.golden import needs_golden

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
NOW = 1_795_579_538_000  # the last write
PRE_BLANK = {"physicOffset": 0, "size": 2**31 - 1}
Row = dict[str, Any]


def rows(lake: Path, query: str) -> list[tuple[Any, ...]]:
    return list(ask(EmbeddedLake(str(lake)), query).rows)


def entry(level: int, offset: int, due: int, **more: Any) -> Row:
    """An entry of a level that is due at NOW + due ms."""
    place = 10_000 * level + offset
    found = {"brokerName": "b", "topic": SCHEDULE, "queueId": level - 1, "queueOffset": offset, "physicOffset": place}
    return found | {"size": 1, "tagsCode": NOW + due, "bytesBefore": 0} | more


def message(one: Row, stored: int = 0) -> Row:
    """The message of an entry, which goes to queue 3 of orders."""
    same = {name: one[name] for name in ("brokerName", "topic", "queueId", "queueOffset", "physicOffset")}
    properties = [("REAL_TOPIC", "orders"), ("REAL_QID", "3"), ("UNIQ_KEY", f"{one['queueId'] + 1}/{one['queueOffset']}")]
    return same | {"storeTimestamp": NOW + stored, "storeSize": 1, "reconsumeTimes": 2, "properties": properties}


def made(root: Path, entries: list[Row], offsets: dict[int, int], *, setting: str | None = None, messages: list[Row] | None = None) -> Path:
    """A lake with entries of delay levels and the stored offsets of levels; the queues end after their last entries."""
    levels = {one["queueId"]: [other["queueOffset"] for other in entries if other["queueId"] == one["queueId"]] for one in entries}
    known = {"brokerName": "b", "topic": SCHEDULE}
    return plain_lake(
        root,
        {
            "broker": [{"brokerName": "b", "maxStoreTimestamp": NOW, "properties": [("messageDelayLevel", setting)] if setting else []}],
            "consume_queue": entries,
            "commit_log": [message(one) for one in entries if one["size"] == 1] if messages is None else messages,
            "queue": [known | {"queueId": queue, "minOffset": min(all_), "maxOffset": max(all_) + 1} for queue, all_ in levels.items()],
            "delay_offset": [{"brokerName": "b", "delayLevel": level, "offset": offset} for level, offset in offsets.items()],
        },
    )


def states(lake: Path) -> dict[str, str]:
    return {f"{level}/{offset}": state for level, offset, state in rows(lake, "SELECT delayLevel, queueOffset, state FROM delayed_message")}


def test_the_state_of_a_delayed_message_follows_from_its_time_and_the_stored_offset(tmp_path: Path) -> None:
    entries = [
        *(entry(5, offset, due) for offset, due in enumerate((-90_000, -20_001, -20_000, 0, 1, 60_000))),
        *(entry(9, offset, 1000) for offset in (4, 5)),
    ]
    lake = made(tmp_path, entries, {5: 1, 9: 5})
    assert states(lake) == {"5/1": "OVERDUE", "5/2": "DUE", "5/3": "DUE", "5/4": "PENDING", "5/5": "PENDING", "9/5": "PENDING"}
    [found] = rows(
        lake,
        "SELECT topic, queueId, dueMs, overdueMillis, reconsumeTimes, uniqKey, asOf FROM delayed_message WHERE queueOffset = 1",
    )
    assert found == ("orders", 3, NOW - 20_001, 20_001, 2, "5/1", NOW)
    query = (
        "SELECT delayLevel, delay, storedOffset, minOffset, maxOffset, waiting, pending, due, overdue, nextDueMs, lastDueMs "
        "FROM delay_level"
    )
    assert sorted(rows(lake, query)) == [
        (5, "1m", 1, 0, 6, 5, 2, 2, 1, NOW - 20_001, NOW + 60_000),
        (9, "5m", 5, 4, 6, 1, 1, 0, 0, NOW + 1000, NOW + 1000),
    ]


def test_without_a_stored_offset_only_what_is_not_due_is_known_to_wait(tmp_path: Path) -> None:
    lake = made(tmp_path, [entry(5, 0, -20_001), entry(5, 1, -20_000), entry(5, 2, 1)], {})
    assert states(lake) == {"5/0": "UNKNOWN", "5/1": "DUE", "5/2": "PENDING"}
    query = "SELECT storedOffset, waiting, overdue, unknown, nextDueMs FROM delay_level"
    assert rows(lake, query) == [(None, 2, 0, 1, NOW - 20_000)]
    assert rows(lake, "SELECT max(overdueMillis) AS late FROM delayed_message") == [(None,)]


# a message stays itself while it is delivered: its key, how often consumers failed; it is stored again once it is due
def test_what_the_topic_of_a_message_has_is_delivered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [entry(5, offset, due) for offset, due in enumerate((-90_000, -90_000, -1000, -1000, -1000, -1000, -1000, -1000, 60_000))]
    of_level = [message(one) for one in entries]
    # what differs between a copy of each message and the one that the broker would store
    others: list[Row] = [
        {},
        {"topic": "bills"},
        {},
        {"queueId": 2},
        {"reconsumeTimes": 3},
        {"physicOffset": 10},
        {"storeTimestamp": NOW - 1001},
        {"properties": [("UNIQ_KEY", "else")]},
        {},
    ]
    copies: list[Row] = [
        one
        | {"topic": "orders", "queueId": 3, "queueOffset": number, "physicOffset": 60_000 + number, "storeTimestamp": NOW - 1000}
        | other
        for number, (one, other) in enumerate(zip(of_level, others, strict=True))
    ]
    places = ("brokerName", "topic", "queueId", "queueOffset", "physicOffset")
    units = [{name: one[name] for name in places} | {"size": 1, "tagsCode": 0, "bytesBefore": 0} for one in copies]
    lake = made(tmp_path, entries + units, {5: 0}, messages=of_level + copies)
    found = dict(rows(lake, "SELECT queueOffset, state FROM delayed_message"))
    assert found == {0: "DELIVERED", 1: "OVERDUE", 2: "DELIVERED", **dict.fromkeys(range(3, 8), "DUE"), 8: "PENDING"}
    assert rows(lake, "SELECT waiting, due, overdue, delivered FROM delay_level WHERE delayLevel = 5") == [(7, 5, 1, 2)]
    assert run(["delays", "--lake", str(lake), "--engine", "duckdb", "--messages"]) == 0
    out = capsys.readouterr().out
    assert "2 delivered since delayOffset.json was written: a start from this store delivers them again" in on_one_line(out)
    # what waits comes first
    assert re.findall("^(OVERDUE|DELIVERED)", out, re.MULTILINE) == ["OVERDUE", "DELIVERED", "DELIVERED"]


# ScheduleMessageService.correctDelayOffset, and start() for a level without an offset
@pytest.mark.parametrize(("stored", "first"), [(None, 4), (-1, 4), (3, 4), (4, 4), (5, 5), (6, None), (99, None)])
def test_an_offset_outside_the_queue_counts_as_the_nearer_end(tmp_path: Path, stored: int | None, first: int | None) -> None:
    lake = made(tmp_path, [entry(3, 4, 1), entry(3, 5, 2)], {} if stored is None else {3: stored})
    [(found,)] = rows(lake, "SELECT min(queueOffset) AS first FROM delayed_message")
    assert found == first


# ScheduleMessageService.correctDeliverTimestamp: a time further away than the level's delay counts as now
def test_a_time_beyond_the_delay_of_its_level_counts_as_now(tmp_path: Path) -> None:
    lake = made(tmp_path, [entry(2, 0, 4000), entry(2, 1, 4001)], {}, setting="1m 4s")
    assert rows(lake, "SELECT queueOffset, state, dueMs FROM delayed_message ORDER BY queueOffset") == [
        (0, "PENDING", NOW + 4000),
        (1, "DUE", NOW),
    ]


def test_a_level_that_the_setting_lacks_is_never_delivered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = made(tmp_path, [entry(1, 0, 1), entry(2, 0, -60_000), entry(3, 0, 1)], {1: 0, 2: 0, 3: 0}, setting="1d +2h ")
    assert states(lake) == {"1/0": "PENDING", "2/0": "OVERDUE", "3/0": "NO_LEVEL"}
    assert sorted(rows(lake, "SELECT delayLevel, delay, waiting, nextDueMs FROM delay_level")) == [
        (1, "1d", 1, NOW + 1),
        (2, "+2h", 1, NOW - 60_000),
        (3, None, 1, None),
    ]
    for words in ((), ("--messages",)):
        assert run(["delays", "--lake", str(lake), "--engine", "duckdb", *words]) == 0
        assert "1 of levels that messageDelayLevel lacks are never delivered" in " ".join(capsys.readouterr().out.split())


def test_entries_without_a_message_do_not_wait(tmp_path: Path) -> None:
    entries = [entry(3, 0, 0, **PRE_BLANK), entry(3, 1, 5), entry(3, 2, 5)]
    lake = made(tmp_path, entries, {3: 0}, messages=[message(entries[1])])
    assert states(lake) == {"3/1": "PENDING", "3/2": "NO_MESSAGE"}
    assert rows(lake, "SELECT waiting FROM delay_level") == [(1,)]


# DeliverDelayedMessageTimerTask.executeOnTimeup: the time of the unit, else of the message
def test_the_time_of_an_entry_with_an_extension_is_that_of_its_unit(tmp_path: Path) -> None:
    place = {"tagsCode": -(2**63)}
    unit = {"extUnit": {"tagsCode": NOW + 7, "msgStoreTime": NOW, "filterBitMap": None}}
    entries = [entry(4, 0, 0, **place, **unit), entry(4, 1, 0, **place)]
    lake = made(tmp_path, entries, {4: 0}, messages=[message(one, stored=-1000) for one in entries])
    assert rows(lake, "SELECT queueOffset, dueMs FROM delayed_message ORDER BY queueOffset") == [(0, NOW + 7), (1, NOW - 1000 + 30_000)]


def test_lists_say_what_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(lake: Path, *words: str) -> str:
        assert run(["delays", "--lake", str(lake), "--engine", "duckdb", *words]) == 0
        return on_one_line(capsys.readouterr().out)

    entries = [entry(1, 0, -60_000), entry(2, 0, -60_000), entry(2, 1, 1), entry(5, 0, 1), entry(5, 1, 2)]
    late = made(tmp_path / "late", entries, {1: 0, 5: 0})
    unknown = "1 without a stored offset may have been delivered: a start delivers them again"
    overdue = "1 overdue: the level is stuck, or delayOffset.json is old"
    assert said(late).endswith(f"4 delayed messages wait in 3 levels: {overdue}; {unknown.replace('1 ', '1 more ')}")
    due = made(tmp_path / "due", [entry(1, 0, -5000)], {1: 0})
    assert said(due).endswith("1 delayed message waits in 1 level: 1 due")
    assert said(late, "--messages").endswith(f"5 delayed messages: 1 overdue, the oldest for 1 min; {unknown}")
    # OVERDUE, three PENDING by their time, and last the one that may have been delivered
    in_order = re.findall(r"(OVERDUE|PENDING|UNKNOWN) orders +(\d)", said(late, "--messages"))
    assert [level for _, level in in_order] == ["1", "2", "5", "5", "2"]
    # level 1 has an overdue one, the next ones of 2 and 5 are due at one time, and 2 has one more that may be due
    assert re.findall(r" (\d) (?:1s|5s|1m) ", said(late)) == ["1", "2", "5"]
    assert said(late, "--topic", SCHEDULE).endswith("no delayed message of this kind waits")
    done = made(tmp_path / "done", [entry(1, 0, -60_000)], {1: 1})
    assert said(done).endswith("no delayed message waits")


def test_levels_of_several_brokers_fit_into_100_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    names = ["b", "a-broker-with-a-long-name"]
    entries = [entry(5, offset, due) | {"brokerName": name} for name in names for offset, due in enumerate((-30_000, 1, 10**6))]
    found = {
        "broker": [{"brokerName": name, "maxStoreTimestamp": NOW} for name in names],
        "consume_queue": entries,
        "commit_log": [message(one) for one in entries],
        "queue": [{"brokerName": name, "topic": SCHEDULE, "queueId": 4, "minOffset": 0, "maxOffset": 2_000_000_000} for name in names],
        "delay_offset": [{"brokerName": name, "delayLevel": 5, "offset": 0} for name in names],
    }
    assert run(["delays", "--lake", str(plain_lake(tmp_path / "lake", found)), "--engine", "duckdb"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[1:6] for line in lines[1:3]] == [["5", "1m", "3", "1", "0"]] * 2


def entries_of(store: Path) -> dict[int, list[tuple[int, int, int]]]:
    """The entries of each level, by the bytes of their files: offset in the log, size, time."""
    found = {}
    for folder in sorted((store / "consumequeue" / SCHEDULE).iterdir()):
        content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        units = [one for one in struct.iter_unpack(">qiq", content) if one[1] > 0]
        found[int(folder.name) + 1] = units
    return found


@needs_golden
def test_what_a_store_of_4_9_3_delivers_is_left_out(stores: Path, tmp_path: Path) -> None:
    store = shutil.copytree(stores / "small", tmp_path / "store")
    found = entries_of(store)
    # half of each level was delivered, and no message of the last one
    done = {level: len(units) // 2 for level, units in list(found.items())[:-1]}
    offsets = ",".join(f"{level}:{offset}" for level, offset in done.items())
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "delayOffset.json").write_text(f'{{\n\t"offsetTable":{{{offsets}\n\t}}\n}}', "utf-8")
    lake = tmp_path / "lake"
    assert run(["import", str(store), "--lake", str(lake), "--broker-name", "b"]) == 0
    wanted = {
        (level, offset, physic): due
        for level, units in found.items()
        for offset, (physic, _, due) in enumerate(units)
        if offset >= done.get(level, 0)
    }
    waiting = rows(lake, "SELECT delayLevel, queueOffset, physicOffset, dueMs, state FROM delayed_message")
    assert {row[:3]: row[3] for row in waiting} == wanted
    [(newest,)] = rows(lake, "SELECT max(storeTimestamp) AS newest FROM commit_log")
    for level, *_, due, state in waiting:
        assert state == ("PENDING" if due > newest else "DUE" if due >= newest - 20_000 else "OVERDUE" if level in done else "UNKNOWN")
    levels = {
        row[0]: row[1:] for row in rows(lake, "SELECT delayLevel, storedOffset, maxOffset, waiting + unknown AS left FROM delay_level")
    }
    assert levels == {level: (done.get(level), len(units), len(units) - done.get(level, 0)) for level, units in found.items()}
    assert len(levels) > 5
    assert sum(row[-1] for row in levels.values()) > 10
    unknown = sum(state == "UNKNOWN" for *_, state in waiting)
    assert [(unknown,)] == rows(lake, "SELECT sum(unknown) AS unknown FROM delay_level")
