"""Multi dispatch in a store in memory: a message gets its offsets in further queues when it is stored.

Broker source: MultiDispatch.wrapMultiDispatch and updateMultiQueueOffset (4.9.3), LmqDispatch (5.5.0). What further queues are is in
store_format/store/multi_dispatch.py.
Rule: when a message is stored, its property INNER_MULTI_QUEUE_OFFSET gets the next offset of each queue that INNER_MULTI_DISPATCH names.
Surprises: a broker 4.9 does so for a delayed message in SCHEDULE_TOPIC_XXXX and again for its delivery, so a light queue has it twice. A
broker 5.5.0 needs enableLmq for the offsets, and enableMultiDispatch for the entries. A message that is sent to a light queue itself has
another count, from 0 on, so its entry can be ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from store_format.broker_version import DEFAULT_VERSION
from store_format.layout import LMQ_PREFIX
from store_format.log.put_message import InnerMessage, properties_to_string, scheduled
from store_format.record.message import Message
from store_format.store.multi_dispatch import (
    MULTI_DISPATCH,
    MULTI_DISPATCH_QUEUE_SPLITTER,
    MultiDispatchRule,
    further_queue,
    has_further_queues,
    split_queues,
)
from udfs.broker.send_message import PROPERTY_WAIT_STORE_MSG_OK
from udfs.broker.topic_config import DLQ_GROUP_TOPIC_PREFIX

PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
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
    """The next offsets of further queues: those of light queues, and those of other queues in the store's `topic_queue_table`.

    `max_offset` returns the maxOffset of a topic's queue.
    """

    topic_queue_table: Offsets
    max_offset: Callable[[str, int], int]
    lmq_topic_queue_table: Offsets = field(default_factory=dict)

    def with_offsets(self, message: InnerMessage, max_delay_level: int, settings: MultiDispatchSettings) -> InnerMessage:
        """Return a message that is to be stored with its offset in each further queue, if it has such queues.

        Raises:
            PutMessageError: the broker throws, because the delay level is no int.
        """
        names = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
        if not names.strip():
            return message
        written = scheduled(message, max_delay_level)
        if not settings.gives_offsets(written.topic):
            return message
        offsets = [self._next_offset(settings.queue(name, written.queue_id), settings) for name in split_queues(names)]
        texts = {PROPERTY_INNER_MULTI_QUEUE_OFFSET: MULTI_DISPATCH_QUEUE_SPLITTER.join(map(str, offsets))}
        properties = dict(message.properties) | texts
        if not settings.rule.plain_topics_only:
            properties.pop(PROPERTY_WAIT_STORE_MSG_OK, None)
        return replace(message, properties=properties, properties_string=properties_to_string(properties))

    def _next_offset(self, queue: Queue, settings: MultiDispatchSettings) -> int:
        begins = self.max_offset(*queue) if settings.rule.plain_topics_only else 0
        return self._table(queue, settings).setdefault(queue, begins)

    def stored(self, message: Message, settings: MultiDispatchSettings) -> None:
        """Advance the next offsets after a message from `with_offsets` was appended."""
        if not settings.gives_offsets(message.topic.decode()):
            return
        for queue, offset in _places(message, settings):
            table = self._table(queue, settings)
            table[queue] = (table[queue] if settings.rule.plain_topics_only else offset) + 1

    def _table(self, queue: Queue, settings: MultiDispatchSettings) -> Offsets:
        is_light = settings.enable_lmq and queue[0].startswith(LMQ_PREFIX)
        return self.lmq_topic_queue_table if is_light else self.topic_queue_table


def places(message: Message, settings: MultiDispatchSettings) -> list[tuple[Queue, int]]:
    """Return the further queues in which a stored message gets an entry, each with the message's offset in it."""
    if not settings.enable_multi_dispatch or not has_further_queues(message.topic.decode(), settings.rule):
        return []
    return [place for place in _places(message, settings) if not (settings.rule.skips_paths and "/" in place[0][0])]


def _places(message: Message, settings: MultiDispatchSettings) -> list[tuple[Queue, int]]:
    properties = message.properties_map()
    names, offsets = (properties.get(name, "") for name in (PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET))
    if not names.strip() or not offsets.strip():
        return []
    queues, numbers = [settings.queue(name, message.queue_id) for name in split_queues(names)], split_queues(offsets)
    return list(zip(queues, map(int, numbers), strict=True)) if len(queues) == len(numbers) else []
