"""The event that a broker stores when it sends a pull to another offset.

Broker source (4.9.3): PullMessageProcessor.generateOffsetMovedEvent, OffsetMovedEvent, MessageQueue.
Rule: each pull that is answered with PULL_OFFSET_MOVED stores a message of topic OFFSET_MOVED_EVENT, queue 0. Its tag and its key are the
consumer group.
Surprises: the message has a property for delay level 0. A slave that checks offsets makes the event, but cannot store it.
"""

from __future__ import annotations

from dataclasses import dataclass

from store_format.config.fastjson_writer import quoted
from store_format.log.put_message import PROPERTY_DELAY, InnerMessage, properties_to_string
from store_format.record.message import Host
from udfs.broker.topic_config import RMQ_SYS_OFFSET_MOVED_EVENT


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMovedEvent:
    """The event that the broker sent a group's pull of one queue from one offset to another."""

    consumerGroup: str
    brokerName: str
    topic: str
    queueId: int
    offsetRequest: int
    offsetNew: int

    def encode(self) -> bytes:
        """Return the event as JSON without blanks: RemotingSerializable.encode."""
        queue = f'{{"brokerName":{quoted(self.brokerName)},"queueId":{self.queueId},"topic":{quoted(self.topic)}}}'
        offsets = f'"offsetNew":{self.offsetNew},"offsetRequest":{self.offsetRequest}'
        return f'{{"consumerGroup":{quoted(self.consumerGroup)},"messageQueue":{queue},{offsets}}}'.encode()

    def message(self, broker_addr: Host, now: int) -> InnerMessage:
        """Return the message that the broker at `broker_addr` stores for the event at `now` (ms)."""
        properties = {"TAGS": self.consumerGroup, PROPERTY_DELAY: "0", "KEYS": self.consumerGroup}
        return InnerMessage(
            topic=RMQ_SYS_OFFSET_MOVED_EVENT,
            queue_id=0,
            body=self.encode(),
            born_host=broker_addr,
            store_host=broker_addr,
            born_timestamp=now,
            properties=properties,
            properties_string=properties_to_string(properties),
        )
