"""Which names of topics and groups the broker takes.

Broker source (4.9.3): TopicValidator.validateTopic. (5.5.0): TopicValidator.validateTopic and validateGroup.
Rule: a name has letters, digits and %-_| only, and a length limit. Only sent messages need a valid topic. 5.5.0 creates a group only if its
name is valid; a group that has a configuration may have any name.
"""

from __future__ import annotations

from typing import Final

from store_format.java.blanks import is_blank
from udfs.broker.topic_config import DLQ_GROUP_TOPIC_PREFIX
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX

TOPIC_MAX_LENGTH: Final = 127
GROUP_MAX_LENGTH: Final = 120
RETRY_OR_DLQ_TOPIC_MAX_LENGTH: Final = 255
_VALID: Final = frozenset("%-_|0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def topic_fault(topic: str, *, long_retry_topics: bool) -> str | None:
    """Return the fault of a topic's name as the broker words it, None for a valid name: validateTopic.

    With `long_retry_topics`, a topic for retries or dead letters may have RETRY_OR_DLQ_TOPIC_MAX_LENGTH characters.
    """
    if is_blank(topic):
        return "The specified topic is blank."
    if not _VALID.issuperset(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    of_group = long_retry_topics and topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX))
    if len(topic) > (RETRY_OR_DLQ_TOPIC_MAX_LENGTH if of_group else TOPIC_MAX_LENGTH):
        return "The specified topic is longer than topic max length."
    return None


def is_valid_group(group: str) -> bool:
    """Return whether a group has a valid name: validateGroup."""
    return not is_blank(group) and _VALID.issuperset(group) and len(group) <= GROUP_MAX_LENGTH
