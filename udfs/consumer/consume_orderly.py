"""When an orderly consumer takes messages, and what it does with what its listener says of them.

Broker source (4.9.3): client.impl.consumer.ConsumeMessageOrderlyService (ConsumeRequest.run, processConsumeResult, checkReconsumeTimes,
submitConsumeRequestLater, tryLockLaterAndReconsume).
Rules: messages are taken one batch after the other, as long as the lock on the queue holds, a minute at most. Suspending puts the batch
back, to be tried again after a while; a message that was tried too often goes to the dead letters instead, by way of the retry topic.
Surprises: one message of the batch that is not given up brings all of the batch back, also those that were sent to the dead letters a
moment ago. Consumers that commit on their own (autoCommit) take COMMIT and ROLLBACK for SUCCESS. The others commit nothing on SUCCESS, and
keep what they gave up until they commit. Offsets are committed without increaseOnly, so that they can go back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.push_consumer import UNSET, MessageModel

MAX_TIME_CONSUME_CONTINUOUSLY: Final = 60_000  # ms
CONTINUE_AFTER: Final = 10  # ms
LOCK_AFTER_START: Final = 100  # ms, where a consumer finds its queue not locked as it begins
LOCK_AFTER_LOSS: Final = 10  # ms, where it finds that between two batches
CONSUME_AFTER_LOCKED: Final = 10  # ms
CONSUME_AFTER_NOT_LOCKED: Final = 3000  # ms
SUSPEND_LEAST: Final = 10  # ms
SUSPEND_MOST: Final = 30_000  # ms


class ConsumeOrderlyStatus(Enum):
    """What a listener says of a batch."""

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class Turn(Enum):
    """What an orderly consumer does next."""

    TAKE = "take a batch"
    STOP = "the queue is dropped"
    LOCK = "lock the queue after a while, then go on"
    PAUSE = "go on after a while"


def next_turn(process_queue: ProcessQueue, message_model: MessageModel, *, began: int | None, now: int) -> tuple[Turn, int]:
    """What comes before the next batch, and after how many ms.

    After a LOCK the consumer starts anew, CONSUME_AFTER_LOCKED ms later where the broker gave the lock, else CONSUME_AFTER_NOT_LOCKED.

    Args:
        process_queue: of the queue.
        message_model: broadcast consumers need no lock.
        began: when the consumer took its first batch, ms; None where it has taken none.
        now: ms.
    """
    if process_queue.dropped:
        return Turn.STOP, 0
    needs_lock = message_model is MessageModel.CLUSTERING
    if needs_lock and (not process_queue.locked or process_queue.is_lock_expired(now)):
        return Turn.LOCK, LOCK_AFTER_START if began is None else LOCK_AFTER_LOSS
    if began is not None and now - began > MAX_TIME_CONSUME_CONTINUOUSLY:
        return Turn.PAUSE, CONTINUE_AFTER
    return Turn.TAKE, 0


def to_send_back(messages: Sequence[MessageExt], status: ConsumeOrderlyStatus | None, max_reconsume_times: int) -> list[MessageExt]:
    """The messages of a batch that go to the dead letters, by way of the retry topic.

    Args:
        messages: the batch.
        status: what the listener said, None where it returned null or threw.
        max_reconsume_times: `orderly_max_reconsume_times` of the consumer.
    """
    if not _suspends(status):
        return []
    return [message for message in messages if message.reconsume_times >= max_reconsume_times]


def _suspends(status: ConsumeOrderlyStatus | None) -> bool:
    return status in (None, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT)


@dataclass(frozen=True, slots=True)
class OrderlyResult:
    """What becomes of a consumer after a batch.

    Attributes:
        commit_offset: the offset to commit, None for none.
        continues: whether it takes the next batch; else it is started again after a while.
    """

    commit_offset: int | None
    continues: bool


def process_consume_result(
    process_queue: ProcessQueue,
    messages: Sequence[MessageExt],
    status: ConsumeOrderlyStatus | None,
    sent: Collection[MessageExt],
    *,
    auto_commit: bool,
) -> OrderlyResult:
    """Commit a batch, put it back, or leave it taken apart.

    Args:
        process_queue: where the batch was taken from.
        messages: the batch.
        status: what the listener said, None where it returned null or threw.
        sent: those of `to_send_back` that were sent.
        auto_commit: of the context, true unless the listener sets it.

    Raises:
        ThrownError: there is nothing to commit.
    """
    commits = status is ConsumeOrderlyStatus.COMMIT
    if _suspends(status):
        tried_again = [message for message in messages if message not in sent]
        for message in tried_again:
            message.reconsume_times += 1
        if tried_again:
            process_queue.make_message_to_consume_again(messages)
            return OrderlyResult(None, continues=False)
        commits = auto_commit
    elif auto_commit:
        commits = True
    elif status is ConsumeOrderlyStatus.ROLLBACK:
        process_queue.rollback()
        return OrderlyResult(None, continues=False)
    offset = process_queue.commit() if commits else None
    return OrderlyResult(None if process_queue.dropped else offset, continues=True)


def suspend_millis(asked: int, suspend_current_queue_time_millis: int) -> int:
    """After how many ms a consumer that does not continue is started again.

    Args:
        asked: suspendCurrentQueueTimeMillis of the context, -1 unless the listener sets it.
        suspend_current_queue_time_millis: of the consumer.
    """
    wanted = suspend_current_queue_time_millis if asked == UNSET else asked
    return min(max(wanted, SUSPEND_LEAST), SUSPEND_MOST)
