"""Multi dispatch: which messages get entries in further queues, as light message queues (LMQ) need, and which queues these are.

Broker source: DefaultMessageStore.checkMultiDispatchQueue, ConsumeQueue.multiDispatchLmqQueue (4.9.3); MultiDispatchUtils (5.5.0).
Rule: with enableMultiDispatch, a message has the names of its further queues in INNER_MULTI_DISPATCH, and its offset in each of them in
INNER_MULTI_QUEUE_OFFSET. With enableLmq, a light queue has only queue 0; in any other further topic, the message has its own queue id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.layout import LMQ_PREFIX
from store_format.log.put_message import SCHEDULE_TOPIC

MULTI_DISPATCH_QUEUE_SPLITTER: Final = ","
LMQ_QUEUE_ID: Final = 0
_LONG: Final = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")
_OTHER_TOPICS: Final = ("%RETRY%", "rmq_sys_")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiDispatchRule:
    """What differs between versions.

    Attributes:
        needs_properties: whether the dispatch throws at a message without properties.
        plain_topics_only: whether messages of retry, system and delay topics have no further queues, and only light queues get offsets.
        skips_paths: whether a further queue whose name has a slash is left out.
    """

    needs_properties: bool
    plain_topics_only: bool
    skips_paths: bool


MULTI_DISPATCH: Final = Rule(
    term="checkMultiDispatchQueue",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            MultiDispatchRule(needs_properties=True, plain_topics_only=False, skips_paths=False),
            "with enableMultiDispatch a message of any topic gets offsets and entries in further queues; without properties it throws",
            "MultiDispatch.wrapMultiDispatch, DefaultMessageStore.checkMultiDispatchQueue",
        ),
        Variant(
            BrokerVersion.V4_9_8,
            MultiDispatchRule(needs_properties=False, plain_topics_only=False, skips_paths=False),
            "as before, but a message without properties has no further queues",
            "DefaultMessageStore.checkMultiDispatchQueue",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            MultiDispatchRule(needs_properties=False, plain_topics_only=True, skips_paths=True),
            "with enableLmq a message gets offsets in light queues, with enableMultiDispatch entries in further queues; not in a queue "
            "whose name has a slash, and not a message of a retry, system or delay topic; a dead letter keeps its old offsets",
            "LmqDispatch, MultiDispatchUtils, ConsumeQueue.multiDispatchLmqQueue",
        ),
    ),
)


def has_further_queues(topic: str, rule: MultiDispatchRule) -> bool:
    """Return whether messages of a topic may have further queues."""
    return not rule.plain_topics_only or not (topic.startswith(_OTHER_TOPICS) or topic == SCHEDULE_TOPIC)


def is_light_queue(name: str, *, enable_lmq: bool) -> bool:
    """Return whether a name is that of a light message queue, or of a group of such queues; neither needs a configuration."""
    return enable_lmq and name.startswith(LMQ_PREFIX)


def further_queue(name: str, queue_id: int, *, enable_lmq: bool) -> tuple[str, int]:
    """Return the further queue with a name, for a message of the queue `queue_id`."""
    return name, LMQ_QUEUE_ID if is_light_queue(name, enable_lmq=enable_lmq) else queue_id


def queue_offset(text: str) -> int | None:
    """Return the number that Long.parseLong reads; None if it throws."""
    return int(text) if _LONG.fullmatch(text) and -(2**63) <= int(text) < 2**63 else None


def split_queues(text: str) -> list[str]:
    """Return the parts of a property of multi dispatch, as Java's text.split(","): without empty parts at the end."""
    parts = text.split(MULTI_DISPATCH_QUEUE_SPLITTER)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts[-1] or not text else []
