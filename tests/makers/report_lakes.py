"""Lakes for reports: a captured broker in a few rows, with names that could break a page, a picture or SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake.lake import Lake
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema import tables as t
from pipeline.schema.capture_tables import OFFSET_HISTORY, PULL_REQUEST
from pipeline.schema.lag_tables import LAG_HISTORY
from tests.makers.plain_lakes import plain_lake, replace_rows
from tests.runs.replaying import NOON
from tests.runs.sampling import ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKER = "b'1 <i>\\"
START = 1_700_000_000_000
# allowed names of topics and groups, none of which may become markup, a formula, a format or an attribute
HOSTILE = (
    "<script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "</title></style></svg></pre><h1>taken</h1>",
    "$\\frac{1}{0}$ & $x",
    "{{ 7 * 7 }} {lake} %s %(x)s",
    "\u202egnp.exe\u0000\u0007\u2028",
    "javascript:alert(1)//" + "long" * 60,
    "_ordinary 订单 %RETRY%",
)
TOPIC = "<u>orders</u> $a_b$"


def write_rows(spark: SparkSession, lake: Path, broker: str, found: Mapping[t.Table, Sequence[Mapping[str, Any]]]) -> None:
    """Replace the rows of a broker in these tables; a column that a row leaves out is NULL."""
    if not ALL:
        replace_rows(lake, broker, found, run_id=f"rows of {broker}")
        return
    writer = LakeWriter(Lake(spark, str(lake)), run_id=f"rows of {broker}", what="import", broker=broker)
    for table, rows in found.items():
        values = [tuple({"brokerName": broker, **row}.get(name) for name in table.names) for row in rows]
        writer.replace_rows(table, spark.createDataFrame(values, table.schema).coalesce(1))
    writer.commit(NOON)


def hostile_rows() -> dict[t.Table, list[dict[str, Any]]]:
    """A broker with a topic of two queues, and for each hostile name a group that commits, pulls, is corrected and lags.

    Group n has consumed up to 10 * n of each queue; each queue got a message every 100 ms, queue 0 all of 200, queue 1 only 20.
    """
    ends = {0: 200, 1: 20}
    stamps = [(queue, number, START + 100 * number) for queue, end in ends.items() for number in range(end)]
    return {
        t.BROKER: [{"maxStoreTimestamp": START + 19_900, "brokerRole": "ASYNC_MASTER", "minPhyOffset": 0, "properties": []}],
        t.QUEUE: [{"topic": TOPIC, "queueId": queue, "minOffset": 5, "maxOffset": end} for queue, end in ends.items()],
        t.CONSUME_QUEUE: [
            {
                "topic": TOPIC,
                "queueId": queue,
                "queueOffset": number,
                "physicOffset": number,
                "size": 100,
                "tagsCode": 0,
                "storeTimestamp": at,
            }
            for queue, number, at in stamps
        ],
        t.CONSUMER_OFFSET: [
            {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "consumerOffset": 10 * number} for number, group in enumerate(HOSTILE)
        ],
        OFFSET_HISTORY: [
            _commit(group, sequence, START + 1000 * second, number * second // 2)
            for number, group in enumerate(HOSTILE)
            for sequence, second in enumerate(range(0, 20, 3))
        ],
        PULL_REQUEST: [_pull(group, number, second) for number, group in enumerate(HOSTILE) for second in range(20)],
    }


def observed_rows() -> list[dict[str, Any]]:
    """Three observations of the groups: the first grows, the others fall."""
    return [
        {
            "consumerGroup": group,
            "topic": TOPIC,
            "queueId": 0,
            "observedAt": START + 60_000 * look,
            "consumerOffset": 100,
            "brokerOffset": 200,
            "minOffset": 5,
            "lag": 100 + look * (7 if number == 0 else -number),
        }
        for number, group in enumerate(HOSTILE)
        for look in range(3)
    ]


OBSERVED_TABLE = LAG_HISTORY


def _commit(group: str, sequence: int, at: int, offset: int) -> dict[str, Any]:
    wire = {"requestId": f"{group}{sequence}", "source": "s", "sourceDigest": "d", "sequence": sequence, "connection": "c", "client": "c"}
    place = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "origin": "UPDATE_CONSUMER_OFFSET"}
    return wire | place | {"micros": at * 1000, "consumerOffset": offset, "code": 0}


def _pull(group: str, number: int, second: int) -> dict[str, Any]:
    """A recorded pull: of every four, one finds messages, one is below minOffset, and two have a filter that matches no message."""
    at = (START + 1000 * second) * 1000 + 500 * number
    code, remark, offset, given, length = (20, "NO_MATCHED_MESSAGE", 10, 20, 0)
    if second % 4 == 0:
        code, remark, offset, given, length = (0, "FOUND", 10, 12, 200)
    elif second % 4 == 1:
        code, remark, offset, given, length = (21, "OFFSET_TOO_SMALL", 1, 5, 0)
    return {
        "topic": TOPIC,
        "queueId": 0,
        "requestId": f"{number}-{second}",
        "source": "s",
        "sourceDigest": "d",
        "sequence": second,
        "connection": "c",
        "client": "c",
        "opaque": second,
        "arrivalMicros": at,
        "consumerGroup": group,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "subscription": group,
        "expressionType": "TAG",
        "recordedCode": code,
        "recordedRemark": remark,
        "recordedNextBeginOffset": given,
        "recordedMinOffset": 5,
        "recordedMaxOffset": 20,
        "recordedBodyLength": length,
        "answerMicros": at + 1000,
        "held": False,
    }


def report_lake(root: Path, found: Mapping[t.Table, Sequence[Mapping[str, Any]]], *, broker: str = BROKER, version: int = 1) -> Path:
    """A lake with rows of a broker in these tables, made without Spark; a column that a row leaves out is NULL."""
    rows = {table.name: [{"brokerName": broker, **row} for row in rows] for table, rows in found.items()}
    return plain_lake(root, rows, version=version)
