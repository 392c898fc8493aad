"""How a concurrent consumer passes messages to its listener, acknowledges them and sends them back.

Broker source (4.9.3): client.impl.consumer.ConsumeMessageConcurrentlyService (submitConsumeRequest, ConsumeRequest.run,
processConsumeResult, sendMessageBack), ConsumeConcurrentlyContext.
Rules: the messages of a pull are split into batches. If the listener succeeds, the batch is acknowledged up to its ackIndex. The messages
after it, or the whole batch if the listener fails, are sent back to the broker one by one, and then acknowledged too. A message that could
not be sent back stays, and goes to the listener again five seconds later.
Surprises: a broadcast message that fails is lost. A listener that returns null or throws has failed; one that takes too long has not. If
the queue was dropped meanwhile, no message is sent back and no offset committed; another client gets the batch again.
The simulation has a compiled form of these rules, `udfs.simulation.consuming`; a test runs both with the same plans.
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
    """The status that a listener returns for a batch."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


def batches(messages: Sequence[MessageExt], consume_message_batch_max_size: int) -> Iterator[Sequence[MessageExt]]:
    """Yield the batches of a pull's messages, as the listener gets them."""
    for first in range(0, len(messages), consume_message_batch_max_size):
        yield messages[first : first + consume_message_batch_max_size]


def begin(messages: Sequence[MessageExt], now: int) -> None:
    """Set the time at which the listener gets the messages of a batch."""
    for message in messages:
        message.consume_start_timestamp = now


def to_send_back(
    messages: Sequence[MessageExt], status: ConsumeConcurrentlyStatus | None, ack_index: int, message_model: MessageModel
) -> Sequence[MessageExt]:
    """Return the messages of a batch that are sent back to the broker; none for a broadcast consumer, which drops them.

    `status` is None if the listener returned null or threw. `ack_index` is the context's: the position of the last acknowledged message; it
    counts only if the listener succeeded.

    Raises:
        ThrownError: ackIndex is below -1; the batch then stays unchanged.
    """
    first = ack_index + 1 if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else 0
    if messages and first < 0:
        raise ThrownError(INDEX_OUT_OF_BOUNDS)
    return messages[first:] if message_model is MessageModel.CLUSTERING else ()


def process_consume_result(
    process_queue: ProcessQueue, messages: Sequence[MessageExt], not_sent: Collection[MessageExt], now: int
) -> int | None:
    """Remove a batch after its messages were sent back; return the offset to commit (increaseOnly), None for none.

    `not_sent` are the messages of `to_send_back` that neither the broker nor the retry topic accepted. Their reconsumeTimes increase by 1;
    the caller passes them to the listener again, as one batch, after RETRY_MS. If the queue is dropped, no offset is committed.
    """
    if not messages:
        return None
    for message in not_sent:
        message.reconsume_times += 1
    done = [message for message in messages if message not in not_sent] if not_sent else messages
    offset = process_queue.remove_message(done, now)
    return offset if offset >= 0 and not process_queue.dropped else None
