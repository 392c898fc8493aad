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

from pipeline.embedded.relations import DriverRelations, Relations, SparkRelations
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.entry_colocation import Row
from pipeline.replay.kernel_batches import requests_with_entries
from pipeline.replay.replay import RequestProfile
from pipeline.requests.packing import Col
from pipeline.schema.arrow_types import arrow_of
from pipeline.tasks.computed_once import kept
from pipeline.upgrade.asked_pulls import committed_pulls, committed_pulls_here
from pipeline.upgrade.compared_batches import Sides, fields_of, kernel_answers, status_name
from pipeline.upgrade.compared_pulls import RuleSets

_SCHEMA = (
    "consumerGroup STRING, topic STRING, queueId INT, committed BIGINT, minOffset BIGINT, maxOffset BIGINT, "
    "statusBefore STRING, statusAfter STRING, goesOnBefore BIGINT, goesOnAfter BIGINT"
)
_ARROW = arrow_of(_SCHEMA)
_SHOWN = 20
_WITH_MESSAGES = """
SELECT * FROM (
  SELECT *, greatest(
    least(greatest(goesOnBefore, goesOnAfter), maxOffset) - greatest(least(goesOnBefore, goesOnAfter), minOffset), CAST(0 AS BIGINT)
  ) AS messages
  FROM {moved}
) WHERE messages > 0"""
_SUMS = f"""
SELECT count_if(goesOnAfter < goesOnBefore) AS again,
  coalesce(sum(CASE WHEN goesOnAfter < goesOnBefore THEN messages END), 0) AS again_messages,
  count_if(goesOnAfter >= goesOnBefore) AS skipped,
  coalesce(sum(CASE WHEN goesOnAfter >= goesOnBefore THEN messages END), 0) AS skipped_messages
FROM ({_WITH_MESSAGES})"""
_MOST = f"{_WITH_MESSAGES} ORDER BY messages DESC, consumerGroup, topic, queueId LIMIT {_SHOWN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedGroups:
    """The queues on which a group goes on at another offset in the later version, with messages between the two offsets.

    Attributes:
        committed: number of committed offsets.
        again: queues on which the later version reads messages that the earlier one does not.
        again_messages: number of these messages.
        skipped: queues on which the later version passes over messages that the earlier one reads.
        skipped_messages: number of these messages.
        most: the queues with the most messages between the two offsets: the columns of _SCHEMA, and `messages`, their number.
    """

    committed: int
    again: int
    again_messages: int
    skipped: int
    skipped_messages: int
    most: list[dict[str, Any]]


def moved_groups(rules: RuleSets, broker: OpenedBroker) -> MovedGroups:
    """Answer the first pull of each group on each queue by both rule sets."""
    if not broker.lake.has_session:
        return _moved_groups_here(rules, broker)
    pulls = committed_pulls(broker)
    moved = rules.apply(broker, pulls, _moved, _SCHEMA, at="snapshot", profile=RequestProfile(into_messages=False, far=False))
    with kept(moved) as rows, SparkRelations(broker.lake.spark, moved=rows) as relations:
        return _summed(pulls.count(), relations)


def _moved_groups_here(rules: RuleSets, broker: OpenedBroker) -> MovedGroups:
    pulls = committed_pulls_here(broker)
    parts = rules.apply_here(broker, pulls, at="snapshot")
    moved = pa.Table.from_batches((batch for sides, rows in parts for batch in _moved(sides, rows)), _ARROW)
    return _summed(len(pulls), DriverRelations(moved=moved))


def _summed(committed: int, moved: Relations) -> MovedGroups:
    """The result for rows of _SCHEMA, the relation `moved`."""
    (sums,) = moved.rows(_SUMS)
    return MovedGroups(committed=committed, most=moved.rows(_MOST), **sums)


def _moved(sides: Sides, packed_rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """The pulls after which the group goes on at different offsets, as rows of _SCHEMA."""
    for found in requests_with_entries(sides.earlier.answering, packed_rows):
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
