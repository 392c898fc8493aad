"""A message that a client itself sends to the retry topic: the broker did not take it back, or an orderly consumer tried it too often.

Broker source (4.9.3): DefaultMQPushConsumerImpl.sendMessageBack and resetRetryAndNamespace, ConsumeMessageOrderlyService.sendMessageBack;
DefaultMQProducerImpl.sendKernelImpl, its part for retry topics.
Rules: the client sends the consumed message with its original topic as a property. The delay level is 3 plus the number of tries. The
header of the request has reconsumeTimes and maxReconsumeTimes.
Surprises: properties that the client added to the message are stored with it: minOffset and maxOffset of its queue, and the time of
consumption. ORIGIN_MESSAGE_ID is set on a map that is then replaced, so the message has it only if the broker wrote it before. An orderly
message that was tried too often goes to the dead letters after its delay, because of its reconsumeTimes.
No command calls this module: in a simulation the broker takes every message back. Tests compare it with recorded results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from store_format.log.put_message import PROPERTY_DELAY
from udfs.broker.send_message import FIRST_DELAY_LEVEL
from udfs.broker.transactional_message import PROPERTY_TRANSACTION_PREPARED
from udfs.filters.message_filter import PROPERTY_RETRY_TOPIC, RETRY_GROUP_TOPIC_PREFIX

PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
_TAKEN_OUT: Final = {PROPERTY_RECONSUME_TIME, PROPERTY_MAX_RECONSUME_TIMES, PROPERTY_TRANSACTION_PREPARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resent:
    """A message for SEND_MESSAGE with the fields that differ from the consumed message; body and flag are the consumed message's."""

    topic: str
    properties: Mapping[str, str]
    reconsume_times: int
    max_reconsume_times: int


def consumed_topic(topic: str, properties: Mapping[str, str], group: str) -> str:
    """Return the topic of a message as the listener gets it: for a message of the group's retry topic, its original topic."""
    first = properties.get(PROPERTY_RETRY_TOPIC)
    return first if first is not None and topic == RETRY_GROUP_TOPIC_PREFIX + group else topic


def resend(
    group: str, topic: str, properties: Mapping[str, str], reconsume_times: int, max_reconsume_times: int, *, orderly: bool
) -> Resent:
    """Return the message that a client sends to its retry topic.

    `topic` is from `consumed_topic`; `properties` are the consumed message's, with those that the client added. `reconsume_times` is how
    often the message was sent back before; a concurrent consumer counts this as another try.
    """
    kept = {name: value for name, value in properties.items() if name not in _TAKEN_OUT}
    kept |= {PROPERTY_RETRY_TOPIC: topic, PROPERTY_DELAY: str(FIRST_DELAY_LEVEL + reconsume_times)}
    return Resent(
        topic=RETRY_GROUP_TOPIC_PREFIX + group,
        properties=kept,
        reconsume_times=reconsume_times if orderly else reconsume_times + 1,
        max_reconsume_times=max_reconsume_times,
    )
