"""How a concurrent consumer hands the messages of a pull to its listener, acknowledges them and sends them back.

Broker source (4.9.3): client.impl.consumer.ConsumeMessageConcurrentlyService (submitConsumeRequest, ConsumeRequest.run,
processConsumeResult, sendMessageBack), ConsumeConcurrentlyContext.
Rules: a pull is cut into batches. A batch that succeeded is acknowledged up to its ackIndex; what comes behind it, or all of a batch that
failed, goes back to the broker, one message after the other, and is acknowledged too. What could not be sent back stays, and is tried
again five seconds later.
Surprises: a broadcast message that fails is lost. A listener that returns null or throws has failed; one that takes too long has not. A
queue that was dropped meanwhile is not looked at: nothing is sent back, nothing committed, and another client gets the batch again.
A simulation has these rules in a compiled form, `udfs.simulation.consuming`; a test runs both over the same plans.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Final

from store_format.store.lookup import ThrownError
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.push_consumer import MessageModel
from udfs.java.texts import INTEGER_MAX

RETRY_MS: Final = 5000
ACK_ALL: Final = INTEGER_MAX  # ackIndex unless the listener sets it
INDEX_OUT_OF_BOUNDS: Final = "java.lang.IndexOutOfBoundsException"


class ConsumeConcurrentlyStatus(Enum):
    """What a listener says of a batch."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


def batches(messages: Sequence[MessageExt], consume_message_batch_max_size: int) -> Iterator[Sequence[MessageExt]]:
    """The batches of a pull, in which the listener gets it."""
    for first in range(0, len(messages), consume_message_batch_max_size):
        yield messages[first : first + consume_message_batch_max_size]


def begin(messages: Sequence[MessageExt], now: int) -> None:
    """Note when the listener is given a batch."""
    for message in messages:
        message.consume_start_timestamp = now


def to_send_back(
    messages: Sequence[MessageExt], status: ConsumeConcurrentlyStatus | None, ack_index: int, message_model: MessageModel
) -> Sequence[MessageExt]:
    """The messages of a batch that go back to the broker; those that a broadcast consumer drops are not among them.

    Args:
        messages: the batch.
        status: what the listener said, None where it returned null or threw.
        ack_index: of the context, the last message that is acknowledged; counts only where the batch succeeded.
        message_model: of the consumer.

    Raises:
        ThrownError: an ackIndex below -1; the batch then stays as it is.
    """
    first = ack_index + 1 if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else 0
    if messages and first < 0:
        raise ThrownError(INDEX_OUT_OF_BOUNDS)
    return messages[first:] if message_model is MessageModel.CLUSTERING else ()


def process_consume_result(
    process_queue: ProcessQueue, messages: Sequence[MessageExt], not_sent: Collection[MessageExt], now: int
) -> int | None:
    """Let go of a batch once those that `to_send_back` gave have been sent; the offset to commit (increaseOnly), None for none.

    The messages that were not sent are one try older, and are to be given to the listener again, as one batch, after RETRY_MS.

    Args:
        process_queue: where the batch came from; not asked whether it is dropped until the end, see the surprises.
        messages: the batch.
        not_sent: those that the broker did not take, nor the retry topic.
        now: ms.
    """
    if not messages:
        return None
    for message in not_sent:
        message.reconsume_times += 1
    done = [message for message in messages if message not in not_sent] if not_sent else messages
    offset = process_queue.remove_message(done, now)
    return offset if offset >= 0 and not process_queue.dropped else None
