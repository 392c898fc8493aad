"""A message that a client sends to the retry topic itself: where the broker did not take it back, or an orderly consumer gives it up.

Broker source (4.9.3): DefaultMQPushConsumerImpl.sendMessageBack and resetRetryAndNamespace, ConsumeMessageOrderlyService.sendMessageBack;
DefaultMQProducerImpl.sendKernelImpl, what it does for retry topics.
Rules: it is the message as it was consumed, with the topic that it was sent to first as a property, and a delay level of 3 and a level more
for each try. How often it was and may be tried goes into the header of the request.
Surprises: what the client noted on the message is stored with it: the bounds of its queue and when it was consumed. ORIGIN_MESSAGE_ID is
noted on a map that is then replaced, so that it is there only if the broker wrote it before. One that is given up is a dead letter by its
number of tries, and comes to the dead letters by way of its delay.
No command calls this module: in a simulation the broker takes every message back. Recorded results check the rule.
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
    """A message for SEND_MESSAGE: its body and flag are those of the message that was consumed, all else of its making is new."""

    topic: str
    properties: Mapping[str, str]
    reconsume_times: int
    max_reconsume_times: int


def consumed_topic(topic: str, properties: Mapping[str, str], group: str) -> str:
    """The topic of a message as the listener sees it: that of a message to be tried again is the one it was sent to first."""
    first = properties.get(PROPERTY_RETRY_TOPIC)
    return first if first is not None and topic == RETRY_GROUP_TOPIC_PREFIX + group else topic


def resend(
    group: str, topic: str, properties: Mapping[str, str], reconsume_times: int, max_reconsume_times: int, *, orderly: bool
) -> Resent:
    """What a client sends to its retry topic.

    Args:
        group: of the client.
        topic: of the message, as `consumed_topic` gives it.
        properties: of the message as it was consumed, with those that the client noted.
        reconsume_times: how often it was tried before.
        max_reconsume_times: how often it may be tried, as the settings of the consumer give it.
        orderly: whether an orderly consumer gives it up; for a concurrent one this was another try.
    """
    kept = {name: value for name, value in properties.items() if name not in _TAKEN_OUT}
    kept |= {PROPERTY_RETRY_TOPIC: topic, PROPERTY_DELAY: str(FIRST_DELAY_LEVEL + reconsume_times)}
    return Resent(
        topic=RETRY_GROUP_TOPIC_PREFIX + group,
        properties=kept,
        reconsume_times=reconsume_times if orderly else reconsume_times + 1,
        max_reconsume_times=max_reconsume_times,
    )
