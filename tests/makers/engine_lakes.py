"""Makes lakes in which every table of the views has rows, for the comparison of the two engines."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.capture import exchanges
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import OFFSET_HISTORY, PULL_REQUEST, SUBSCRIPTION
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.makers.lakes import import_as
from tests.makers.plain_lakes import replace_rows
from tests.models.store_lag import StoreLag, write_offsets
from tests.runs.replaying import NOON
from tests.runs.sampling import ALL
from tests.truth.captured import rows_of, unpack
from tests.truth.golden import golden_lines

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

BROKER, TRACED = "broker-a", "traced"
TRACES = ("basic-mixmem", "holes-default")  # with reads from disk; with messages and queue files that are missing
DEAD, HALF, OP = "%DLQ%g-main", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MINUTE = 60_000
# group -> offsets at the last observations, None if the group had stored none; the end of the queue grows by 100 each time
OBSERVED: dict[str, list[int | None]] = {
    "keeps-up": [10, 110, 210, 310, 410, 510, 610, 710, 810, 910, 1010, 1110],
    "stalls": [10, 110, 210, 210, 210, 210, 210, 210, 210, 210, 210, 210],
    "rewinds": [10, 110, 210, 310, 410, 510, 40, 40, 40, 40, 40, 40],
    "slows": [10, 110, 200, 290, 370, 450, 520, 590, 650, 710, 770, 830],
    "gains": [None, 10, 20, 120, 320, 420, 620, 820, 920, 1000, 1100, 1190],
    "unknown": [None] * 12,
    "beyond": [2**63 - 1] * 12,
    "below": [-(2**63)] * 12,
}


def captured_lake(spark: SparkSession, factory: pytest.TempPathFactory) -> Path:
    """A lake with a captured broker and its store, and a second broker with recorded answers and stuck messages; both with lag_history."""
    folder = unpack("json", factory.mktemp("capture"), store=True)
    store = shutil.copytree(folder / "store", factory.mktemp("behind") / "store")
    _set_offsets(store)
    # at level 1 some messages wait, at level 2 all; at level 3 the number is unknown
    (store / "config" / "delayOffset.json").write_text('{\n\t"offsetTable":{1:20,2:0\n\t}\n}', "utf-8")
    lake = factory.mktemp("engines") / "lake"
    import_as(spark, lake, store, BROKER)
    captured: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for kind, row in rows_of(folder / "traffic.pcap"):
        captured[kind].append(row)

    seen = {PULL_REQUEST: exchanges.PULL, SUBSCRIPTION: exchanges.SUBSCRIPTION, OFFSET_HISTORY: exchanges.OFFSET}
    write(spark, lake, BROKER, {**{table: captured[kind] for table, kind in seen.items()}, LAG_HISTORY: observed()})
    answered = [_response(line) for name in TRACES for line in golden_lines("store", "traces", f"{name}.jsonl") if "request" in line]
    traced: dict[t.Table, list[dict[str, Any]]] = {t.PULL_RESPONSE: answered, t.REPLAY_RUN: [{"runId": "run", "finishedAt": NOON}]}
    bounds = [{"topic": topic, "queueId": 0, "minOffset": 0, "maxOffset": 3} for topic in (DEAD, HALF, OP)]
    write(spark, lake, TRACED, {**traced, LAG_HISTORY: observed(), t.COMMIT_LOG: stuck_messages(), t.QUEUE: bounds})
    return lake


def stuck_messages() -> list[dict[str, Any]]:
    """Rows of commit_log: dead letters, half messages, and op messages, one of which ends a half message."""
    numbers = dict.fromkeys(column.name for column in t.COMMIT_LOG.columns if column.type in {"INT", "BIGINT"})
    plain = dict.fromkeys(numbers, 0) | {"bornHost": "10.0.0.1", "storeHost": "10.0.0.2", "body": b"", "propertiesRaw": b""}
    found = [
        *((DEAD, number, {"RETRY_TOPIC": "orders"} if number else {}, b"", None) for number in range(3)),
        *((HALF, number, {"REAL_TOPIC": "orders", "REAL_QID": "1", "TRANSACTION_CHECK_TIMES": "2"}, b"", None) for number in range(3)),
        (OP, 0, {}, b"1", "d"),
        (OP, 1, {}, b"\xff", "d"),
    ]
    return [
        plain
        | {"topic": topic, "queueOffset": offset, "physicOffset": place, "storeTimestamp": MINUTE + place, "storeSize": 10 + place}
        | {"properties": properties, "body": body, "tags": tags}
        for place, (topic, offset, properties, body, tags) in enumerate(found)
    ]


def _set_offsets(store: Path) -> None:
    """Give groups with filters of all kinds offsets at, before, past and far from the bounds of the queues."""
    queues = sorted(StoreLag(store).queues.items())
    groups = ("g-main", "g-tag", "g-sql", "g-sqlx", "g-first", "g-lite", "nobody-knows")
    offsets: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for number, group in enumerate(groups):
        for other, ((topic, queue_id), queue) in enumerate(queues):
            places = (queue.minimum, queue.maximum, queue.maximum + 3, queue.minimum - 1, (queue.minimum + queue.maximum) // 2)
            if (number + other) % 4:
                offsets[topic, group][queue_id] = places[(number + other) % len(places)]
    offsets["orders", "extreme"] = {0: 2**63 - 1, 1: -(2**63), 99: 7}
    offsets["deleted", "gone"] = {3: 5}
    write_offsets(store, offsets)


def observed() -> list[dict[str, Any]]:
    """Rows of lag_history."""
    return [
        {
            "consumerGroup": group,
            "topic": "orders",
            "queueId": queue_id,
            "observedAt": 1_795_257_316_000 + number * MINUTE,
            "consumerOffset": offset,
            "brokerOffset": 120 + 100 * number,
            "minOffset": 10 * number,
            "lag": _lag(120 + 100 * number, offset),
            "lakeVersion": number,
        }
        for group, offsets in OBSERVED.items()
        for queue_id in (0, 1)
        for number, offset in enumerate(offsets[: len(offsets) - 2 * queue_id])
    ]


def _lag(end: int, offset: int | None) -> int | None:
    lag = None if offset is None else end - offset
    return None if lag is None or abs(lag) >= 2**63 else lag


def _response(line: dict[str, Any]) -> dict[str, Any]:
    asked, told = line["request"], line["response"] or {}
    names = {"topic": "topic", "queueId": "queueId", "queueOffset": "offset", "consumerGroup": "group", "maxMsgNums": "maxMsgNums"}
    row = {name: value for name, value in told.items() if name in t.PULL_RESPONSE.names}
    return row | {name: asked[of] for name, of in names.items()} | {"runId": "run"}


def write(spark: SparkSession, lake: Path, broker: str, found: dict[t.Table, list[dict[str, Any]]]) -> None:
    """Commit rows of tables for a broker: by Spark in `./run long`, else without it."""
    from pipeline.lake.lake import Lake
    from pipeline.lake.lake_writer import LakeWriter

    if not ALL:
        replace_rows(lake, broker, found, run_id=broker, what="capture")
        return
    writer = LakeWriter(Lake(spark, str(lake)), run_id=broker, what="capture", broker=broker)
    for table, rows in found.items():
        values = [tuple((row | {"brokerName": broker}).get(name) for name in table.names) for row in rows]
        writer.replace_rows(table, spark.createDataFrame(values, table.schema).coalesce(1))
    writer.commit(NOON)
