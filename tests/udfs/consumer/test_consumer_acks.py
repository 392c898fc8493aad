"""What concurrent and orderly consumers acknowledge: compared with every recorded result, and what must hold for any."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.store.lookup import ThrownError
from tests.makers.process_queues import message, state_of
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.places import DATA
from udfs.consumer import consume_concurrently, consume_orderly
from udfs.consumer.consume_concurrently import ConsumeConcurrentlyStatus
from udfs.consumer.consume_orderly import ConsumeOrderlyStatus, Turn
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.push_consumer import MessageModel, PushConsumer, default_consume_timestamp

Row = dict[str, Any]


def rows(kind: str) -> list[Row]:
    return [row for row in golden_lines("broker", "consumer.jsonl") if row["kind"] == kind]


def offset_updates(offset: int | None, *, increase_only: bool) -> list[Row]:
    return [] if offset is None else [{"offset": offset, "increaseOnly": increase_only}]


def concurrent_ack(row: Row) -> Row:
    """The results of a recorded row, computed by our rules."""
    first, last = row["queueHeld"]
    # ten to sixteen were made, with 0, 1, 2, 0 ... tries behind them, and the first of them is not in the queue any more
    made = [MessageExt(offset, 1, reconsume_times=(offset - 10) % 3) for offset in range(10, last + 1)]
    queue = ProcessQueue.new(0)
    queue.put_message([one for one in made if one.queue_offset >= first], None)
    queue.dropped = row["queueDropped"]
    begin, end = row["batchOffsets"]
    batch = [one for one in made if begin <= one.queue_offset <= end]
    back = consume_concurrently.to_send_back(
        batch, ConsumeConcurrentlyStatus[row["status"]], row["ackIndex"], MessageModel[row["messageModel"]]
    )
    not_sent = [one for one in back if one.queue_offset in row["sendBackFailsFor"]]
    offset = consume_concurrently.process_consume_result(queue, batch, not_sent, 0)
    return {
        "sentBack": [{"offset": one.queue_offset, "delayLevel": 0, "ok": one not in not_sent} for one in back],
        "offsetUpdates": offset_updates(offset, increase_only=True),
        "remaining": list(queue.msg_tree_map),
        "reconsumeTimesAfter": [one.reconsume_times for one in made],
    }


@needs_golden
def test_every_recorded_concurrent_result_comes_out_the_same() -> None:
    recorded = rows("concurrentAck")
    differing = [row for row in recorded if row | concurrent_ack(row) != row]
    assert differing == []
    assert len(recorded) == 40


def orderly_ack(row: Row) -> Row:
    """The results of a recorded row, computed by our rules."""
    first, last = row["queueOffsets"]
    made = [MessageExt(offset, 3) for offset in range(first, last + 1)]
    queue = ProcessQueue.new(0)
    queue.put_message(made, None)
    queue.dropped = row["queueDropped"]
    batch = queue.take_messages(row["taken"], 0)
    status = ConsumeOrderlyStatus[row["status"]]
    most = PushConsumer(max_reconsume_times=row["maxReconsumeTimes"]).orderly_max_reconsume_times()
    assert consume_orderly.to_send_back(batch, status, most) == []
    result = consume_orderly.process_consume_result(queue, batch, status, [], auto_commit=row["autoCommit"])
    return {
        "continueConsume": result.continues,
        "offsetUpdates": offset_updates(result.commit_offset, increase_only=False),
        "state": state_of(queue),
        "reconsumeTimesAfter": [one.reconsume_times for one in made],
    }


@needs_golden
def test_every_recorded_orderly_result_comes_out_the_same() -> None:
    recorded = rows("orderlyAck")
    differing = [row for row in recorded if row | orderly_ack(row) != row]
    assert differing == []
    assert len(recorded) == 32


# recorded with ConsumeMessageOrderlyService of 4.9.3 and a producer that fails for some messages
ORDERLY_RESULTS = [json.loads(line) for line in (DATA / "orderly_results.jsonl").read_text("utf-8").splitlines()]


def test_messages_tried_too_often_go_to_the_dead_letters_unless_one_of_the_batch_is_tried_again() -> None:
    for row in ORDERLY_RESULTS:
        made = [MessageExt(offset, offset % 7 + 1, reconsume_times=times) for offset, times in enumerate(row["times"])]
        queue, status = ProcessQueue.new(0), ConsumeOrderlyStatus[row["status"]]
        queue.put_message(made, None)
        batch = queue.take_messages(row["taken"], 0)
        queue.dropped = row["dropped"]
        most = PushConsumer(max_reconsume_times=row["maxReconsumeTimes"]).orderly_max_reconsume_times()
        over = consume_orderly.to_send_back(batch, status, most)
        assert [one.queue_offset for one in over] == row["sentBack"]
        sent = [one for one in over if one.queue_offset not in row["fails"]]
        result = consume_orderly.process_consume_result(queue, batch, status, sent, auto_commit=row["autoCommit"])
        assert result.continues == row["continueConsume"]
        assert offset_updates(result.commit_offset, increase_only=False) == row["offsetUpdates"]
        assert state_of(queue) == row["state"]
        assert [one.reconsume_times for one in made] == row["after"]
    assert len(ORDERLY_RESULTS) == 80


@pytest.mark.parametrize(
    ("locked", "idle", "model", "began", "turn"),
    [
        (True, 0, MessageModel.CLUSTERING, None, (Turn.TAKE, 0)),
        (True, 30_001, MessageModel.CLUSTERING, None, (Turn.LOCK, 100)),
        (False, 0, MessageModel.CLUSTERING, None, (Turn.LOCK, 100)),
        (False, 0, MessageModel.CLUSTERING, 0, (Turn.LOCK, 10)),
        (False, 99_999, MessageModel.BROADCASTING, None, (Turn.TAKE, 0)),
        (False, 60_000, MessageModel.BROADCASTING, 0, (Turn.TAKE, 0)),
        (False, 60_001, MessageModel.BROADCASTING, 0, (Turn.PAUSE, 10)),
    ],
)
def test_an_orderly_consumer_goes_on_while_it_has_the_lock(
    locked: bool, idle: int, model: MessageModel, began: int | None, turn: tuple[Turn, int]
) -> None:
    queue = ProcessQueue.new(0)
    queue.locked = locked
    assert consume_orderly.next_turn(queue, model, began=began, now=idle) == turn
    queue.dropped = True
    assert consume_orderly.next_turn(queue, model, began=began, now=idle) == (Turn.STOP, 0)


@pytest.mark.parametrize(("asked", "waits"), [(-1, 1000), (0, 10), (9, 10), (500, 500), (30_001, 30_000)])
def test_a_suspended_queue_waits_from_ten_ms_to_half_a_minute(asked: int, waits: int) -> None:
    assert consume_orderly.suspend_millis(asked, PushConsumer().suspend_current_queue_time_millis) == waits


def test_an_ack_index_before_the_batch_is_thrown_over() -> None:
    with pytest.raises(ThrownError):
        consume_concurrently.to_send_back([message(0)], ConsumeConcurrentlyStatus.CONSUME_SUCCESS, -2, MessageModel.CLUSTERING)


def test_a_pull_is_cut_into_batches_and_the_time_of_each_is_noted() -> None:
    pull = [message(offset) for offset in range(5)]
    cut = list(consume_concurrently.batches(pull, 2))
    assert [[one.queue_offset for one in batch] for batch in cut] == [[0, 1], [2, 3], [4]]
    consume_concurrently.begin(cut[1], 77)
    assert [one.consume_start_timestamp for one in pull] == [None, None, 77, 77, None]


@given(st.integers(1, 12), st.data())
def test_a_concurrent_consumer_commits_nothing_that_the_broker_did_not_take_back(count: int, data: st.DataObject) -> None:
    queue, pull = ProcessQueue.new(0), [message(offset) for offset in range(count)]
    queue.put_message(pull, None)
    lost = set[int]()
    for batch in consume_concurrently.batches(pull, data.draw(st.integers(1, 5))):
        status = data.draw(st.sampled_from([*ConsumeConcurrentlyStatus, None]))
        back = consume_concurrently.to_send_back(batch, status, data.draw(st.integers(-1, 6)), MessageModel.CLUSTERING)
        not_sent = [one for one in back if data.draw(st.booleans())]
        lost |= {one.queue_offset for one in not_sent}
        offset = consume_concurrently.process_consume_result(queue, batch, not_sent, 0)
        assert offset == min([*lost, *(one.queue_offset for one in pull if one.queue_offset > batch[-1].queue_offset)], default=count)
    assert list(queue.msg_tree_map) == sorted(lost)


def test_tries_without_a_limit_are_sixteen_or_without_end() -> None:
    assert (PushConsumer().concurrent_max_reconsume_times(), PushConsumer().orderly_max_reconsume_times()) == (16, 2**31 - 1)
    assert PushConsumer(max_reconsume_times=3).concurrent_max_reconsume_times() == 3


def test_a_new_group_by_time_begins_half_an_hour_before_its_consumer() -> None:
    assert default_consume_timestamp(1_700_000_000_999) == 1_700_000_000_000 - 1_800_000
