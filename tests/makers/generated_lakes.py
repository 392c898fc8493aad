"""Makes lakes of random rows without Spark: values come from small sets, so that rows join, and some are as odd as a client may send."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.schema.table import Column, Table
from pipeline.schema.tables import LAKE_VERSION, TABLES
from tests.makers.plain_lakes import NOON, plain_lake
from udfs.filters.tags import tags_code
from udfs.pull.codes import GetMessageStatus

END = 1_700_000_000_000
MOST_ROWS = 12
_FAR = (2**63 - 1, -(2**63), -1)
_TAGS = ("paid", "sent", "Aa", "BB", "")
_TOPICS = ("t", "u", "%RETRY%g", "%DLQ%g", "it's é", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")
Draw = Callable[[random.Random], Any]


def _of(*values: Any) -> Draw:
    return lambda dice: dice.choice(values)


def _offset(dice: random.Random) -> int:
    return dice.randrange(20)


def _physic(dice: random.Random) -> int:
    return 100 * dice.randrange(40)


def _time(dice: random.Random) -> int:
    return END - dice.choice((0, 1, 999, 60_000, 3_600_000, 90_000_000)) * dice.randrange(9)


def _bytes(dice: random.Random) -> bytes:
    return dice.choice((b"", b"text", "é🤦".encode(), b"\xff\xfe", b"\xed\xa0\x80", dice.randbytes(9)))


def _properties(dice: random.Random) -> list[tuple[str, str]]:
    pools = {
        "fileReservedTime": ("72", "0", "-3", "many", " 48 "),
        "deleteWhen": ("04", "", "05;x;06", "25", "4;16", "+7"),
        "cleanResourceInterval": ("10000", "0"),
        "offsetCheckInSlave": ("true", "false"),
        "messageDelayLevel": ("1s 5s", "2m", "+1d  3h ", "x 9223372036854775807d", ""),
        "a": ("1", "x"),
    }
    return [(name, dice.choice(values)) for name, values in pools.items() if dice.random() < 0.5]


# by column; columns with other names get a value of their type
_COLUMNS: dict[str, Draw] = {
    "topic": _of(*_TOPICS),
    "queueId": _of(0, 1),
    "consumerGroup": _of("g", "h", "it's", "G"),
    "consumerOffset": lambda dice: dice.choice(_FAR) if dice.random() < 0.1 else _offset(dice),
    "physicOffset": _physic,
    "fromOffset": lambda dice: 1000 * dice.randrange(5),
    "maxPhyOffset": lambda dice: 4000 + dice.randrange(900),
    "mappedFileSizeCommitLog": _of(1000),
    "length": _of(1000),
    "kind": _of("commitlog", "commitlog", "config"),
    "size": _of(100, 100, 2**31 - 1),
    "tags": _of(*_TAGS),
    "tagsCode": lambda dice: tags_code(dice.choice(_TAGS)),
    "subscription": _of("*", "paid || sent", "a > 1", "||", ""),
    "expression": _of("*", "paid", "a > 1", "no expression", ""),
    "subString": _of("*", "paid || Aa", "a IS NULL"),
    "expressionType": _of("TAG", "SQL92"),
    "brokerRole": _of("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "status": _of(*(status.name for status in GetMessageStatus)),
    "recordedRemark": _of(*(status.name for status in GetMessageStatus), "other"),
    "recordedCode": _of(0, 19, 20, 21, 1, 24),
    "code": _of(0, 0, 0, 19, 22),
    "origin": _of("PULL_MESSAGE", "UPDATE_CONSUMER_OFFSET", "QUERY_CONSUMER_OFFSET"),
    "event": _of("HEART_BEAT", "UNREGISTER_CLIENT", "CLOSED"),
    "sysFlag": _of(0, 1, 2, 4, 8),
    "observedAt": lambda dice: END + 60_000 * dice.randrange(12),
}
_ENDINGS: tuple[tuple[str, Draw], ...] = (
    ("Offset", _offset),
    ("Micros", lambda dice: _time(dice) * 1000 + dice.randrange(1000)),
    ("micros", lambda dice: _time(dice) * 1000 + dice.randrange(1000)),
    ("Timestamp", lambda dice: 0 if dice.random() < 0.1 else _time(dice)),
    ("Millis", lambda dice: dice.randrange(5000)),
    ("Ms", _time),
)
_TYPES: dict[str, Draw] = {
    "STRING": _of("a", "b", "ab", ""),
    "INT": _of(0, 1, 2, 7),
    "BIGINT": _of(0, 1, 2, 7),
    "BOOLEAN": _of(True, False),
    "BINARY": _bytes,
    "MAP<STRING, STRING>": _properties,
    "TIMESTAMP": _of(NOON),
    "ARRAY<STRING>": lambda dice: [dice.choice(_TAGS) for _ in range(dice.randrange(3))],
    "ARRAY<INT>": lambda dice: [dice.randrange(3) for _ in range(dice.randrange(3))],
}


def _value(dice: random.Random, column: Column) -> Any:
    if column.nullable and column.name != "fromOffset" and dice.random() < 0.15:  # every log file has a fromOffset
        return None
    draw = _COLUMNS.get(column.name) or next((draw for ending, draw in _ENDINGS if column.name.endswith(ending)), None)
    draw = draw or _TYPES.get(column.type)
    return None if draw is None else draw(dice)  # structs are never read


def _rows(dice: random.Random, table: Table, broker: str) -> list[dict[str, Any]]:
    """Random rows of a broker. Their keys, sequences and times of runs differ, so that it is defined which of two rows is the last."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number in range(1 if table.key == ("brokerName",) else dice.randrange(MOST_ROWS)):
        row = {column.name: _value(dice, column) for column in table.columns} | {"brokerName": broker}
        row |= {name: f"{broker}{number}" for name in ("requestId", "path") if name in table.names and name in table.key}
        row |= {"sequence": number} if "sequence" in table.names else {}
        times = [column.name for column in table.columns if column.type == "TIMESTAMP" and row[column.name] is not None]
        row |= {name: NOON + dt.timedelta(seconds=number) for name in times}
        micros = [name for name in row if name.lower().endswith("micros") and row[name] is not None]
        row |= {name: row[name] // 1000 * 1000 + 2 * number + (table.name == "pull_request") for name in micros}
        if "maxOffset" in row and table.name == "queue":
            row["maxOffset"] += row["minOffset"]
        found[tuple(row[name] for name in table.key) or (number,)] = row
    return list(found.values())


def generated_lake(root: Path, seed: int, brokers: int) -> Path:
    """A lake with random rows of the tables, the same for the same seed; one in eight tables of a broker has no rows."""
    dice = random.Random(seed)
    names = [f"broker {number}" for number in range(brokers)]
    tables = [table for table in TABLES.values() if table.name != LAKE_VERSION.name]
    found = {table.name: [row for name in names if dice.random() > 1 / 8 for row in _rows(dice, table, name)] for table in tables}
    return plain_lake(root, {name: rows for name, rows in found.items() if rows})
