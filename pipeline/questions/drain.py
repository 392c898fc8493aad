"""How many pulls it takes to read on: the chains of pulls that consumers would have made, each starting where the one before it says.

A chain is one of each (group, topic, queue, filter, maxMsgNums) among the requests. It starts at the least offset that these ask for, and
ends behind the last message that any of them gets under either setting: so both settings read the same stretch. The kernel answers every
pull of it, on the whole of the store; what a broker would say to the end of a shorter one depends on its time.

Chains go on through a queue file within a task, and meet the next file in the next round: as many rounds as files, however many pulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.kernel_batches import KERNEL_COLUMNS, Answering, PackedPart, parts_of, requests_with_entries
from pipeline.replay.replay import RequestProfile, requests_after_entries
from pipeline.requests.packing import Col
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import PullSettings
from udfs.pull import get_message as gm
from udfs.pull.codes import GetMessageStatus

_KEY: Final = ("consumerGroup", "topic", "queueId", "filterType", "expression", "registered", "maxMsgNums")
OPEN, DONE, STUCK = range(3)
_SCHEMA = "seq BIGINT, state INT, nextOffset BIGINT, pulls BIGINT, found BIGINT, messages BIGINT, bytes BIGINT, fromDisk BIGINT"
_ARROW = arrow_of(_SCHEMA)
_COUNTED: Final = ("pulls", "found", "messages", "bytes", "fromDisk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What the chains come to under one set of settings.

    Attributes:
        chains: how many there are.
        stuck: of these, how many do not reach their end, as a pull throws, is refused, or does not get on.
        pulls: in all chains.
        found: of these, those that find messages.
        messages: given.
        bytes: of these.
        from_disk: pulls whose last entry read lies on disk.
    """

    chains: int
    stuck: int
    pulls: int
    found: int
    messages: int
    bytes: int
    from_disk: int


def drain(
    broker: OpenedBroker, requests: DataFrame, answers: DataFrame, settings: Sequence[PullSettings], *, into_messages: bool
) -> tuple[Drained, Drained]:
    """Follow the chains of the requests under two sets of settings.

    Args:
        broker: whose store answers.
        requests: rows of a request file.
        answers: `seq` and the structs `set` and `versus`, each with the queue offsets of its `messages`.
        settings: both.
        into_messages: whether any filter may look into messages.
    """
    chains = chains_of(requests, answers).localCheckpoint()
    first, second = (_follow(broker, chains, one, RequestProfile(into_messages=into_messages).under(one)) for one in settings)
    return first, second


def chains_of(requests: DataFrame, answers: DataFrame) -> DataFrame:
    """The first pull of each chain, in the columns that a replay takes; its end stands in `recordedMaxOffset`."""
    last = [F.element_at(F.when(F.size(given) > 0, F.col(given)), -1) for given in ("set.messages", "versus.messages")]
    ends = answers.select("seq", (F.greatest(*last) + 1).alias("chainEnd"))
    pulls = requests.select("seq", *_KEY, "queueOffset").join(ends, "seq")
    grouped = pulls.groupBy(*_KEY).agg(
        F.min("seq").alias("seq"), F.min("queueOffset").alias("queueOffset"), F.max("chainEnd").alias("chainEnd")
    )
    return grouped.where("queueOffset < chainEnd").select(
        "seq", *_KEY, "queueOffset", F.lit(None).cast("BIGINT").alias("timestamp"), F.col("chainEnd").alias("recordedMaxOffset")
    )


def _follow(broker: OpenedBroker, chains: DataFrame, settings: PullSettings, profile: RequestProfile) -> Drained:
    totals = dict.fromkeys(_COUNTED, 0)
    ended, stuck, going = 0, 0, chains
    while True:
        parts = requests_after_entries(
            broker,
            going,
            at="snapshot",
            settings=settings,
            with_entries=False,
            profile=profile,
            whole_files=True,
        )
        stepped = reduce(DataFrame.unionByName, [rows.mapInArrow(partial(drain_batches, answering), _SCHEMA) for answering, rows in parts])
        stepped = stepped.localCheckpoint()
        states = stepped.groupBy("state").agg(F.count("*").alias("chains"), *[F.sum(name).alias(name) for name in _COUNTED]).collect()
        for row in states:
            totals = {name: total + row[name] for name, total in totals.items()}
            ended += row["chains"] if row["state"] != OPEN else 0
            stuck += row["chains"] if row["state"] == STUCK else 0
        if all(row["state"] != OPEN for row in states):
            return Drained(
                chains=ended,
                stuck=stuck,
                pulls=totals["pulls"],
                found=totals["found"],
                messages=totals["messages"],
                bytes=totals["bytes"],
                from_disk=totals["fromDisk"],
            )
        reached = stepped.where(F.col("state") == OPEN).select("seq", F.col("nextOffset").alias("queueOffset"))
        going = chains.drop("queueOffset").join(reached, "seq").localCheckpoint()


def drain_batches(answering: Answering, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Follow the chains of packed rows, each met with its queue file, until they end or leave the file."""
    for packed in requests_with_entries(answering, batches):
        for part in parts_of(answering, packed):
            yield _through_file(answering, part, packed.row["key"])


def _through_file(answering: Answering, part: PackedPart, file: int) -> pa.RecordBatch:
    """One part's chains: those that are open where the next pull starts in another file."""
    matrix, entries = part.packed.matrix, int(answering.caps[gm.ENTRIES_A_FILE])
    requests = np.ascontiguousarray(matrix[:, KERNEL_COLUMNS])
    state = np.full(len(requests), OPEN if answering.readable else STUCK, np.int64)
    state[part.refused] = STUCK
    counted: dict[str, NDArray[np.int64]] = {name: np.zeros(len(requests), np.int64) for name in _COUNTED}
    going = np.flatnonzero(state == OPEN)
    while len(going):
        asked = requests[going]
        answers = gm.get_message(asked, answering.caps, part.block, part.codes, answering.log).columns
        after = answers[:, gm.NEXT]
        _count(counted, going, answers, asked[:, gm.LOG_END] - answers[:, gm.LAST_PHYSIC] > answering.caps[gm.MEMORY])
        stuck = (answers[:, gm.STATUS] < 0) | (after <= asked[:, gm.OFFSET])
        requests[going, gm.OFFSET] = np.where(stuck, asked[:, gm.OFFSET], after)
        state[going] = np.where(stuck, STUCK, np.where(after >= matrix[going, Col.RECORDED_MAX], DONE, OPEN))
        inside = (after // entries * entries == file) & (after >= asked[:, gm.MIN_OFFSET]) & (after < asked[:, gm.MAX_OFFSET])
        going = going[inside & (state[going] == OPEN)]
    columns: dict[str, Any] = {"seq": matrix[:, Col.SEQ], "state": state.astype(np.int32), "nextOffset": requests[:, gm.OFFSET], **counted}
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW)


def _count(counted: dict[str, NDArray[np.int64]], going: NDArray[np.int64], answers: NDArray[np.int64], behind: NDArray[np.bool_]) -> None:
    counted["pulls"][going] += 1
    counted["found"][going] += answers[:, gm.STATUS] == GetMessageStatus.FOUND
    counted["messages"][going] += answers[:, gm.COUNT]
    counted["bytes"][going] += answers[:, gm.BYTES]
    counted["fromDisk"][going] += behind & (answers[:, gm.ENTRIES_READ] > 0)
