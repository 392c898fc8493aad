"""The measure of lag in SQL: all groups of a busy broker, against other engines on the same Delta tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.figures import Figure, Peer, held_against, timed
from benchmarks.made.synthetic_store import SMALL_BODY_BYTES, TOPIC_PREFIX, Shape, write_store
from benchmarks.stand import Stand
from pipeline.lake.lake import Lake
from pipeline.lake.views import create_views

MESSAGES = 1_000_000
GROUPS = 1000
TOPICS = QUEUES = 10
_TABLES = {
    "consumer_offset": ["brokerName", "consumerGroup", "topic", "queueId", "consumerOffset"],
    "queue": ["brokerName", "topic", "queueId", "maxOffset"],
    "consume_queue": ["brokerName", "topic", "queueId", "queueOffset", "storeTimestamp"],
}
_KEY = ["brokerName", "topic", "queueId"]
LAG_OF_GROUPS = (
    "SELECT consumerGroup, sum(lag) AS lag, max(lagMillis) AS lagMillis FROM consume_lag GROUP BY consumerGroup ORDER BY consumerGroup"
)
_THEIRS = """
SELECT o.consumerGroup, sum(q.maxOffset - o.consumerOffset) AS lag,
  max((SELECT max(storeTimestamp) FROM consume_queue) - e.storeTimestamp) AS lagMillis
FROM consumer_offset o
JOIN queue q USING (brokerName, topic, queueId)
LEFT JOIN consume_queue e
  ON e.brokerName = o.brokerName AND e.topic = o.topic AND e.queueId = o.queueId AND e.queueOffset = o.consumerOffset
GROUP BY o.consumerGroup ORDER BY o.consumerGroup
"""


def measure_lag(stand: Stand) -> list[Figure]:
    """Lag of each of 1,000 groups over 100 queues, in messages and in time."""
    shape = Shape(messages=MESSAGES // stand.scale, topics=TOPICS, queues=QUEUES, body_bytes=SMALL_BODY_BYTES)
    store = stand.folder / "lag-store"
    write_store(store, shape)
    _write_offsets(store / "config", shape.messages // shape.all_queues)
    lake = stand.imported("lag-lake", store)
    create_views(Lake(stand.spark, str(lake)))
    ours, found = _answers(stand, lambda: stand.spark.sql(LAG_OF_GROUPS).toArrow())
    peers = []
    for name, ask, target in (("DuckDB", ask_duckdb, "ratio < 3"), ("Polars", _ask_polars, "")):
        theirs, expected = _answers(stand, lambda ask=ask: ask(lake))  # type: ignore[misc]
        assert found.to_pylist() == expected.to_pylist()
        peers.append(Peer(name, f"{name} on the same tables", statistics.median(theirs), target))
    return held_against("lag", ours, "s", *peers, target="2 s")


def _write_offsets(config: Path, entries: int) -> None:
    config.mkdir()
    queues = [(f"{TOPIC_PREFIX}{topic:02d}", queue) for topic in range(TOPICS) for queue in range(QUEUES)]
    table: dict[str, dict[str, int]] = {}
    for group in range(GROUPS):
        for number, (topic, queue) in enumerate(queues):
            behind = (group * 2654435761 + number * 40503) % entries
            table.setdefault(f"{topic}@group-{group:04d}", {})[str(queue)] = entries - 1 - behind
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}), "utf-8")


def _answers(stand: Stand, ask: Callable[[], pa.Table]) -> tuple[list[float], pa.Table]:
    """Seconds of each time, and the answer."""
    answers: list[pa.Table] = []
    ask()  # the first one opens what the others find open
    seconds = [timed(lambda: answers.append(ask())) for _ in range(stand.repeats)]
    return seconds, answers[-1]


def ask_duckdb(lake: Path) -> pa.Table:
    """The answer to LAG_OF_GROUPS without our views: a query that knows what it needs, over the same Delta tables."""
    with duckdb.connect() as engine:
        for name in _TABLES:
            engine.register(name, DeltaTable(lake / name).to_pyarrow_dataset())
        return engine.sql(_THEIRS).to_arrow_table()


def _ask_polars(lake: Path) -> pa.Table:
    offsets, queues, entries = (pl.scan_delta(str(lake / name)).select(columns) for name, columns in _TABLES.items())
    newest = entries.select(pl.max("storeTimestamp").alias("newest"))
    at = offsets.join(queues, on=_KEY).join(entries, left_on=[*_KEY, "consumerOffset"], right_on=[*_KEY, "queueOffset"], how="left")
    behind = at.join(newest, how="cross").with_columns(
        lag=pl.col("maxOffset") - pl.col("consumerOffset"), lagMillis=pl.col("newest") - pl.col("storeTimestamp")
    )
    return behind.group_by("consumerGroup").agg(pl.sum("lag"), pl.max("lagMillis")).sort("consumerGroup").collect().to_arrow()
