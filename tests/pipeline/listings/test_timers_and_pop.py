"""`pullsim timers`, `pullsim pop` and their views without Spark, worked out by hand over states that no golden store has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.embedded.database import EmbeddedLake
from pipeline.embedded.questions import ask
from pipeline.main import run
from tests.makers.plain_lakes import plain_lake
from tests.runs.verdicts import on_one_line

READ = 1_795_579_538_000  # the timer's clock
NOW = READ + 60_000  # the last write: the timer is a minute late
WHEEL, REVIVE = "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster"
ROLL, CANCEL = 1 | 2, 1 | 4
Row = dict[str, Any]
# name, magic (None: no unit in timerlog), slot less READ, more properties; in the order of their queue offsets
TIMERS: list[tuple[str, int | None, int, dict[str, str]]] = [
    ("direct", None, 0, {}),  # due when the timer came to it
    ("past", 1, -1000, {}),
    ("rolled", ROLL, -2000, {}),
    ("cancelled before", CANCEL, -1000, {"TIMER_DEL_UNIQKEY": "past"}),
    ("stuck", 1, 49_000, {}),  # 11 s before NOW
    ("soon", 1, 51_000, {"TIMER_ROLL_TIMES": "1"}),
    ("dropped", 1, 90_000, {}),
    ("drops", CANCEL, 90_000, {"TIMER_DEL_UNIQKEY": "dropped"}),
    ("elsewhere", 1, 91_000, {}),  # the order to drop it is in another slot
    ("drops elsewhere", CANCEL, 92_000, {"TIMER_DEL_UNIQKEY": "elsewhere"}),
    ("far", ROLL, 93_000, {}),
    ("new", None, 0, {}),
]
_STATES = "DELIVERED DELIVERED ROLLED CANCEL_DONE OVERDUE PENDING CANCELLED CANCEL PENDING CANCEL PENDING QUEUED"
STATES = dict(zip([name for name, *_ in TIMERS], _STATES.split(), strict=True))


def messages() -> list[Row]:
    return [
        {"brokerName": "b", "topic": WHEEL, "queueId": 0, "queueOffset": number, "physicOffset": 100 * number, "storeSize": 100}
        | {"properties": list(({"REAL_TOPIC": "alarms", "UNIQ_KEY": name, "TIMER_OUT_MS": str(READ + slot)} | more).items())}
        for number, (name, _, slot, more) in enumerate(TIMERS)
    ]


def units() -> list[Row]:
    """The units of timerlog. Each is alone in its slot, except in that of 90 s, where an order to drop follows its message."""
    found = [(number, slot, magic) for number, (_, magic, slot, _) in enumerate(TIMERS) if magic is not None]
    last: dict[int, int] = {}
    rows = []
    for place, (number, slot, magic) in enumerate(found):
        rows.append({"brokerName": "b", "position": 52 * place, "prevPos": last.get(slot, -1), "magic": magic, "slotTimeMs": READ + slot})
        rows[-1] |= {"physicOffset": 100 * number, "size": 100}
        last[slot] = 52 * place
    return rows


def slots() -> list[Row]:
    rows: dict[int, Row] = {}
    for unit in units():
        slot = rows.setdefault(
            unit["slotTimeMs"], {"brokerName": "b", "timeMs": unit["slotTimeMs"], "firstPos": unit["position"], "num": 0}
        )
        slot |= {"lastPos": unit["position"], "num": slot["num"] + (-1 if unit["magic"] & 4 else 1)}
    return list(rows.values())


def body(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def revive(offset: int, tag: str, raw: bytes, *, waits: bool = False) -> Row:
    topic = {"topic": WHEEL, "queueId": 0} if waits else {"topic": REVIVE, "queueId": 4}
    properties = [("REAL_TOPIC", REVIVE), ("REAL_QID", "4")] if waits else [("REAL_QID", "9")]
    return {"brokerName": "b", "queueOffset": offset, "tags": tag, "body": raw, "properties": properties, **topic}


def held(number: int, **more: Any) -> dict[str, Any]:
    """A check point of group g, popped a second before it expires at NOW + `number` seconds: `so` and distances `d` are its messages."""
    return {"bm": 0, "bn": "b", "c": "g", "it": 1000, "pt": NOW + 1000 * number - 1000, "q": 0, "ro": 0, "t": "jobs"} | more


def ack(point: dict[str, Any], **more: Any) -> bytes:
    return body(**{name: point[name] for name in ("bn", "c", "pt", "q", "so", "t")}, **more)


GONE = held(-50, so=0, n=2, d=[0, 3])
LATE = held(-5, so=10, n=4, d=[0, 1, 2, 3], bm=0b1000)
OPEN = held(5, so=20, n=2)  # no distances: of an older broker
LONGER = held(8, so=21, n=1, d=[0], it=4000)
AGAIN = held(9, so=0, n=1, d=[0], t="%RETRY%g_jobs", rp="2")
POINTS = [
    revive(7, "ck", body(**GONE), waits=True),
    revive(30, "ck", body(**GONE)),
    revive(31, "ack", ack(GONE, ao=3)),
    revive(32, "ck", body(**LATE)),
    revive(8, "bAck", ack(LATE, aol=[10, 12]), waits=True),
    revive(9, "ack", ack(LATE | {"bn": "other"}, ao=11), waits=True),
    revive(10, "ck", body(**OPEN), waits=True),
    revive(11, "ack", ack(OPEN | {"bn": ""}, ao=21), waits=True),  # the broker takes a missing name for its own
    revive(12, "ck", body(**LONGER), waits=True),
    revive(13, "ck", body(**AGAIN), waits=True),
    *(revive(14 + number, "ck", raw, waits=True) for number, raw in enumerate([b"", b"no json", b"\xff\xfe", b"[]", b'{"n":3}'])),
    revive(20, "ck", body(**held(1, so=0, n=2_000_000_000)), waits=True),
    revive(21, "ck", body(**held(1, so=0, n=-1)), waits=True),
    revive(22, "ack", b'{"ao":99999999999999999999}', waits=True),
    {"brokerName": "b", "topic": "%RETRY%g_jobs", "queueId": 0, "queueOffset": 0, "reconsumeTimes": 3, "properties": []},
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    order = {"brokerName": "b", "consumerGroup": "o", "topic": "shifts", "queueId": 1, "popTime": NOW - 1000, "json": "{}"}
    return plain_lake(
        tmp_path_factory.mktemp("five") / "lake",
        {
            "broker": [{"brokerName": "b", "maxStoreTimestamp": NOW}],
            "commit_log": [*messages(), *POINTS],
            "queue": [{"brokerName": "b", "topic": "alarms", "queueId": queue, "minOffset": 0, "maxOffset": 7} for queue in (0, 1)],
            "timer_log": units(),
            "timer_slot": slots(),
            "timer_checkpoint": [{"brokerName": "b", "lastReadTimeMs": READ, "lastTimerQueueOffset": len(TIMERS) - 1}],
            "pending_messages": [
                {"brokerName": "b", "file": "timermetrics", "topic": "alarms", "count": 5},
                {"brokerName": "b", "file": "timermetrics", "topic": "lost", "count": 1},
                {"brokerName": "b", "file": "transactionMetrics", "topic": "alarms", "count": 9},
            ],
            "consumer_offset": [
                {"brokerName": "b", "consumerGroup": "CID_RMQ_SYS_REVIVE_GROUP", "topic": REVIVE, "queueId": 4, "consumerOffset": 30},
                {"brokerName": "b", "consumerGroup": "o", "topic": "alarms", "queueId": 0, "consumerOffset": 2},
            ],
            "consumer_order_info": [
                order | {"invisibleTime": 5000, "queueOffsets": [5, 6, 9], "commitOffsetBit": 0b101},
                order | {"queueId": 2, "invisibleTime": 500, "queueOffsets": [1], "commitOffsetBit": 0},
                order | {"queueId": 3, "invisibleTime": None, "queueOffsets": [], "commitOffsetBit": 0},
            ],
        },
    )


def rows(lake: Path, query: str) -> list[tuple[Any, ...]]:
    return list(ask(EmbeddedLake(str(lake)), query).rows)


def test_the_state_of_a_timer_message_follows_from_its_unit_and_the_clock(lake: Path) -> None:
    found = rows(lake, "SELECT uniqKey, state, overdueMillis, rollTimes, slotTimeMs FROM timer_message WHERE topic = 'alarms'")
    assert {row[0]: row[1] for row in found} == STATES
    assert {row[0]: row[2] for row in found if row[2] is not None} == {"stuck": 11_000}
    assert {row[0]: row[3] for row in found if row[3]} == {"soon": 1}
    assert {row[0]: row[4] for row in found} == {name: None if magic is None else READ + slot for name, magic, slot, _ in TIMERS}


CHECKPOINT = {"timer_checkpoint": [{"brokerName": "b", "lastReadTimeMs": READ, "lastTimerQueueOffset": len(TIMERS)}]}


def states(root: Path, broker: Row, commit_log: list[Row], timer_log: list[Row]) -> dict[str, str | None]:
    found = {"broker": [{"brokerName": "b"} | broker], "commit_log": commit_log, "timer_log": timer_log}
    return dict(rows(plain_lake(root / "lake", found | CHECKPOINT), "SELECT uniqKey, state FROM timer_message"))


@pytest.mark.parametrize("appended", [None, "False", "True"])
def test_an_order_names_what_it_drops_as_the_broker_s_setting_says(tmp_path: Path, appended: str | None) -> None:
    # TimerMessageStore.buildDeleteKey: the topic stands before the key only with appendTopicForTimerDeleteKey
    orders = {"bare": "short", "with topic": "alarms+long"}
    names = [*orders, *(key.removeprefix("alarms+") for key in orders.values())]
    log = [
        {"brokerName": "b", "topic": WHEEL, "queueId": 0, "queueOffset": number, "physicOffset": number, "storeSize": 1}
        | {
            "properties": [
                ("REAL_TOPIC", "alarms"),
                ("UNIQ_KEY", name),
                ("TIMER_OUT_MS", str(NOW + 9)),
                *([("TIMER_DEL_UNIQKEY", orders[name])] if name in orders else []),
            ]
        }
        for number, name in enumerate(names)
    ]
    # the messages to drop are beyond the roll window: they are dropped all the same
    units = [
        {"brokerName": "b", "position": number, "magic": CANCEL if name in orders else ROLL, "slotTimeMs": NOW, "physicOffset": number}
        for number, name in enumerate(names)
    ]
    broker = {"maxStoreTimestamp": NOW, "properties": [("appendTopicForTimerDeleteKey", appended)] if appended else []}
    found = states(tmp_path, broker, log, units)
    assert {name for name, state in found.items() if state == "CANCELLED"} == {"long" if appended == "True" else "short"}
    assert found["short"] != found["long"]


def test_without_timerlog_no_message_that_is_not_due_counts_as_delivered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = states(tmp_path, {"maxStoreTimestamp": NOW}, messages(), [])
    due = {name: slot for name, _, slot, _ in TIMERS}
    assert {name for name, state in found.items() if state == "NO_UNIT"} == {name for name, slot in due.items() if READ + slot > NOW}
    # due before the last write: delivered at once, or without its unit
    assert {name for name, state in found.items() if state is None} == {"stuck", "soon"}
    assert {found[name] for name, slot in due.items() if slot <= 0} == {"DELIVERED", "CANCEL_DONE"}
    assert run(["timers", "--lake", str(tmp_path / "lake"), "--engine", "duckdb"]) == 0
    assert "5 messages not due yet without a unit in timerlog" in " ".join(capsys.readouterr().out.split())


def test_a_follow_makes_no_message_overdue(tmp_path: Path) -> None:
    log = [row | {"storeTimestamp": READ + 50_000} for row in messages()]
    later = log[-1] | {"queueOffset": len(TIMERS), "physicOffset": 100 * len(TIMERS), "storeTimestamp": READ + 3_600_000}
    broker = {"maxStoreTimestamp": READ + 3_600_000, "followedFrom": 100 * len(TIMERS), "maxPhyOffset": 100 * len(TIMERS) + 100}
    found = states(tmp_path, broker, [*log, later], units())
    assert "OVERDUE" not in found.values()
    assert found["stuck"] == "PENDING"
    assert set(rows(tmp_path / "lake", "SELECT asOf FROM timer_topic")) == {(READ + 50_000,)}


def test_a_follow_that_read_the_timer_again_tells_it_as_of_then(tmp_path: Path) -> None:
    end = 100 * len(TIMERS)
    followed = {"maxStoreTimestamp": NOW, "followedFrom": end, "maxPhyOffset": end}
    assert states(tmp_path, followed, messages(), units())["stuck"] == "OVERDUE"
    assert set(rows(tmp_path / "lake", "SELECT asOf, counted FROM timer_topic")) == {(NOW, None)}


def test_a_broker_that_is_followed_counts_on(tmp_path: Path) -> None:
    found = {
        "broker": [{"brokerName": "b", "followedFrom": 0, "maxPhyOffset": 0}],
        "pending_messages": [{"brokerName": "b", "file": "timermetrics", "topic": "alarms", "count": 5}],
    }
    assert rows(plain_lake(tmp_path / "lake", found), "SELECT topic, counted FROM timer_topic") == [("alarms", None)]


def test_topics_are_counted_as_the_broker_counts(lake: Path) -> None:
    query = "SELECT topic, pending, counted, overdue, queued, cancelled, nextOutMs, lastOutMs FROM timer_topic"
    found = rows(lake, f"{query} WHERE topic IN ('alarms', 'lost') ORDER BY topic")
    # stuck, soon, dropped, elsewhere and far, less two orders to drop; "new" is due first, as nothing says more
    assert found == [("alarms", 3, 5, 1, 1, 1, READ, READ + 93_000), ("lost", 0, 1, 0, 0, 0, None, None)]


def test_a_broker_without_counts_of_its_own_does_not_count_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def brokers(counts: list[Row]) -> Path:
        there = [{"brokerName": "b", "lastReadTimeMs": READ, "lastTimerQueueOffset": len(TIMERS) - 1}]
        found = {"commit_log": messages(), "timer_log": units(), "timer_slot": slots(), "timer_checkpoint": there}
        named = [{"brokerName": "b", "file": "timermetrics", **count} for count in counts]
        root = tmp_path / str(len(counts))
        return plain_lake(root, {"broker": [{"brokerName": "b", "maxStoreTimestamp": NOW}], "pending_messages": named, **found})

    silent = brokers([])
    assert rows(silent, "SELECT counted FROM timer_topic WHERE topic = 'alarms'") == [(None,)]
    assert run(["timers", "--lake", str(silent)]) == 0
    assert "counts otherwise" not in capsys.readouterr().out
    other = brokers([{"topic": "lost", "count": 0}])
    assert rows(other, "SELECT topic, counted FROM timer_topic ORDER BY topic") == [("alarms", 0), ("lost", 0)]
    assert run(["timers", "--lake", str(other)]) == 0
    assert "the broker counts otherwise in 1 topic" in capsys.readouterr().out


def test_without_a_checkpoint_no_state_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = plain_lake(tmp_path / "lake", {"broker": [{"brokerName": "b"}], "commit_log": messages()})
    found = rows(lake, "SELECT topic, pending, overdue, queued, cancelled, withoutUnit FROM timer_topic")
    assert found == [("alarms", None, None, None, None, None)]
    assert run(["timers", "--lake", str(lake), "--engine", "duckdb"]) == 0
    assert "what waits is not known: config/timercheck was not imported" in capsys.readouterr().out
    assert rows(lake, "SELECT DISTINCT state FROM timer_message") == [(None,)]
    assert rows(lake, "SELECT count(*) FROM timer_check") == [(0,)]


def test_a_wheel_that_agrees_with_its_log_has_no_problem(lake: Path) -> None:
    assert rows(lake, "SELECT DISTINCT problem FROM timer_check") == [(None,)]
    waiting = {READ + slot for _, magic, slot, _ in TIMERS if magic is not None and slot >= 0}
    assert {row[0] for row in rows(lake, "SELECT slotTimeMs FROM timer_check")} == waiting


@pytest.mark.parametrize(
    ("table", "slot", "change", "problem"),
    [
        ("timer_slot", 51_000, None, "NO_SLOT"),
        ("timer_log", 51_000, None, "NO_UNITS"),
        ("timer_slot", 90_000, {"lastPos": 0, "num": 1}, "LOST_UNITS"),
        ("timer_log", 51_000, {"prevPos": 52}, "LOST_UNITS"),
        ("timer_slot", 90_000, {"lastPos": 0}, "LOST_UNITS"),
        ("timer_slot", 90_000, {"num": 2}, "WRONG_COUNT"),
        ("timer_log", 49_000, {"physicOffset": 7}, "NO_MESSAGE"),
        ("timer_log", 49_000, {"size": 99}, "NO_MESSAGE"),
    ],
)
def test_a_wheel_that_disagrees_is_told(tmp_path: Path, table: str, slot: int, change: Row | None, problem: str) -> None:
    found = {"timer_log": units(), "timer_slot": slots()}
    time = "timeMs" if table == "timer_slot" else "slotTimeMs"
    found[table] = [
        row | change if row[time] == READ + slot and change else row for row in found[table] if change or row[time] != READ + slot
    ]
    # so far in timerlog that a start of the broker does not come to these units
    checkpoint = [{"brokerName": "b", "lastReadTimeMs": READ, "lastTimerQueueOffset": 0, "lastTimerLogFlushPos": 300 << 20}]
    lake = plain_lake(
        tmp_path / "lake", found | {"broker": [{"brokerName": "b"}], "commit_log": messages(), "timer_checkpoint": checkpoint}
    )
    told = rows(lake, "SELECT slotTimeMs, problem FROM timer_check WHERE problem IS NOT NULL")
    assert told == [(READ + slot, problem)]


@pytest.mark.parametrize(("end", "problem"), [(100, None), (101, "NO_MESSAGE"), (None, "NO_MESSAGE")])
def test_a_unit_past_the_end_of_a_followed_log_waits_for_its_message(tmp_path: Path, end: int | None, problem: str | None) -> None:
    # the broker goes on writing timerlog while a batch of the log is read
    found = {
        "broker": [{"brokerName": "b", "maxPhyOffset": end or 100, "followedFrom": end}],
        "timer_log": [{"brokerName": "b", "position": 0, "prevPos": -1, "magic": 1, "slotTimeMs": READ, "physicOffset": 100, "size": 100}],
        "timer_slot": [{"brokerName": "b", "timeMs": READ, "firstPos": 0, "lastPos": 0, "num": 1}],
        "timer_checkpoint": [{"brokerName": "b", "lastReadTimeMs": READ, "lastTimerQueueOffset": 1}],
    }
    assert rows(plain_lake(tmp_path / "lake", found), "SELECT problem, messages FROM timer_check") == [(problem, 0)]


@pytest.mark.parametrize(("flushed", "behind"), [(0, True), (103_948, True), (104_000, False)])
def test_a_wheel_that_the_broker_s_start_puts_right_is_behind(tmp_path: Path, flushed: int, behind: bool) -> None:
    # TimerMessageStore.recover goes through timerlog from the file that has lastTimerLogFlushPos less a file's length
    moved = 52 * 500
    log = [row | {"position": row["position"] + moved, "prevPos": row["prevPos"] + moved * (row["prevPos"] >= 0)} for row in units()]
    wheel = [row | {"firstPos": row["firstPos"] + moved, "lastPos": row["lastPos"] + moved} for row in slots()]
    late = [row | {"lastPos": row["firstPos"], "num": 1} if row["timeMs"] == READ + 90_000 else row for row in wheel]
    found = {
        "broker": [{"brokerName": "b", "properties": [("mappedFileSizeTimerLog", "52000")]}],
        "commit_log": messages(),
        "timer_log": log,
        "timer_slot": [row for row in late if row["timeMs"] != READ + 51_000],
        "timer_checkpoint": [{"brokerName": "b", "lastReadTimeMs": READ, "lastTimerQueueOffset": 0, "lastTimerLogFlushPos": flushed}],
    }
    told = rows(plain_lake(tmp_path / "lake", found), "SELECT slotTimeMs, problem FROM timer_check WHERE problem IS NOT NULL")
    wanted = ("BEHIND", "BEHIND") if behind else ("NO_SLOT", "LOST_UNITS")
    assert dict(told) == dict(zip((READ + 51_000, READ + 90_000), wanted, strict=True))


def test_each_message_of_a_check_point_has_a_state(lake: Path) -> None:
    query = (
        "SELECT topic, queueOffset, state, heldUntil, reviveOffset, rePutTimes, reconsumeTimes FROM pop_message WHERE consumerGroup = 'g'"
    )
    found = rows(lake, f"{query} ORDER BY topic, queueOffset, popTime")
    assert found == [
        ("%RETRY%g_jobs", 0, "HELD", NOW + 9000, None, 2, 3),
        ("jobs", 0, "REVIVED", NOW - 50_000, 30, 0, None),  # the broker's offset in the revive log is that of its last check point
        ("jobs", 3, "ACKED", NOW - 50_000, 30, 0, None),
        ("jobs", 10, "ACKED", NOW - 5000, 32, 0, None),
        ("jobs", 11, "EXPIRED", NOW - 5000, 32, 0, None),  # acknowledged at another broker
        ("jobs", 12, "ACKED", NOW - 5000, 32, 0, None),
        ("jobs", 13, "ACKED", NOW - 5000, 32, 0, None),  # by the check point's bit map
        ("jobs", 20, "HELD", NOW + 5000, None, 0, None),
        ("jobs", 21, "EXTENDED", NOW + 5000, None, 0, None),
        ("jobs", 21, "HELD", NOW + 11_000, None, 0, None),
    ]


@pytest.mark.parametrize(
    ("point", "offset", "stored", "committed", "state"),
    [
        # PopReviveService.consumeReviveMessage takes what lies after the check point; mergeAndRevive comes 2 s after the time is over
        (30, 31, 0, 30, "ACKED"),
        (30, 31, 2000, 30, "ACKED"),
        (30, 500, 3_600_000, 600, "LATE_ACK"),
        (30, 500, 3_600_000, 29, "ACKED"),  # the reviver has still to come
        (30, None, 3_600_000, 30, "LATE_ACK"),  # in the timer yet
        (30, None, 0, 29, "ACKED"),
        (30, 29, 0, 30, "REVIVED"),
        (30, 29, 0, 28, "EXPIRED"),
        (None, 29, 0, 28, "EXPIRED"),  # the check point is in the timer, and comes after its acknowledgement
        (None, None, 0, 28, "ACKED"),
    ],
)
def test_an_acknowledgement_counts_where_the_broker_finds_it(
    tmp_path: Path, point: int | None, offset: int | None, stored: int, committed: int, state: str
) -> None:
    given = held(-4000, so=5, n=1, d=[0])
    until = given["pt"] + given["it"]
    log = [
        revive(point or 0, "ck", body(**given), waits=point is None),
        revive(offset or 0, "ack", ack(given, ao=5), waits=offset is None) | {"storeTimestamp": until + stored},
    ]
    reviver = {"brokerName": "b", "consumerGroup": "CID_RMQ_SYS_REVIVE_GROUP", "topic": REVIVE, "queueId": 4, "consumerOffset": committed}
    found = {"broker": [{"brokerName": "b", "maxStoreTimestamp": NOW}], "commit_log": log, "consumer_offset": [reviver]}
    assert rows(plain_lake(tmp_path / "lake", found), "SELECT state FROM pop_message") == [(state,)]


def test_the_broker_s_lag_takes_the_committed_offset_for_the_pull_offset_and_none_for_the_end(lake: Path) -> None:
    query = "SELECT queueId, lag, brokerLag, inFlight, available FROM broker_lag WHERE topic = 'alarms' ORDER BY queueId"
    assert rows(lake, query) == [(0, 5, 5, 0, 5), (1, None, 0, 0, 0)]


def test_the_pulled_offset_decides_on_what_is_available(tmp_path: Path) -> None:
    queue: Row = {"brokerName": "b", "topic": "t", "queueId": 0}
    found = {
        "broker": [{"brokerName": "b"}],
        "queue": [queue | {"minOffset": 0, "maxOffset": 1000}],
        "consumer_offset": [queue | {"consumerGroup": "g", "consumerOffset": 1000}],
        "pull_offset": [queue | {"consumerGroup": "g", "pullOffset": 10}],
    }
    assert rows(plain_lake(tmp_path / "lake", found), "SELECT available, inFlight FROM broker_lag") == [(990, 0)]


def test_an_orderly_pop_holds_what_its_bits_do_not_name(lake: Path) -> None:
    found = rows(
        lake, "SELECT queueId, queueOffset, state, isOrdered FROM pop_message WHERE consumerGroup = 'o' ORDER BY queueId, queueOffset"
    )
    assert found == [(1, 5, "ACKED", True), (1, 6, "HELD", True), (1, 9, "ACKED", True), (2, 1, "EXPIRED", True)]


@pytest.mark.parametrize(
    ("words", "rows", "verdict"),
    [
        (
            ("timers", "--topic", "alarms"),
            1,
            "3 timer messages wait for 1 topic: 1 overdue: the timer is stuck; the timer has not come to 1 more",
        ),
        (("timers", "--messages", "--topic", "alarms"), 8, "8 timer messages: 1 overdue, the oldest for 11 s; 1 will be dropped"),
        (("timers", "--messages", "--all", "--topic", "alarms"), 12, "12 timer messages: 1 overdue"),
        (("pop",), 6, "6 messages of 2 groups: 4 held; the time of 2 is over: they come again; 1 came back before"),
        (("pop", "--all", "--group", "o"), 4, "4 messages of 1 group: 1 held; the time of 1 is over"),
    ],
)
def test_the_lists_show_what_is_open(
    lake: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], rows: int, verdict: str
) -> None:
    names = [*words, "--lake", str(lake), "--engine", "duckdb"]
    assert run(names) == 0
    table, told = capsys.readouterr().out.split("\n\n")
    assert len(table.splitlines()) == 1 + rows
    assert on_one_line(told).startswith(verdict)


def test_all_needs_messages(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["timers", "--all", "--lake", str(lake)]) == 2
    assert "--all cannot be used without --messages" in capsys.readouterr().err
