"""Where a client begins, which offset it has reached, when it pulls, how it handles answers: recorded rows, and facts of the source."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.remoting.headers import PullSysFlag
from tests.truth.golden import golden_lines, needs_golden
from udfs.broker.message_queue import MessageQueue
from udfs.consumer.offset_store import FAILED, NOT_FOUND, LocalFileOffsetStore, RemoteBrokerOffsetStore
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.pull_api_wrapper import PullFromWhichNode, PullStatus, filter_again, pull_status, seen_properties, tags_set
from udfs.consumer.pull_from_where import OffsetQuestion, compute_pull_from_where
from udfs.consumer.pull_message import Pull, PullOutcome, PullRequest, fix_offset, pull_fields, pull_message, take_answer
from udfs.consumer.push_consumer import ConsumeFromWhere, MessageModel, PushConsumer
from udfs.pull.codes import ResponseCode

QUEUE, OTHER = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
DEFAULT = PushConsumer()


def rows(kind: str) -> list[dict[str, Any]]:
    return [row for row in golden_lines("broker", "consumer.jsonl") if row["kind"] == kind]


# offset stores ------------------------------------------------------------------------------------------------------------------------


@needs_golden
def test_the_recorded_store_of_offsets_notes_the_same() -> None:
    (row,) = rows("remoteOffsetStore")
    store = RemoteBrokerOffsetStore()
    for step in row["steps"]:
        match step["op"]:
            case "update":
                store.update_offset(QUEUE, step["offset"], increase_only=step["increaseOnly"])
            case "removeThenRead":
                store.remove_offset(QUEUE)
        assert store.read_from_memory(QUEUE) == step.get("readAfter", step.get("returned"))


@pytest.mark.parametrize(("answer", "noted"), [(7, 7), (0, 0), (NOT_FOUND, 3), (FAILED, 3)])
def test_what_the_broker_answers_is_noted_unless_it_has_nothing(answer: int, noted: int) -> None:
    store = RemoteBrokerOffsetStore({QUEUE: 3})
    assert store.read_from_store(QUEUE, answer) == answer
    assert store.read_from_memory(QUEUE) == noted


def test_telling_the_broker_forgets_queues_that_are_not_the_clients_any_more() -> None:
    store = RemoteBrokerOffsetStore({QUEUE: 3, OTHER: 4})
    assert store.persist_all([]) == {}
    assert store.persist(OTHER) == 4
    assert store.persist_all([QUEUE, MessageQueue("U", "b", 0)]) == {QUEUE: 3}
    assert store.persist(OTHER) is None
    assert store.offset_table == {QUEUE: 3}


def test_the_file_of_a_broadcast_client_holds_what_was_written_last() -> None:
    store = LocalFileOffsetStore(file={QUEUE: 3, OTHER: 4})
    assert store.read_from_memory(QUEUE) == NOT_FOUND
    store.load()
    store.update_offset(QUEUE, 9, increase_only=True)
    assert store.persist_all([]) == {QUEUE: 3, OTHER: 4}
    assert store.persist_all([QUEUE]) == {QUEUE: 9}
    assert (store.read_from_store(OTHER), store.read_from_memory(OTHER)) == (NOT_FOUND, 4)
    store.update_offset(QUEUE, 20, increase_only=True)
    assert (store.read_from_store(QUEUE), store.read_from_memory(QUEUE)) == (9, 9)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans())))
def test_an_offset_that_may_only_grow_never_falls(updates: list[tuple[int, bool]]) -> None:
    store, before = RemoteBrokerOffsetStore(), None
    for offset, increase_only in updates:
        store.update_offset(QUEUE, offset, increase_only=increase_only)
        noted = store.offset_table[QUEUE]
        assert noted == (offset if before is None or not increase_only else max(before, offset))
        before = noted


# where to begin: RebalancePushImpl.computePullFromWhereWithException

LAST, FIRST, TIMESTAMP, *OLD_NAMES = ConsumeFromWhere


@pytest.mark.parametrize(
    ("where", "topic", "begins"),
    [
        (LAST, "T", OffsetQuestion.MAX_OFFSET),
        (LAST, "%RETRY%g", 0),
        (FIRST, "T", 0),
        (FIRST, "%RETRY%g", 0),
        (TIMESTAMP, "T", OffsetQuestion.SEARCH_BY_TIMESTAMP),
        (TIMESTAMP, "%RETRY%g", OffsetQuestion.MAX_OFFSET),
        *((old, "T", OffsetQuestion.MAX_OFFSET) for old in OLD_NAMES),
        *((old, "%RETRY%g", 0) for old in OLD_NAMES),
    ],
)
def test_a_group_that_never_committed_begins_where_it_is_told(where: ConsumeFromWhere, topic: str, begins: int | OffsetQuestion) -> None:
    assert compute_pull_from_where(where, topic, NOT_FOUND) == begins
    assert compute_pull_from_where(where, topic, 12) == 12
    assert compute_pull_from_where(where, topic, FAILED) is None


# the second filter ---------------------------------------------------------------------------------------------------------------------


@needs_golden
def test_clients_keep_the_recorded_messages() -> None:
    recorded = rows("clientTagFilter")
    for row in recorded:
        pulled = [MessageExt(offset, 1, tag) for offset, tag in enumerate(row["tagsFromOffset40"], 40)]
        kept = filter_again(pulled, tags_set(row["subString"])) if row["status"] == "FOUND" else None
        assert (None if kept is None else [one.queue_offset for one in kept]) == row["kept"]
        if kept:
            assert seen_properties({"TAGS": str(kept[-1].tag)}, 3, 99) == row["propertiesOfLastKept"]
        node = PullFromWhichNode()
        assert node.recalculate(QUEUE) == 0
        node.update(QUEUE, row["nextPullFromBroker"])
        assert node.recalculate(QUEUE) == row["nextPullFromBroker"]
    assert len(recorded) == 10


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, PullStatus.FOUND),
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW_MSG),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MSG),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
        (ResponseCode.SYSTEM_ERROR, None),
        (ResponseCode.SUBSCRIPTION_NOT_LATEST, None),
    ],
)
def test_four_codes_are_no_error_to_a_client(code: ResponseCode, status: PullStatus | None) -> None:
    assert pull_status(code) is status


# the pull loop: DefaultMQPushConsumerImpl.pullMessage


def pull_of(*held: MessageExt, locked: bool = False, dropped: bool = False) -> PullRequest:
    queue = ProcessQueue.new(0)
    queue.put_message(held, None)
    queue.locked, queue.dropped = locked, dropped
    return PullRequest(QUEUE, queue, 5)


def small(count: int) -> list[MessageExt]:
    return [MessageExt(offset, 1) for offset in range(count)]


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("held", "orderly", "decided"),
    [
        (small(1000), False, (Pull.NOW, 0)),
        (small(1001), False, (Pull.MESSAGES, 50)),
        ([MessageExt(0, 101 * MIB - 1)], False, (Pull.NOW, 0)),
        ([MessageExt(0, 101 * MIB)], False, (Pull.SIZE, 50)),
        ([MessageExt(0, 1), MessageExt(2000, 1)], False, (Pull.NOW, 0)),
        ([MessageExt(0, 1), MessageExt(2001, 1)], False, (Pull.SPAN, 50)),
        ([MessageExt(0, 1), MessageExt(2001, 1)], True, (Pull.FIX_OFFSET, 0)),
        (small(1001), True, (Pull.MESSAGES, 50)),
    ],
)
def test_a_client_that_holds_too_much_looks_again_soon(held: list[MessageExt], orderly: bool, decided: tuple[Pull, int]) -> None:
    assert pull_message(pull_of(*held, locked=True), DEFAULT, 0, orderly=orderly) == decided


def test_an_orderly_consumer_pulls_with_the_lock_from_where_its_group_has_committed() -> None:
    request = pull_of()
    assert pull_message(request, DEFAULT, 0, orderly=True) == (Pull.NOT_LOCKED, 1000)
    request.process_queue.locked = True
    assert pull_message(request, DEFAULT, 0, orderly=True) == (Pull.FIX_OFFSET, 0)
    fix_offset(request, 3)
    assert (pull_message(request, DEFAULT, 0, orderly=True), request.next_offset) == ((Pull.NOW, 0), 3)
    fix_offset(request, None)
    assert request.next_offset == -1


def test_every_look_counts_as_a_pull_unless_the_queue_is_dropped() -> None:
    request = pull_of(*small(1001))
    assert pull_message(request, DEFAULT, 700, orderly=False, paused=True) == (Pull.PAUSED, 1000)
    assert request.process_queue.last_pull_timestamp == 700
    request.process_queue.dropped = True
    assert pull_message(request, DEFAULT, 900, orderly=False) == (Pull.DROPPED, 0)
    assert request.process_queue.last_pull_timestamp == 700
    assert pull_message(pull_of(), DEFAULT, 0, orderly=False, subscribed=False) == (Pull.NOT_SUBSCRIBED, 1000)


@pytest.mark.parametrize(
    ("in_memory", "consumer", "of_slave", "fields"),
    [
        (7, PushConsumer(), False, (3, 7, None)),
        (7, PushConsumer(), True, (2, 7, None)),
        (0, PushConsumer(), False, (2, 0, None)),
        (-1, PushConsumer(post_subscription_when_pull=True), False, (6, -1, "a")),
        (7, PushConsumer(message_model=MessageModel.BROADCASTING), False, (2, 0, None)),
    ],
)
def test_a_pull_commits_what_the_client_has_reached(
    in_memory: int, consumer: PushConsumer, of_slave: bool, fields: tuple[int, int, str | None]
) -> None:
    assert pull_fields(consumer, in_memory, "a", of_slave=of_slave) == fields


@needs_golden
def test_sys_flags_are_built_of_the_recorded_bits() -> None:
    recorded = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == "pullSysFlag"]
    for row in recorded:
        names = ("commitOffset", "suspend", "subscription", "classFilter", "litePull")
        flag = sum(bit for name, bit in zip(names, PullSysFlag, strict=True) if row[name])
        assert (flag, flag & ~PullSysFlag.COMMIT_OFFSET) == (row["flag"], row["clearCommit"])
        assert flag & ~PullSysFlag.LITE_PULL_MESSAGE == row["flag4args"]
        if row["suspend"] and not row["classFilter"]:
            consumer = PushConsumer(post_subscription_when_pull=row["subscription"])
            assert pull_fields(consumer, int(row["commitOffset"]), "a").sys_flag == row["flag4args"]
    assert len(recorded) == 32


@pytest.mark.parametrize(
    ("status", "messages", "held", "answered", "next_offset"),
    [
        (PullStatus.FOUND, small(2), [], PullOutcome(0, starts_consumer=True), 40),
        (PullStatus.FOUND, [], small(1), PullOutcome(0), 40),
        (PullStatus.NO_NEW_MSG, [], [], PullOutcome(0, reached=40), 40),
        (PullStatus.NO_MATCHED_MSG, [], small(1), PullOutcome(0), 40),
        (PullStatus.OFFSET_ILLEGAL, [], [], PullOutcome(None), 40),
        (None, [], [], PullOutcome(1000), 5),
    ],
)
def test_an_answer_is_followed_by_the_next_pull(
    status: PullStatus | None, messages: list[MessageExt], held: list[MessageExt], answered: PullOutcome, next_offset: int
) -> None:
    request = pull_of(*held)
    assert take_answer(request, DEFAULT, status, 40, 50, messages) == answered
    assert request.next_offset == next_offset
    assert request.process_queue.dropped is (status is PullStatus.OFFSET_ILLEGAL)
    assert request.process_queue.msg_count == len(held) + len(messages)
    assert request.process_queue.msg_acc_cnt == (50 - messages[-1].queue_offset if messages else 0)


def test_a_pull_interval_is_kept_only_after_messages() -> None:
    slow = PushConsumer(pull_interval=200)
    assert take_answer(pull_of(), slow, PullStatus.FOUND, 40, 50, small(1)).pull_after == 200
    assert take_answer(pull_of(), slow, PullStatus.FOUND, 40, 50).pull_after == 0
    assert take_answer(pull_of(), slow, PullStatus.NO_NEW_MSG, 40, 50).pull_after == 0
