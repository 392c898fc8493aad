"""The pulls of replay measures: over all queues of a store of small messages, with or without filter, at random or rising offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from benchmarks.made.synthetic_store import (
    FIRST_TIMESTAMP,
    MESSAGES_A_MILLISECOND,
    SMALL_BODY_BYTES,
    TAGS,
    TOPIC_PREFIX,
    Shape,
    write_store,
)
from benchmarks.stand import Stand
from pipeline.replay.replay import At

ENTRIES = 20_000_000
MAX_MSG_NUMS = 32
# what the peers are asked, the first of all pulls; a part of it where all is smaller
SAMPLE, SAMPLE_PARTS = 50_000, 4
SAMPLED = np.dtype([("queue", ">i4"), ("offset", ">i8"), ("timestamp", ">i8")])
# a pull as of its time comes when at most so many messages after its offset are there
_AHEAD = 64


@dataclass(frozen=True, kw_only=True)
class Pulls:
    """Pulls of one kind.

    Attributes:
        name: of their figure.
        requests: how many.
        target: of their figure.
        filter_type: of the filter, with its `expression`; None for none.
        sequential: each queue is read from its start on, else offsets are random.
        at: what of the store a pull sees.
        loopback: whether the real broker is asked over its port too.
        same_by_tag: name of the pulls that are given the same messages by their tag.
    """

    name: str
    requests: int
    target: str
    filter_type: Literal["TAG", "SQL92"] | None = None
    expression: str | None = None
    sequential: bool = False
    at: At = "snapshot"
    loopback: bool = False
    same_by_tag: str | None = None


class Given(NamedTuple):
    """What pulls were given, in all: what two that answer the same pulls must agree on."""

    messages: int
    bytes: int
    next_offsets: int


_MANY, _FEWER = 4_000_000, 1_000_000
_FLOOR = "100,000/s"
_RANDOM = Pulls(name="replay random", requests=_MANY, target="500,000/s (4 M in 8 s)", loopback=True)
_BY_TAG = replace(_RANDOM, name="replay TAG 1 in 10", target="333,000/s (4 M in 12 s)", filter_type="TAG", expression=TAGS[2])
_AS_OF = Pulls(name="replay request-time", requests=_FEWER, target=_FLOOR, at="request-time")
PULLS = (
    _RANDOM,
    Pulls(name="replay sequential", requests=_FEWER, target=_FLOOR, sequential=True),
    _BY_TAG,
    Pulls(name="replay TAG none", requests=_FEWER, target=_FLOOR, filter_type="TAG", expression="TagNone"),
    Pulls(
        name="replay SQL92 1 in 10",
        requests=_FEWER,
        target="100,000/s (1 M in 10 s)",
        filter_type="SQL92",
        expression=f"TAGS = {TAGS[2]!r}",
        same_by_tag=_BY_TAG.name,
    ),
    _AS_OF,
    replace(_AS_OF, name="replay request-time TAG 1 in 10", filter_type="TAG", expression=TAGS[2]),
)


class PulledStore:
    """The store of small messages that pulls are asked of, and its tables; peers are asked `sampled` of the pulls."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.sampled = SAMPLE // min(stand.scale, SAMPLE_PARTS)
        self.shape = stand.sized(ENTRIES, SMALL_BODY_BYTES)

    @cached_property
    def store(self) -> Path:
        """The store."""
        store = self.stand.folder / "pulled-store"
        write_store(store, self.shape)
        return store

    @cached_property
    def lake(self) -> Path:
        """Its tables."""
        return self.stand.imported("pulled-lake", self.store)

    def requests(self, pulls: Pulls, count: int) -> DataFrame:
        """The first so many pulls of a kind, as `replay` takes them."""
        return requests(
            self.stand.spark,
            self.shape,
            count,
            expression=pulls.expression,
            sequential=pulls.sequential,
            filter_type=pulls.filter_type,
            timed=pulls.at == "request-time",
        )

    def sample(self, pulls: Pulls) -> np.ndarray:
        """What the peers are asked: rows of SAMPLED."""
        asked = self.requests(pulls, self.sampled).orderBy("seq").select("seq", "queueOffset", "timestamp").toArrow()
        seq, offset, timestamp = (column.fill_null(0).to_numpy() for column in asked.columns)
        rows = np.zeros(len(seq), SAMPLED)
        rows["queue"], rows["offset"], rows["timestamp"] = seq % self.shape.all_queues, offset, timestamp
        return rows


def requests(
    spark: SparkSession,
    shape: Shape,
    count: int,
    *,
    expression: str | None,
    sequential: bool,
    filter_type: str | None = "TAG",
    timed: bool = False,
) -> DataFrame:
    """Requests over all queues: random offsets, or each queue read from its start; `timed` ones come a little after their message."""
    total, entries = shape.all_queues, shape.messages // shape.all_queues
    offset = f"pmod(id DIV {total} * {MAX_MSG_NUMS}, {entries})" if sequential else f"pmod(xxhash64(id), {entries})"
    newest = f"((queueOffset + pmod(xxhash64(id, 1), {_AHEAD})) * {total} + id % {total})"
    timestamp = f"{FIRST_TIMESTAMP} + {newest} DIV {MESSAGES_A_MILLISECOND} + 1" if timed else "NULL"
    return (
        spark.range(count)
        .selectExpr("id", f"CAST({offset} AS BIGINT) AS queueOffset")
        .selectExpr(
            "id AS seq",
            "concat('group-', id % 16) AS consumerGroup",
            f"concat('{TOPIC_PREFIX}', lpad(CAST(id % {total} DIV {shape.queues} AS STRING), 2, '0')) AS topic",
            f"CAST(id % {shape.queues} AS INT) AS queueId",
            "queueOffset",
            f"{MAX_MSG_NUMS} AS maxMsgNums",
            f"CAST({_literal(expression)} AS STRING) AS expression",
            f"CAST({_literal(filter_type if expression is not None else None)} AS STRING) AS filterType",
            "FALSE AS registered",
            f"CAST({timestamp} AS BIGINT) AS timestamp",
            "CAST(NULL AS BIGINT) AS recordedMaxOffset",
        )
    )


def _literal(text: str | None) -> str:
    return "NULL" if text is None else f'"{text}"'
