"""The settings of a push consumer, and the intervals of its scheduled tasks.

Broker source (4.9.3): client.consumer.DefaultMQPushConsumer, client.ClientConfig; DefaultMQPushConsumerImpl.checkConfig and
getMaxReconsumeTimes; MQClientInstance.startScheduledTask, RebalanceService, ConsumeMessageOrderlyService.start.
Surprise: maxReconsumeTimes -1 means 16 for concurrent consumers, and no limit for orderly ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from udfs.java.texts import INTEGER_MAX

UNSET: Final = -1
DEFAULT_MAX_RECONSUME_TIMES: Final = 16
CONSUME_TIMESTAMP_BEFORE_START: Final = 30 * 60_000  # ms

# Scheduled tasks of a client: (ms from its start to the first run, ms between runs)
HEARTBEAT: Final = (1000, 30_000)
PERSIST_OFFSETS: Final = (10_000, 5000)
REBALANCE: Final = (0, 20_000)  # 20 s after the last one has ended
LOCK_QUEUES: Final = (1000, 20_000)


class MessageModel(Enum):
    """Whether the clients of a group share the messages (CLUSTERING), or each client gets all messages (BROADCASTING)."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group without a committed offset begins; the last three are old names of the first."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumer:
    """The settings of a push consumer, under the client's own names in snake_case. Times are in ms if not noted; sizes are in MiB.

    Attributes:
        consume_timeout: consumeTimeout, in minutes.
        pull_time_delay_mills_when_exception: delay of the next pull after one that could not be sent or failed. The 1000 of ClientConfig
            overrides the 3000 of DefaultMQPushConsumerImpl.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_thread_min: int = 20
    consume_concurrently_max_span: int = 2000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100
    pull_threshold_for_topic: int = UNSET
    pull_threshold_size_for_topic: int = UNSET
    pull_interval: int = 0
    consume_message_batch_max_size: int = 1
    pull_batch_size: int = 32
    post_subscription_when_pull: bool = False
    max_reconsume_times: int = UNSET
    suspend_current_queue_time_millis: int = 1000
    consume_timeout: int = 15
    pull_time_delay_mills_when_exception: int = 1000

    def concurrent_max_reconsume_times(self) -> int:
        """Return the maxReconsumeTimes that a concurrent consumer sends to the broker."""
        return DEFAULT_MAX_RECONSUME_TIMES if self.max_reconsume_times == UNSET else self.max_reconsume_times

    def orderly_max_reconsume_times(self) -> int:
        """Return how often an orderly consumer tries a message before it sends it to the retry topic."""
        return INTEGER_MAX if self.max_reconsume_times == UNSET else self.max_reconsume_times


def default_consume_timestamp(made: int) -> int:
    """Return the default time of CONSUME_FROM_TIMESTAMP: half an hour before the consumer was made, rounded down to a second; in ms."""
    begins = made - CONSUME_TIMESTAMP_BEFORE_START
    return begins - begins % 1000
