"""retention_risk: what is lost, how far the rest is from it, and how long that will take, worked out by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.views import CONSUME_LAG_TABLES
from pipeline.schema import tables as t
from pipeline.schema.lag_tables import LAG_HISTORY
from pipeline.sql.statements import view_sql
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000
AS_OF = 1_000 * HOUR
# broker -> settings, and minPhyOffset: `young` has deleted nothing yet, `full` deletes before its time, `late` after its time
BROKERS: dict[str, tuple[dict[str, str], int]] = {
    "young": ({}, 0),
    "full": ({"fileReservedTime": "48"}, 4096),
    "late": ({"fileReservedTime": "24"}, 4096),
    "odd": ({"fileReservedTime": "a while"}, 4096),
}
BOUNDS = (100, 1000)  # of queue 0 of topic t, in all of them
# broker, offset -> hours ago that its message was stored
STORED = {("young", 400): 10, ("full", 100): 30, ("full", 400): 20, ("late", 100): 30, ("late", 400): 29}
# observations of queue 0 of topic t: (hours ago, minOffset, consumerOffset)
Observations = list[tuple[int, int, int | None]]
DELETING: Observations = [(20, 0, 300), (10, 40, 350), (0, 100, 400)]  # 5 an hour are deleted, 5 consumed
SLOWER: Observations = [(20, 0, 380), (10, 40, 390), (0, 100, 400)]  # 1 an hour is consumed: 4 an hour nearer, 300 to go
STANDING: Observations = [(20, 100, 400), (0, 100, 400)]
# nothing was deleted but long ago, and consumed no longer: 100 in 40 hours, and the pace of the last ten observations
STOPPED: Observations = [(40, 0, 0), (20, 50, 300), *((10 - number, 100, 400) for number in range(1, 11))]
REWOUND: Observations = [(20, 0, 900), (0, 100, 400)]

# (broker, group) -> offset, observations, (lostMessages, messagesToLoss, timeToLossMillis, basis, reason)
CASES: dict[tuple[str, str], tuple[int, Observations, tuple[Any, ...]]] = {
    ("young", "no-history"): (400, [], (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
    ("young", "one-look"): (400, STANDING[1:], (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
    ("young", "nothing-deleted"): (400, STANDING, (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
    ("young", "message-without-time"): (500, [], (0, 400, None, None, "NO_STORE_TIME")),
    ("young", "all-consumed"): (1000, STOPPED, (0, 900, None, None, "NOTHING_WAITS")),
    ("young", "past-the-end"): (2**63 - 1, [], (0, 2**63 - 101, None, None, "NOTHING_WAITS")),
    ("young", "lost"): (30, DELETING, (70, 0, 0, None, "LOST")),
    ("young", "next-to-go"): (100, SLOWER, (0, 0, 0, "HISTORY", None)),
    ("young", "below-zero"): (-(2**63), [], (100, 0, 0, None, "LOST")),
    ("full", "no-history"): (400, [], (0, 300, 10 * HOUR, "FILE_RESERVED_TIME", None)),
    ("late", "no-history"): (400, [], (0, 300, 0, "FILE_RESERVED_TIME", None)),
    ("odd", "no-history"): (400, [], (0, 300, None, None, "NO_STORE_TIME")),
    ("young", "as-fast"): (400, DELETING, (0, 300, None, None, "STAYS_AHEAD")),
    ("young", "slower"): (400, SLOWER, (0, 300, 75 * HOUR, "HISTORY", None)),
    # 2.5 an hour are deleted
    ("young", "stopped"): (400, STOPPED, (0, 300, 120 * HOUR, "HISTORY", None)),
    ("young", "rewound"): (400, REWOUND, (0, 300, 60 * HOUR, "HISTORY", None)),
    ("young", "first-offset-now"): (400, [(20, 0, None), (0, 100, 400)], (0, 300, 62 * HOUR, "FILE_RESERVED_TIME", None)),
}


@pytest.fixture
def risks(spark: SparkSession) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """The rows of the view, by (broker, group, topic, queueId)."""
    data: dict[t.Table, list[tuple[Any, ...]]] = {
        t.BROKER: [
            (name, "", found, start, 0, 0, 0, 0, 0, AS_OF, "clustered", "SLAVE", False, None) for name, (found, start) in BROKERS.items()
        ],
        t.QUEUE: [(broker, "t", queue_id, *BOUNDS) for broker in BROKERS for queue_id in (0, 1)],
        t.CONSUMER_OFFSET: [
            *((broker, group, "t", 0, offset) for (broker, group), (offset, _, _) in CASES.items()),
            ("young", "no-history", "deleted", 0, 7),
        ],
        t.CONSUME_QUEUE: [(broker, "t", 0, offset, 0, 100, 0, None, AS_OF - ago * HOUR, 100) for (broker, offset), ago in STORED.items()],
        LAG_HISTORY: [
            (broker, group, "t", 0, AS_OF - ago * HOUR, offset, 1000, first, None, None, AS_OF, None, 1)
            for (broker, group), (_, observations, _) in CASES.items()
            for ago, first, offset in observations
        ],
    }
    for table in (*CONSUME_LAG_TABLES, LAG_HISTORY):
        spark.createDataFrame(data.get(table, []), table.schema).coalesce(1).createOrReplaceTempView(table.name)
    for name in ("consume_lag", "retention_risk"):
        spark.sql(view_sql(name))
    rows = spark.table("retention_risk").collect()
    return {(row["brokerName"], row["consumerGroup"], row["topic"], row["queueId"]): row.asDict() for row in rows}


def test_loss_is_counted_and_foretold_or_the_reason_is_given(risks: dict[tuple[str, str, str, int], dict[str, Any]]) -> None:
    columns = ("lostMessages", "messagesToLoss", "timeToLossMillis", "basis", "reason")
    found = {case: tuple(risks[*case, "t", 0][name] for name in columns) for case in CASES}
    assert found == {case: wanted for case, (_, _, wanted) in CASES.items()}
    assert [risks["young", "no-history", "t", 1][name] for name in columns] == [None, None, None, None, "NO_OFFSET"]
    assert [risks["young", "no-history", "deleted", 0][name] for name in columns] == [None, None, None, None, "NO_QUEUE"]

    paces = {
        group: (risks["young", group, "t", 0]["minOffsetPerHour"], risks["young", group, "t", 0]["consumerOffsetPerHour"])
        for _, group in CASES
    }
    assert [paces[group] for group in ("slower", "stopped", "rewound", "as-fast", "nothing-deleted", "one-look", "no-history")] == [
        *((5.0, 1.0), (2.5, 0.0), (5.0, 0.0), (5.0, 5.0), (0.0, 0.0), (None, None), (None, None))
    ]


def test_messages_are_kept_for_as_long_as_the_broker_keeps_them_by_default() -> None:
    defaults = json.loads((PROJECT / "conf" / "broker-defaults.json").read_text())
    (found,) = [one["fileReservedTime"]["default"] for one in defaults.values() if isinstance(one, dict) and "fileReservedTime" in one]
    assert f"{found} * 3600000L" in view_sql("retention_risk")
