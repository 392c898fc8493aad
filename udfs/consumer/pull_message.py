"""The pull loop of a push consumer: when it may pull a queue, what it asks, and what an answer makes of it.

Broker source (4.9.3): client.impl.consumer.DefaultMQPushConsumerImpl (pullMessage, its PullCallback, correctTagsOffset), PullRequest;
PullSysFlag.buildSysFlag and clearCommitOffsetFlag.
Rules: a queue has one pull under way at a time, and each answer is followed by the next pull. A client that holds too much of a queue looks
again 50 ms later, without asking the broker.
Surprises: the limits are passed by one: 1001 messages, 101 MiB, a span of 2001 stop a pull, and whatever the last pull brought comes on
top. Orderly consumers mind no span. One that has just locked its queue begins where the group has committed, and at -1 where the broker
does not tell. Where nothing is held, an answer without messages moves the committed offset. An answer that the offset has moved gives the
queue up: ten seconds later the offset is committed, and the next rebalance takes the queue anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from store_format.remoting.headers import PullSysFlag
from udfs.broker.message_queue import MessageQueue
from udfs.consumer.offset_tree import MessageExt
from udfs.consumer.process_queue import ProcessQueue
from udfs.consumer.pull_api_wrapper import PullStatus
from udfs.consumer.push_consumer import MessageModel, PushConsumer

PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL: Final = 50
PULL_TIME_DELAY_MILLS_WHEN_SUSPEND: Final = 1000
BROKER_SUSPEND_MAX_TIME_MILLIS: Final = 15_000
FIX_OFFSET_AFTER: Final = 10_000  # ms
_MIB: Final = 1024 * 1024


@dataclass(slots=True)
class PullRequest:
    """A queue's next pull.

    Attributes:
        queue: it pulls.
        process_queue: what the client holds of it.
        next_offset: where it goes on.
        previously_locked: an orderly consumer has asked where the group has committed since it has the lock.
    """

    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False


class Pull(Enum):
    """Whether to pull, and why not."""

    NOW = "pull"
    FIX_OFFSET = "ask where the group has committed, fix_offset, then pull"
    DROPPED = "never again"
    PAUSED = "the consumer is paused"
    MESSAGES = "too many messages held"
    SIZE = "too many bytes held"
    SPAN = "from the first to the last message held it is too far"
    NOT_LOCKED = "the queue is not locked for this client"
    NOT_SUBSCRIBED = "the topic is not subscribed to"


def pull_message(
    request: PullRequest, consumer: PushConsumer, now: int, *, orderly: bool, paused: bool = False, subscribed: bool = True
) -> tuple[Pull, int]:
    """Whether to pull now, and else after how many ms to look again.

    Args:
        request: the pull; its queue is marked as looked after, unless it is dropped.
        consumer: its settings.
        now: ms.
        orderly: whether the consumer is an orderly one.
        paused: whether it is paused.
        subscribed: whether it subscribes to the topic.
    """
    held = request.process_queue
    if held.dropped:
        return Pull.DROPPED, 0
    held.last_pull_timestamp = now
    if paused:
        return Pull.PAUSED, PULL_TIME_DELAY_MILLS_WHEN_SUSPEND
    full = _full(held, consumer, orderly=orderly)
    if full is not None:
        return full, PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL
    if orderly and not held.locked:
        return Pull.NOT_LOCKED, consumer.pull_time_delay_mills_when_exception
    if orderly and not request.previously_locked:
        return Pull.FIX_OFFSET, 0
    if not subscribed:
        return Pull.NOT_SUBSCRIBED, consumer.pull_time_delay_mills_when_exception
    return Pull.NOW, 0


def _full(held: ProcessQueue, consumer: PushConsumer, *, orderly: bool) -> Pull | None:
    if held.msg_count > consumer.pull_threshold_for_queue:
        return Pull.MESSAGES
    if held.msg_size // _MIB > consumer.pull_threshold_size_for_queue:
        return Pull.SIZE
    if not orderly and held.max_span() > consumer.consume_concurrently_max_span:
        return Pull.SPAN
    return None


def fix_offset(request: PullRequest, offset: int | None) -> None:
    """Begin where the group has committed, after FIX_OFFSET.

    Args:
        request: the pull.
        offset: of `compute_pull_from_where`, once its question is answered. Where that answer does not come, nothing is to be fixed, and
            the pull is tried again after pull_time_delay_mills_when_exception.
    """
    request.previously_locked = True
    request.next_offset = -1 if offset is None else offset


class Asked(NamedTuple):
    """What a pull says of its consumer; the times that it may wait are constants of this module."""

    sys_flag: int
    commit_offset: int
    subscription: str | None


def asked(consumer: PushConsumer, in_memory: int, sub_string: str, *, of_slave: bool = False) -> Asked:
    """The fields of a pull that are not those of its queue.

    Args:
        consumer: its settings.
        in_memory: `read_from_memory` of the offset store.
        sub_string: of the subscription.
        of_slave: whether a slave is asked, which commits nothing.
    """
    commit_offset = in_memory if consumer.message_model is MessageModel.CLUSTERING else 0
    subscription = sub_string if consumer.post_subscription_when_pull else None
    flag = PullSysFlag.SUSPEND
    if commit_offset > 0 and not of_slave:
        flag |= PullSysFlag.COMMIT_OFFSET
    if subscription is not None:
        flag |= PullSysFlag.SUBSCRIPTION
    return Asked(int(flag), commit_offset, subscription)


class PullOutcome(NamedTuple):
    """What an answer makes of a pull.

    Attributes:
        pull_after: ms to the next pull; None where the queue is given up, and `request.next_offset` is to be committed (without
            increaseOnly) after FIX_OFFSET_AFTER, before the queue leaves the table.
        starts_consumer: whether an orderly consumer is to be started.
        reached: the offset to note (increaseOnly), None for none.
    """

    pull_after: int | None
    starts_consumer: bool = False
    reached: int | None = None


def take_answer(
    request: PullRequest,
    consumer: PushConsumer,
    status: PullStatus | None,
    next_begin_offset: int,
    max_offset: int,
    messages: Sequence[MessageExt] = (),
) -> PullOutcome:
    """Take in an answer.

    Args:
        request: the pull.
        consumer: its settings.
        status: of the answer, None for an error or none at all; the offsets then do not count.
        next_begin_offset: of the answer.
        max_offset: of the answer.
        messages: that are left once they were filtered again, for FOUND.
    """
    if status is None:
        return PullOutcome(consumer.pull_time_delay_mills_when_exception)
    request.next_offset = next_begin_offset
    if status is PullStatus.OFFSET_ILLEGAL:
        request.process_queue.dropped = True
        return PullOutcome(None)
    if status is not PullStatus.FOUND:
        return PullOutcome(0, reached=None if request.process_queue.msg_count else next_begin_offset)
    if not messages:
        return PullOutcome(0)
    starts = request.process_queue.put_message(messages, max_offset)
    return PullOutcome(consumer.pull_interval, starts)
