"""A client's hold on a queue: compared with every recorded sequence of operations, and what must hold for any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.store.lookup import ThrownError
from tests.makers.process_queues import message, state_of
from tests.truth.golden import golden_lines, needs_golden
from udfs.consumer.offset_tree import MessageExt, OffsetTree
from udfs.consumer.process_queue import NO_OFFSET, ProcessQueue

Step = dict[str, Any]
OFFSETS = st.integers(0, 30)


def taken(queue: ProcessQueue, step: Step) -> dict[str, Any]:
    """Take a recorded step; returns what the step returned or threw."""
    messages = [message(offset) for offset in step.get("offsets", ())]
    try:
        match step["op"]:
            case "put":
                return {"returned": queue.put_message(messages, step.get("maxOffsetProperty"))}
            case "remove":
                return {"returned": queue.remove_message(messages, 0)}
            case "take":
                return {"returned": [one.queue_offset for one in queue.take_messages(step["batch"], 0)]}
            case "commit":
                return {"returned": queue.commit()}
            case "rollback":
                queue.rollback()
            case "again":
                queue.make_message_to_consume_again(messages)
            case "clear":
                queue.clear()
            case op:
                pytest.fail(f"an operation that is not known: {op}")
    except ThrownError as thrown:
        return {"error": thrown.java_class.rpartition(".")[2]}
    return {}


@needs_golden
def test_every_recorded_operation_returns_and_leaves_the_same() -> None:
    rows = [row for row in golden_lines("broker", "consumer.jsonl") if row["kind"] == "processQueue"]
    steps = 0
    for row in rows:
        assert row["bodySizeRule"] == "offset % 7 + 1"
        queue = ProcessQueue.new(0)
        for step in row["steps"]:
            told = taken(queue, step)
            assert told == {name: step[name] for name in ("returned", "error") if name in step}, (row["name"], step)
            assert state_of(queue) == step["state"], (row["name"], step)
            steps += 1
    assert (len(rows), steps) == (60, 774)


@pytest.mark.parametrize(
    ("idle", "lock", "pull"), [(30_000, False, False), (30_001, True, False), (120_000, True, False), (120_001, True, True)]
)
def test_locks_and_pulls_expire(idle: int, lock: bool, pull: bool) -> None:
    queue = ProcessQueue.new(500)
    assert (queue.is_lock_expired(500 + idle), queue.is_pull_expired(500 + idle)) == (lock, pull)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.data())
def test_a_commit_never_passes_a_message_that_is_not_done(batches: list[int], data: st.DataObject) -> None:
    queue, waiting, pulled = ProcessQueue.new(0), dict[int, MessageExt](), 0
    for size in batches:
        pull = [message(pulled + i) for i in range(size)]
        pulled += size
        queue.put_message(pull, None)
        waiting |= {one.queue_offset: one for one in pull}
        done = data.draw(st.lists(st.sampled_from(sorted(waiting)), unique=True))
        committed = queue.remove_message([waiting.pop(offset) for offset in done], 0)
        assert committed == min(waiting, default=pulled)
    assert queue.msg_count == len(waiting)
    assert queue.msg_size == sum(one.body_size for one in waiting.values())


ORDERLY = st.lists(st.sampled_from(["put", "take", "commit", "rollback", "again"]) | st.integers(1, 4), max_size=40)


@given(ORDERLY)
def test_an_orderly_consumer_is_given_every_message_in_order_until_it_commits(steps: list[str | int]) -> None:
    queue, batch, pulled, committed = ProcessQueue.new(0), 2, 0, 0
    took: list[MessageExt] = []
    for step in steps:
        match step:
            case int():
                batch = step
            case "put":
                queue.put_message([message(pulled), message(pulled + 1)], None)
                pulled += 2
            case "take":
                took += queue.take_messages(batch, 0)
            case "commit" if took:
                assert queue.commit() == committed + len(took)
                committed += len(took)
                took = []
            case "rollback" | "again":
                queue.rollback() if step == "rollback" else queue.make_message_to_consume_again(took)
                took = []
        assert [one.queue_offset for one in took] == list(range(committed, committed + len(took)))
        assert list(queue.msg_tree_map) == list(range(committed + len(took), pulled))
        assert queue.msg_count == pulled - committed


@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "poll", "first", "last"]), OFFSETS), max_size=80))
def test_a_tree_of_offsets_is_a_sorted_map(steps: list[tuple[str, int]]) -> None:
    tree, model = OffsetTree(), dict[int, MessageExt]()
    for op, offset in steps:
        least = min(model, default=None)
        match op:
            case "put":
                one = message(offset)
                assert tree.put(one) is (offset not in model)
                model[offset] = one
            case "remove":
                assert tree.remove(offset) is model.pop(offset, None)
            case "poll":
                assert tree.poll_first() is (None if least is None else model.pop(least))
            case "first":
                assert tree.first_key() == least
            case _:
                assert tree.last_key() == max(model, default=None)
        assert list(tree) == sorted(model)
        assert len(tree) == len(model)
        assert sorted(one.queue_offset for one in tree.values()) == sorted(model)


def test_a_long_run_of_messages_leaves_no_places_behind() -> None:
    tree = OffsetTree()
    for offset in range(10_000):
        tree.put(message(offset))
        assert tree.first_key() == max(0, offset - 99)
        tree.remove(offset - 99)
    assert len(tree._offsets) < 4_000


def test_removing_from_an_empty_queue_commits_nothing() -> None:
    assert ProcessQueue.new(0).remove_message([message(3)], 7) == NO_OFFSET
