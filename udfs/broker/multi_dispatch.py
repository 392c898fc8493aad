"""Multi dispatch in a store in memory: a message gets its offsets in further queues when it is stored.

Broker source: MultiDispatch.wrapMultiDispatch and updateMultiQueueOffset (4.9.3), LmqDispatch (5.5.0). What further queues are is in
store_format/store/multi_dispatch.py.
Rule: when a message is stored, its property INNER_MULTI_QUEUE_OFFSET gets the next offset of each queue that INNER_MULTI_DISPATCH names.
Surprises: a broker 4.9 does so for a delayed message in SCHEDULE_TOPIC_XXXX and again for its delivery, so a light queue has it twice. A
broker 5.5.0 needs enableLmq for the offsets, and enableMultiDispatch for the entries. A message that is sent to a light queue itself has
another count, from 0 on, so its entry can be ignored. Pulls are woken even where no entry is written: with enableMultiDispatch off, or in
5.5.0 for a message of a system or delay topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from store_format.broker_version import DEFAULT_VERSION
from store_format.java.blanks import is_blank
from store_format.log.dispatch_request import PROPERTY_MULTI_DISPATCH, PROPERTY_MULTI_QUEUE_OFFSET
from store_format.log.put_message import InnerMessage, properties_to_string
from store_format.record.message import Message
from store_format.store.multi_dispatch import (
    MULTI_DISPATCH,
    MULTI_DISPATCH_QUEUE_SPLITTER,
    MultiDispatchRule,
    further_queue,
    has_further_queues,
    is_light_queue,
    queue_offset,
    split_queues,
)
from udfs.broker.send_message import PROPERTY_WAIT_STORE_MSG_OK
from udfs.broker.topic_config import DLQ_GROUP_TOPIC_PREFIX
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX

PROPERTY_INNER_MULTI_DISPATCH: Final = PROPERTY_MULTI_DISPATCH.decode()
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = PROPERTY_MULTI_QUEUE_OFFSET.decode()
Queue = tuple[str, int]
Offsets = dict[Queue, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiDispatchSettings:
    """What multi dispatch depends on: two settings, and the value of MULTI_DISPATCH in the broker's version."""

    enable_lmq: bool
    enable_multi_dispatch: bool
    rule: MultiDispatchRule

    def gives_offsets(self, topic: str) -> bool:
        """Return whether a message that is stored in a topic gets its offsets in further queues."""
        if not self.rule.plain_topics_only:
            return self.enable_multi_dispatch
        return self.enable_lmq and has_further_queues(topic, self.rule) and not topic.startswith(DLQ_GROUP_TOPIC_PREFIX)

    def queue(self, name: str, queue_id: int) -> Queue:
        """Return the further queue with a name, for a message of the queue `queue_id`."""
        return further_queue(name, queue_id, enable_lmq=self.enable_lmq)


NO_FURTHER_QUEUES: Final = MultiDispatchSettings(
    enable_lmq=False, enable_multi_dispatch=False, rule=MULTI_DISPATCH.of(DEFAULT_VERSION).value
)


@dataclass(slots=True, kw_only=True)
class MultiDispatch:
    """The next offsets of further queues: those of light queues, and those of other queues in the store's `topic_queue_table`."""

    topic_queue_table: Offsets
    lmq_topic_queue_table: Offsets = field(default_factory=dict)

    def with_offsets(self, message: InnerMessage, settings: MultiDispatchSettings) -> InnerMessage:
        """Return a message as it is written: with its offset in each further queue, if it has such queues."""
        names = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
        if is_blank(names) or not settings.gives_offsets(message.topic):
            return message
        offsets = [self._next_offset(name, message.queue_id, settings) for name in split_queues(names)]
        properties = dict(message.properties) | {PROPERTY_INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_QUEUE_SPLITTER.join(offsets)}
        if not settings.rule.plain_topics_only:
            properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
        return replace(message, properties=properties, properties_string=properties_to_string(properties))

    def _next_offset(self, name: str, queue_id: int, settings: MultiDispatchSettings) -> str:
        """Return the next offset of a further queue; nothing for a queue that gets none."""
        if settings.rule.plain_topics_only and not is_light_queue(name, enable_lmq=settings.enable_lmq):
            return ""
        queue = settings.queue(name, queue_id)
        return str(self._table(queue, settings).setdefault(queue, 0))

    def stored(self, message: Message, settings: MultiDispatchSettings) -> None:
        """Advance the next offsets after a message from `with_offsets` was appended."""
        if not settings.gives_offsets(message.topic.decode()):
            return
        for queue, offset in _places(message, settings):
            table = self._table(queue, settings)
            table[queue] = (table.get(queue, 0) if settings.rule.plain_topics_only else offset) + 1

    def _table(self, queue: Queue, settings: MultiDispatchSettings) -> Offsets:
        is_light = is_light_queue(queue[0], enable_lmq=settings.enable_lmq)
        return self.lmq_topic_queue_table if is_light else self.topic_queue_table


def places(message: Message, settings: MultiDispatchSettings) -> list[tuple[Queue, int]]:
    """Return the further queues in which a stored message gets an entry, each with the message's offset in it."""
    if not settings.enable_multi_dispatch or not has_further_queues(message.topic.decode(), settings.rule):
        return []
    return [place for place in _places(message, settings) if not (settings.rule.skips_paths and "/" in place[0][0])]


def notified(message: Message, settings: MultiDispatchSettings) -> list[tuple[Queue, int]]:
    """Return the further queues whose held pulls a stored message wakes, each with the message's offset in it."""
    is_left_out = settings.rule.plain_topics_only and message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX.encode())
    return [] if is_left_out else _places(message, settings)


def _places(message: Message, settings: MultiDispatchSettings) -> list[tuple[Queue, int]]:
    properties = message.properties_map()
    names, offsets = (properties.get(name, "") for name in (PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET))
    numbers = [queue_offset(text) for text in split_queues(offsets)] if not is_blank(names) and not is_blank(offsets) else []
    queues = [settings.queue(name, message.queue_id) for name in split_queues(names)]
    if len(queues) != len(numbers):
        return []
    return [(queue, number) for queue, number in zip(queues, numbers, strict=True) if number is not None]
