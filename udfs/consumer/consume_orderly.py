"""When an orderly consumer takes messages, and how it handles its listener's status.

Broker source (4.9.3): client.impl.consumer.ConsumeMessageOrderlyService (ConsumeRequest.run, processConsumeResult, checkReconsumeTimes,
submitConsumeRequestLater, tryLockLaterAndReconsume).
Rules: batches are taken one after the other while the lock on the queue holds, for at most a minute. Suspending puts the batch back, to be
consumed again after a while. A message that was tried too often is sent to the retry topic instead, and from there to the dead letters.
Surprises: if one message of a batch may still be tried, the whole batch is put back, even the messages that were just sent to the retry
topic. With autoCommit, COMMIT and ROLLBACK count as SUCCESS. Without autoCommit, SUCCESS commits nothing, and messages sent to the retry
topic are kept until COMMIT. Offsets are committed without increaseOnly, so they can decrease.
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
LOCK_AFTER_START: Final = 100  # ms, if the queue is not locked when the consumer starts
LOCK_AFTER_LOSS: Final = 10  # ms, if the queue is not locked between two batches
CONSUME_AFTER_LOCKED: Final = 10  # ms
CONSUME_AFTER_NOT_LOCKED: Final = 3000  # ms
SUSPEND_LEAST: Final = 10  # ms
SUSPEND_MOST: Final = 30_000  # ms


class ConsumeOrderlyStatus(Enum):
    """The status that a listener returns for a batch."""

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class Turn(Enum):
    """The next action of an orderly consumer."""

    TAKE = "take a batch"
    STOP = "the queue is dropped"
    LOCK = "lock the queue after a while, then start again"
    PAUSE = "start again after a while"


def next_turn(process_queue: ProcessQueue, message_model: MessageModel, *, began: int | None, now: int) -> tuple[Turn, int]:
    """Return the consumer's next action, and after how many ms; broadcast consumers need no lock.

    After a LOCK the consumer starts again: CONSUME_AFTER_LOCKED ms later if the broker gave the lock, else CONSUME_AFTER_NOT_LOCKED.
    `began` is when the consumer took its first batch, ms; None if it has taken none.
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
    """Return the messages of a batch that were tried too often and are sent to the retry topic.

    `status` is None if the listener returned null or threw; `max_reconsume_times` is `orderly_max_reconsume_times` of the settings.
    """
    if not _suspends(status):
        return []
    return [message for message in messages if message.reconsume_times >= max_reconsume_times]


def _suspends(status: ConsumeOrderlyStatus | None) -> bool:
    return status in (None, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT)


@dataclass(frozen=True, slots=True)
class OrderlyResult:
    """The result of a batch for the consumer: the offset to commit, None for none.

    `continues` is whether the consumer takes the next batch at once; if not, it starts again after `suspend_millis`.
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
    """Commit a batch, put it back, or keep it as taken, by the listener's status (None: null or thrown); return the result.

    `sent` are the messages of `to_send_back` that were sent; `auto_commit` is autoCommit of the context, true unless the listener sets it.

    Raises:
        ThrownError: the process queue has no taken message to commit.
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
    """Return after how many ms a consumer that does not continue starts again.

    `asked` is suspendCurrentQueueTimeMillis of the context, -1 unless the listener sets it; the other number is the consumer's setting.
    """
    wanted = suspend_current_queue_time_millis if asked == UNSET else asked
    return min(max(wanted, SUSPEND_LEAST), SUSPEND_MOST)
