"""Packed requests: what a row says of each of them stays when rows are joined, split and packed again."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from without_spark import REQUESTS as SCHEMA

from pipeline.packing import NONE, Col, Packed, Repacker, pack

TEXTS = st.sampled_from(["", "a", "b", "é", "TagA || TagB"])
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "consumerGroup": TEXTS,
            "topic": st.sampled_from(["T", "U"]),
            "queueId": st.integers(0, 2),
            "queueOffset": st.integers(-(2**63), 2**63 - 1),
            "maxMsgNums": st.integers(-(2**31), 2**31 - 1),
            "expression": st.none() | TEXTS,
            "timestamp": st.none() | st.integers(0, 2**40),
            "recordedMaxOffset": st.none() | st.integers(0, 2**40),
        }
    ),
    max_size=30,
)


def told(packed: Packed) -> list[dict[str, object]]:
    """The requests of a packed row."""
    return [
        {
            "seq": int(row[Col.SEQ]),
            "consumerGroup": packed.groups[row[Col.GROUP]],
            "topic": packed.topic,
            "queueId": packed.queue_id,
            "queueOffset": int(row[Col.OFFSET]),
            "maxMsgNums": int(row[Col.MAX_MSG_NUMS]),
            "expression": None if row[Col.FILTER] < 0 else packed.filters[row[Col.FILTER]],
            "timestamp": None if row[Col.TIME] == NONE else int(row[Col.TIME]),
            "recordedMaxOffset": None if row[Col.RECORDED_MAX] == NONE else int(row[Col.RECORDED_MAX]),
        }
        for row in packed.matrix
    ]


def packed_rows(requests: list[dict[str, object]], cut: int) -> list[Packed]:
    """Packed in two parts, so that there are several rows of a queue."""
    parts = [part for part in (requests[:cut], requests[cut:]) if part]
    found = [row for part in parts for batch in pack(iter([pa.RecordBatch.from_pylist(part, SCHEMA)])) for row in batch.to_pylist()]
    return [Packed.of(row) for row in found]


@given(REQUESTS, st.integers(0, 30))
def test_rows_of_a_queue_that_are_joined_hold_the_same_requests(rows: list[dict[str, object]], cut: int) -> None:
    requests = [row | {"seq": seq} for seq, row in enumerate(rows)]
    by_queue: dict[tuple[str, int], list[Packed]] = {}
    for packed in packed_rows(requests, cut):
        by_queue.setdefault((packed.topic, packed.queue_id), []).append(packed)
    joined = [one for of_queue in by_queue.values() for one in told(Packed.joined(of_queue))]
    assert sorted(joined, key=lambda one: str(one["seq"]).zfill(3)) == requests


@given(REQUESTS, st.integers(0, 30), st.integers(1, 4))
def test_rows_that_are_packed_again_under_other_keys_hold_the_same_requests(rows: list[dict[str, object]], cut: int, keys: int) -> None:
    requests = [row | {"seq": seq} for seq, row in enumerate(rows)]
    repacker = Repacker()
    for packed in packed_rows(requests, cut):
        repacker.add(packed, packed.matrix[:, Col.SEQ] % keys)
    again = [row for batch in repacker.take() for row in batch.to_pylist()]
    found = [(row["key"], one) for row in again for one in told(Packed.of(row))]
    assert all(key == one["seq"] % keys for key, one in found)  # type: ignore[operator]
    assert sorted((one for _, one in found), key=lambda one: str(one["seq"]).zfill(3)) == requests
