"""Count the pulls that it takes to read a range of a queue: follow chains of pulls, each starting at the nextBeginOffset of the one before.

There is one chain for each (group, topic, queue, filter, maxMsgNums) among the requests. It starts at the least offset of its requests, and
ends after the last message that any of them gets under either set of settings, so that both sets read the same range. The kernel answers
every pull of a chain from the whole store, not as of a time.

A task follows the chains of a queue file up to the file's end; the next round continues in the next file. So there are as many rounds as
files, for any number of pulls.
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
from pipeline.replay.entry_colocation import Row, by_rows
from pipeline.replay.kernel_batches import KERNEL_COLUMNS, Answering, PackedPart, parts_of, requests_with_entries
from pipeline.replay.replay import RequestProfile, requests_after_entries
from pipeline.requests.packing import Col
from pipeline.schema.arrow_types import arrow_of
from pipeline.settings.settings import PullSettings
from pipeline.tasks.computed_once import computed_once
from udfs.pull import get_message as gm
from udfs.pull.codes import GetMessageStatus

# the names of the two sides of an answer
SIDES: Final = ("current", "proposed")
_KEY: Final = ("consumerGroup", "topic", "queueId", "filterType", "expression", "registered", "maxMsgNums")
OPEN, DONE, STUCK = range(3)
_SCHEMA = "seq BIGINT, state INT, nextOffset BIGINT, pulls BIGINT, found BIGINT, messages BIGINT, bytes BIGINT, fromDisk BIGINT"
_ARROW = arrow_of(_SCHEMA)
_COUNTED: Final = ("pulls", "found", "messages", "bytes", "fromDisk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Sums over all chains under one set of settings.

    Attributes:
        chains: number of chains.
        stuck: number of chains that do not reach their end, because a pull throws, is refused, or does not advance.
        pulls: number of pulls.
        found: number of pulls that find messages.
        messages: number of messages.
        bytes: bytes of the messages.
        from_disk: number of pulls whose last entry read is on disk.
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
        broker: the broker whose store answers.
        requests: rows of a request file.
        answers: `seq` and the structs `current` and `proposed`, each with the queue offsets of its `messages`.
        settings: the two sets of settings.
        into_messages: whether a filter may look into messages.

    Returns:
        The sums under each set of settings.
    """
    chains = computed_once(chains_of(requests, answers))
    first, second = (_follow(broker, chains, one, RequestProfile(into_messages=into_messages).under(one)) for one in settings)
    return first, second


def chains_of(requests: DataFrame, answers: DataFrame) -> DataFrame:
    """The first pull of each chain, in the columns of a replay's requests; `recordedMaxOffset` is the end of the chain."""
    last = [F.element_at(F.when(F.size(given) > 0, F.col(given)), -1) for given in (f"{side}.messages" for side in SIDES)]
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
        stepped = reduce(
            DataFrame.unionByName,
            [rows.mapInArrow(partial(by_rows, partial(drained_rows, answering)), _SCHEMA) for answering, rows in parts],
        )
        stepped = computed_once(stepped)
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
        going = computed_once(chains.drop("queueOffset").join(reached, "seq"))


def drained_rows(answering: Answering, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """Follow the chains in packed rows, each after the entries of its queue file, until they end or leave the file."""
    for packed in requests_with_entries(answering, rows):
        for part in parts_of(answering, packed):
            yield _through_file(answering, part, packed.row["key"])


def _through_file(answering: Answering, part: PackedPart, file: int) -> pa.RecordBatch:
    """Follow the chains of a part; a chain whose next pull starts in another file has the state OPEN."""
    matrix, entries = part.packed.matrix, int(answering.caps[gm.ENTRIES_A_FILE])
    requests = np.ascontiguousarray(matrix[:, KERNEL_COLUMNS])
    state = np.full(len(requests), OPEN if answering.readable else STUCK, np.int64)
    state[part.refused] = STUCK
    counted: dict[str, NDArray[np.int64]] = {name: np.zeros(len(requests), np.int64) for name in _COUNTED}
    going = np.flatnonzero(state == OPEN)
    while len(going):
        pulls = requests[going]
        answers = gm.get_message(pulls, answering.caps, part.block, part.codes, answering.log).columns
        after = answers[:, gm.NEXT]
        _count(counted, going, answers, pulls[:, gm.LOG_END] - answers[:, gm.LAST_PHYSIC] > answering.caps[gm.MEMORY])
        stuck = (answers[:, gm.STATUS] < 0) | (after <= pulls[:, gm.OFFSET])
        requests[going, gm.OFFSET] = np.where(stuck, pulls[:, gm.OFFSET], after)
        state[going] = np.where(stuck, STUCK, np.where(after >= matrix[going, Col.RECORDED_MAX], DONE, OPEN))
        inside = (after // entries * entries == file) & (after >= pulls[:, gm.MIN_OFFSET]) & (after < pulls[:, gm.MAX_OFFSET])
        going = going[inside & (state[going] == OPEN)]
    columns: dict[str, Any] = {"seq": matrix[:, Col.SEQ], "state": state.astype(np.int32), "nextOffset": requests[:, gm.OFFSET], **counted}
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW)


def _count(counted: dict[str, NDArray[np.int64]], going: NDArray[np.int64], answers: NDArray[np.int64], on_disk: NDArray[np.bool_]) -> None:
    counted["pulls"][going] += 1
    counted["found"][going] += answers[:, gm.STATUS] == GetMessageStatus.FOUND
    counted["messages"][going] += answers[:, gm.COUNT]
    counted["bytes"][going] += answers[:, gm.BYTES]
    counted["fromDisk"][going] += on_disk & (answers[:, gm.ENTRIES_READ] > 0)
