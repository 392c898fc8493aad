"""Packed requests: a row's data of each request stays the same when rows are joined, split and packed again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.requests.packing import NONE, Col, Matrix, Packed, Place, Repacker, pack
from pipeline.requests.request_lines import REQUEST_ARROW

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


def by_seq(keys: int, matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Place requests under `keys` keys, by seq; every other request is wide."""
    return matrix[:, Col.SEQ] % keys, matrix[:, Col.SEQ] % 2 == 0


def packed_rows(requests: list[dict[str, object]], cut: int, place: Place) -> list[dict[str, Any]]:
    """The packed rows of requests, packed in two parts, so that a queue has several rows."""
    batches = [pa.RecordBatch.from_pylist(part, REQUEST_ARROW) for part in (requests[:cut], requests[cut:]) if part]
    return [row for batch in batches for packed in pack(place, iter([batch])) for row in packed.to_pylist()]


def numbered(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows, numbered by seq."""
    return [row | {"seq": seq} for seq, row in enumerate(rows)]


def in_order(told_of: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """The requests sorted by seq."""
    return sorted(told_of, key=lambda one: str(one["seq"]).zfill(3))


@given(REQUESTS, st.integers(0, 30))
def test_rows_of_a_queue_that_are_joined_hold_the_same_requests(rows: list[dict[str, object]], cut: int) -> None:
    requests = numbered(rows)
    by_queue: dict[tuple[str, int], list[Packed]] = {}
    for packed in map(Packed.of, packed_rows(requests, cut, partial(by_seq, 1))):
        by_queue.setdefault((packed.topic, packed.queue_id), []).append(packed)
    joined = [one for of_queue in by_queue.values() for one in told(Packed.joined(of_queue))]
    assert in_order(joined) == requests


@given(REQUESTS, st.integers(0, 30), st.integers(1, 4))
def test_rows_are_of_one_key_each(rows: list[dict[str, object]], cut: int, keys: int) -> None:
    requests = numbered(rows)
    found = [(row["key"], row["wide"], one) for row in packed_rows(requests, cut, partial(by_seq, keys)) for one in told(Packed.of(row))]
    assert [(key, wide) for key, wide, _ in found] == [(one["seq"] % keys, one["seq"] % 2 == 0) for _, _, one in found]  # type: ignore[operator]
    assert in_order(one for _, _, one in found) == requests


@given(REQUESTS, st.integers(0, 30), st.integers(1, 4))
def test_rows_that_are_packed_again_under_other_keys_hold_the_same_requests(rows: list[dict[str, object]], cut: int, keys: int) -> None:
    requests = numbered(rows)
    repacker = Repacker()
    for packed in map(Packed.of, packed_rows(requests, cut, partial(by_seq, 1))):
        repacker.add(packed, packed.matrix[:, Col.SEQ] % keys)
    again = [row for batch in repacker.take() for row in batch.to_pylist()]
    found = [(row["key"], one) for row in again for one in told(Packed.of(row))]
    assert all(key == one["seq"] % keys for key, one in found)  # type: ignore[operator]
    assert in_order(one for _, one in found) == requests
