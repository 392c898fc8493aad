"""Which names of topics and groups the broker takes.

Broker source (4.9.3): TopicValidator.validateTopic and isNotAllowedSendTopic. (5.5.0): these, and TopicValidator.validateGroup.
Rule: a name has letters, digits and %-_| only, and a length limit. Only sent messages need a valid topic, and an open one. 5.5.0 creates a
group only if its name is valid; a group that has a configuration may have any name.
"""

from __future__ import annotations

from typing import Final

from store_format.java.blanks import is_blank
from store_format.log.put_message import SCHEDULE_TOPIC
from udfs.broker.topic_config import (
    CHECK_MAX_TIME_TOPIC,
    DLQ_GROUP_TOPIC_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
    RMQ_SYS_SELF_TEST_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
)
from udfs.filters.message_filter import RETRY_GROUP_TOPIC_PREFIX

TOPIC_MAX_LENGTH: Final = 127
GROUP_MAX_LENGTH: Final = 120
RETRY_OR_DLQ_TOPIC_MAX_LENGTH: Final = 255
_VALID: Final = frozenset("%-_|0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

# NOT_ALLOWED_SEND_TOPIC_SET of 4.9.3, of 4.9.8 and of 5.5.0
CLOSED_TOPICS_4_9_3: Final = frozenset({SCHEDULE_TOPIC})
CLOSED_TOPICS_4_9_8: Final = CLOSED_TOPICS_4_9_3 | {
    HALF_TOPIC,
    OP_TOPIC,
    CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
}
CLOSED_TOPICS_5_5_0: Final = CLOSED_TOPICS_4_9_8 | {ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC}


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
