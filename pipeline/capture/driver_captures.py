"""Captured pulls on the driver, without Spark: with their numbers, checked as the broker checks them, and as requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.capture.captured_pulls import PROCESSED_AT, SEQUENCES, no_captured_pulls, require_few_sources
from pipeline.capture.pull_checks import CHECKED, GROUP_COLUMNS, PULL_COLUMNS, TOPIC_COLUMNS, broker_config, check_batches
from pipeline.embedded.relations import DriverRelations
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.requests.request_lines import REQUEST_ARROW
from pipeline.schema import capture_tables as ct
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import BrokerSettings

_CHECKS = f"""
SELECT seq, {", ".join(f"p.{name}" for name in PULL_COLUMNS)}, {", ".join((*TOPIC_COLUMNS, *GROUP_COLUMNS))}
FROM {{pulls}} p LEFT JOIN {{topics}} t ON p.topic = t.topic LEFT JOIN {{groups}} g ON p.consumerGroup = g.consumerGroup
ORDER BY seq
"""
_REQUESTS = f"""
SELECT seq, consumerGroup, topic, queueId, queueOffset, maxMsgNums, filterType, expression, FALSE AS registered,
  {PROCESSED_AT} AS timestamp, sysFlag, suspendTimeoutMillis, recordedMaxOffset, CAST(NULL AS STRING) AS line
FROM {{pulls}} JOIN {{checked}} USING (seq)
WHERE refusedCode IS NULL AND checkError IS NULL
ORDER BY seq
"""


def captured_pulls_here(broker: OpenedBroker) -> pa.Table:
    """As `captured_pulls.captured_pulls`."""
    pulls = broker.rows_with(ct.PULL_REQUEST, {})
    sources = sorted(pulls["sourceDigest"].unique().to_pylist())
    if not sources:
        others = broker.lake.rows_with(ct.PULL_REQUEST, {}, ["brokerName"])["brokerName"]
        raise no_captured_pulls(broker, sorted(others.unique().to_pylist()))
    require_few_sources(broker, sources)
    ranks = pc.index_in(pulls["sourceDigest"], pa.array(sources)).cast(pa.int64())
    return pulls.append_column("seq", pc.add(pc.multiply(ranks, SEQUENCES), pulls["sequence"]))


def checked_here(broker: OpenedBroker, pulls: pa.Table, settings: BrokerSettings) -> pa.Table:
    """As `pull_checks.checked`, in the order of `seq`."""
    topics, groups = broker.rows(t.TOPIC_CONFIG), broker.rows(t.SUBSCRIPTION_GROUP)
    rows = DriverRelations(pulls=pulls, topics=topics, groups=groups).table(_CHECKS)
    checked = check_batches(broker_config(settings, broker.name), settings.version, iter(rows.to_batches()))
    return pa.Table.from_batches(checked, arrow_of(CHECKED))


def captured_requests_here(pulls: pa.Table, checked: pa.Table) -> pa.Table:
    """As `captured_requests.captured_requests`, without `line`, in the order of `seq`."""
    return DriverRelations(pulls=pulls, checked=checked).table(_REQUESTS).cast(REQUEST_ARROW)


def request_objects(requests: pa.Table, seqs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The object `request` in the line of a request file, by `seq`, for the requests whose `seq` is among `seqs`."""
    rows = requests.filter(pc.is_in(requests["seq"], pa.array(seqs, pa.int64()))).to_pylist()
    return {row["seq"]: request_object(row) for row in rows}


def request_object(row: dict[str, Any]) -> dict[str, Any]:
    """The object `request` in the line of a request file, for a row with the columns of a request."""
    wanted = None if row["filterType"] is None else {"type": row["filterType"], "expression": row["expression"]}
    return {
        "group": row["consumerGroup"],
        "topic": row["topic"],
        "queueId": row["queueId"],
        "offset": row["queueOffset"],
        "maxMsgNums": row["maxMsgNums"],
        "filter": wanted,
        "timestamp": row["timestamp"],
    }
