"""The pull loop of a push consumer: when it may pull a queue, the fields of its requests, and what follows an answer.

Broker source (4.9.3): client.impl.consumer.DefaultMQPushConsumerImpl (pullMessage, its PullCallback, correctTagsOffset), PullRequest;
PullSysFlag.buildSysFlag and clearCommitOffsetFlag.
Rules: a queue has at most one pull in progress, and the next pull follows each answer. A client that holds too many messages of a queue
sends no pull and tests again 50 ms later.
Surprises: a pull is stopped only above a limit: by 1001 messages, 101 MiB or a span of 2001. The last pull may have exceeded the limit by
all its messages. Orderly consumers have no limit of the span. An orderly consumer that has just locked its queue begins at the group's
committed offset, and at -1 if the broker does not answer the query for it. If the client holds no message of the queue, NO_NEW_MSG and
NO_MATCHED_MSG note nextBeginOffset as consumed. After PULL_OFFSET_MOVED the client gives the queue up: it commits the offset ten
seconds later, and the next rebalance takes the queue again.
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
    """The next pull of a queue.

    `previously_locked` is whether an orderly consumer has queried the group's committed offset since it got the lock.
    """

    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False


class Pull(Enum):
    """Whether to pull now, or the reason not to."""

    NOW = "pull"
    FIX_OFFSET = "query the group's committed offset, call fix_offset, then pull"
    DROPPED = "the queue is dropped: no further pull"
    PAUSED = "the consumer is paused"
    MESSAGES = "too many messages held"
    SIZE = "too many bytes held"
    SPAN = "the offsets of the held messages span too much"
    NOT_LOCKED = "the queue is not locked for this client"
    NOT_SUBSCRIBED = "the consumer does not subscribe to the topic"


def pull_message(
    request: PullRequest, consumer: PushConsumer, now: int, *, orderly: bool, paused: bool = False, subscribed: bool = True
) -> tuple[Pull, int]:
    """Return whether to pull now, and if not, after how many ms to test again.

    Unless the queue is dropped, sets the time of its last pull to `now` (ms).
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
    """Set the pull's offset to the group's committed offset, after FIX_OFFSET.

    `offset` is the result of `compute_pull_from_where`; for a query, the broker's answer to it. If it is None, because the committed
    offset could not be read, the pull begins at -1. If the broker does not answer the query, do not call this function; try the pull again
    after pull_time_delay_mills_when_exception.
    """
    request.previously_locked = True
    request.next_offset = -1 if offset is None else offset


class PullFields(NamedTuple):
    """The fields of a pull request that depend on the consumer; its timeouts are constants of this module."""

    sys_flag: int
    commit_offset: int
    subscription: str | None


def pull_fields(consumer: PushConsumer, in_memory: int, sub_string: str, *, of_slave: bool = False) -> PullFields:
    """Return the fields of a pull request that depend on the consumer, not on the queue.

    `in_memory` is the result of the offset store's `read_from_memory`. A pull `of_slave` goes to a slave and commits no offset.
    """
    commit_offset = in_memory if consumer.message_model is MessageModel.CLUSTERING else 0
    subscription = sub_string if consumer.post_subscription_when_pull else None
    flag = PullSysFlag.SUSPEND
    if commit_offset > 0 and not of_slave:
        flag |= PullSysFlag.COMMIT_OFFSET
    if subscription is not None:
        flag |= PullSysFlag.SUBSCRIPTION
    return PullFields(int(flag), commit_offset, subscription)


class PullOutcome(NamedTuple):
    """What follows an answer to a pull.

    Attributes:
        pull_after: ms to the next pull. None if the client gives the queue up: after FIX_OFFSET_AFTER it commits `request.next_offset`
            (without increaseOnly) and removes the queue from its table.
        starts_consumer: whether an orderly consumer must be started.
        reached: the offset to put into the offset table (increaseOnly), None for none.
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
    """Update a pull and its process queue by an answer; return what follows.

    `status` is None for an error or a missing answer; the offsets are then ignored. `messages` are those left after `filter_again`.
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
