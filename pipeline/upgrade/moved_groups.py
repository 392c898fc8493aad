"""The groups that go on at another offset after the upgrade: what they read again, and what they skip.

A group goes on at its committed offset. Each version answers the first pull from there. The group goes on at the first message of the
answer, or at the answer's next offset if it has no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.entry_colocation import rows_of
from pipeline.replay.kernel_batches import requests_with_entries
from pipeline.replay.replay import RequestProfile
from pipeline.requests.packing import Col
from pipeline.schema.arrow_types import arrow_of
from pipeline.tasks.computed_once import kept
from pipeline.upgrade.asked_pulls import committed_pulls
from pipeline.upgrade.compared_batches import Sides, fields_of, kernel_answers, status_name
from pipeline.upgrade.compared_pulls import RuleSets

_SCHEMA = (
    "consumerGroup STRING, topic STRING, queueId INT, committed BIGINT, minOffset BIGINT, maxOffset BIGINT, "
    "statusBefore STRING, statusAfter STRING, goesOnBefore BIGINT, goesOnAfter BIGINT"
)
_ARROW = arrow_of(_SCHEMA)
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedGroups:
    """The queues on which a group goes on at another offset in the later version, with messages between the two offsets.

    Attributes:
        committed: number of committed offsets.
        again: queues on which the later version reads messages that the earlier one does not.
        again_messages: number of these messages.
        skipped: queues on which the later version passes over messages that the earlier one reads.
        skipped_messages: number of these messages.
        most: the queues with the most such messages: the columns of _SCHEMA, and `messages`, the number of messages between the two
            offsets.
    """

    committed: int
    again: int
    again_messages: int
    skipped: int
    skipped_messages: int
    most: list[dict[str, Any]]


def moved_groups(rules: RuleSets, broker: OpenedBroker) -> MovedGroups:
    """Answer the first pull of each group on each queue by both rule sets."""
    pulls = committed_pulls(broker)
    moved = rules.apply(broker, pulls, _moved, _SCHEMA, at="snapshot", profile=RequestProfile(into_messages=False, far=False))
    low, high = F.least("goesOnBefore", "goesOnAfter"), F.greatest("goesOnBefore", "goesOnAfter")
    messages = F.greatest(F.least(high, "maxOffset") - F.greatest(low, "minOffset"), F.lit(0).cast("BIGINT"))
    with kept(moved.withColumn("messages", messages).where("messages > 0")) as rows:
        is_again = F.col("goesOnAfter") < F.col("goesOnBefore")
        (sums,) = rows.agg(
            F.count_if(is_again).alias("again"),
            F.coalesce(F.sum(F.when(is_again, F.col("messages"))), F.lit(0)).alias("again_messages"),
            F.count_if(~is_again).alias("skipped"),
            F.coalesce(F.sum(F.when(~is_again, F.col("messages"))), F.lit(0)).alias("skipped_messages"),
        ).collect()
        most = rows.orderBy(F.desc("messages"), "consumerGroup", "topic", "queueId").limit(_SHOWN).collect()
    return MovedGroups(committed=pulls.count(), most=[row.asDict() for row in most], **sums.asDict())


def _moved(sides: Sides, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pulls of batches after which the group goes on at different offsets, as rows of _SCHEMA."""
    for found in requests_with_entries(sides.earlier.answering, rows_of(batches)):
        goes_on, statuses = [], []
        for side in (sides.earlier, sides.later):
            (part,) = side.parts(found)
            rows = np.arange(len(part.packed.matrix))
            answers = fields_of(side, part, rows, kernel_answers(side, part, rows))
            firsts = np.minimum(np.cumsum(answers.counts) - answers.counts, max(len(answers.taken) - 1, 0))
            messages = answers.taken[firsts] + part.block.first_offset if len(answers.taken) else np.zeros(len(firsts), np.int64)
            goes_on.append(np.where(answers.counts > 0, messages, answers.next_offsets))
            statuses.append(answers.statuses)
        moved = np.flatnonzero(goes_on[0] != goes_on[1])
        if not len(moved):
            continue
        packed = part.packed
        matrix = packed.matrix[moved]
        columns = {
            "consumerGroup": [packed.groups[number] for number in matrix[:, Col.GROUP].tolist()],
            "topic": [packed.topic] * len(moved),
            "queueId": [packed.queue_id] * len(moved),
            "committed": matrix[:, Col.OFFSET],
            "minOffset": matrix[:, Col.MIN_OFFSET],
            "maxOffset": matrix[:, Col.MAX_OFFSET],
            "statusBefore": list(map(status_name, statuses[0][moved].tolist())),
            "statusAfter": list(map(status_name, statuses[1][moved].tolist())),
            "goesOnBefore": goes_on[0][moved],
            "goesOnAfter": goes_on[1][moved],
        }
        yield pa.RecordBatch.from_pydict(columns, schema=_ARROW)
