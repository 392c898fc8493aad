"""Putting a message: the checks of the store, and how it changes a delayed message before it writes it.

Broker source (4.9.3): DefaultMessageStore.checkMessage, checkMessages; CommitLog.asyncPutMessage, asyncPutMessages; MessageExtEncoder.
Rule: the store refuses a message with a status. A message with a delay level above 0, unless it is prepared or rolled back, goes to the
queue of its level in SCHEDULE_TOPIC_XXXX. A level above the last one becomes the last one; the message's own topic and queue become
properties.
Surprises: the lengths of topic and properties are checked in UTF-16 units first and in bytes later (5.5.0: a topic's in bytes first of
all). Properties that are too long only in bytes get another status; a topic that is too long only in bytes is written with a length that
wraps. The properties of a delayed message are written anew, in the order of Java's map; of any other message the given text is written. A
batch that is too long makes the broker throw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from store_format import layout
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion, Rule, Variant
from store_format.java.hash_maps import hash_map_order
from store_format.record.message import PROPERTY_SEPARATOR, Host, Message, body_crc32, encode_properties
from store_format.record.message_version import BYTE_MAX

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
PROPERTY_DELAY = "DELAY"
_INNER_NUM = "INNER_NUM"  # of 5.x
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"

SHORT_MAX = 2**15 - 1
_LONG_TOPIC_MAX = 255
_FIXED = 75  # bytes of a record without hosts, body, topic and properties
_BATCHED = 22  # bytes of a message in a client's batch without body and properties
_INT = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")


class PutMessageStatus(Enum):
    """The values of PutMessageStatus that a running store with free disk space returns."""

    PUT_OK = "PUT_OK"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMessageRule:
    """What differs between versions; lengths in bytes.

    Attributes:
        more_than_body: how much longer than maxMessageSize a record may be; its body may not.
        multi_dispatch_is_checked_before: whether a message with further queues has to fit without its offsets there, too.
        multi_dispatch_says_why: whether a message that does not fit with its offsets in further queues gets the status of one that does not
            fit; else it gets UNKNOWN_ERROR.
        delay_is_read_first: whether a message with a bad delay level and properties that are too long fails by its delay level.
        refuses_inner_num: whether a message with the property INNER_NUM is refused.
        least_new_limit: from which value on a change of maxMessageSize counts while the broker runs; None if no change counts.
        long_topics_begin: with which prefix a topic may have up to _LONG_TOPIC_MAX bytes, in a record of version 2; None if with none.
    """

    more_than_body: int
    multi_dispatch_is_checked_before: bool
    multi_dispatch_says_why: bool
    delay_is_read_first: bool
    long_topics_begin: str | None
    refuses_inner_num: bool
    least_new_limit: int | None


PUT_MESSAGE: Rule[PutMessageRule] = Rule(
    term="MessageExtEncoder",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            PutMessageRule(
                more_than_body=0,
                multi_dispatch_is_checked_before=True,
                multi_dispatch_says_why=False,
                delay_is_read_first=False,
                long_topics_begin=None,
                refuses_inner_num=False,
                least_new_limit=None,
            ),
            "a whole record has at most maxMessageSize",
            "CommitLog.MessageExtEncoder.encode, MultiDispatch.wrapMultiDispatch",
        ),
        Variant(
            BrokerVersion.V4_9_8,
            PutMessageRule(
                more_than_body=64 * 1024,
                multi_dispatch_is_checked_before=False,
                multi_dispatch_says_why=False,
                delay_is_read_first=False,
                long_topics_begin=None,
                refuses_inner_num=False,
                least_new_limit=10,
            ),
            "a body has at most maxMessageSize, a whole record at most 64 KiB more; the setting can be changed while the broker runs",
            "CommitLog.MessageExtEncoder.encode, CommitLog.updateMaxMessageSize, MultiDispatch.wrapMultiDispatch",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            PutMessageRule(
                more_than_body=64 * 1024,
                multi_dispatch_is_checked_before=False,
                multi_dispatch_says_why=True,
                delay_is_read_first=True,
                long_topics_begin="%RETRY%",
                refuses_inner_num=True,
                least_new_limit=10,
            ),
            "as before, but a record with further queues has at most maxMessageSize, DELAY is read before properties are measured, the "
            "topic of a retry may have 255 bytes, in a record of version 2, and INNER_NUM is refused",
            "MessageExtEncoder.encode, CommitLog.DefaultAppendMessageCallback.handlePropertiesForLmqMsg, HookUtils.handleScheduleMessage, "
            "HookUtils.checkBeforePutMessage and checkInnerBatch",
        ),
    ),
)


class PutMessageError(ValueError):
    """A message at which the broker throws, or that it writes as a record that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSettings:
    """The broker's settings that `prepare` and `prepare_batch` need; a slave takes no messages.

    `max_message_size` (bytes) is the limit for a whole record or its body, and for all records of a batch; `max_delay_level` the number of
    delay levels; `ends_properties` whether a separator follows the last property too (messageProperties2String of 5.x); `rule` the value of
    PUT_MESSAGE in the broker's version.
    """

    max_message_size: int = 4 << 20
    max_delay_level: int = 18
    is_slave: bool = False
    ends_properties: bool = False
    rule: PutMessageRule = PUT_MESSAGE.of(DEFAULT_VERSION).value


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerMessage:
    """MessageExtBrokerInner: a message as the broker gives it to its store.

    `properties_string` are the properties as text, which is stored; None stands for null.
    """

    topic: str
    queue_id: int
    body: bytes
    born_host: Host
    store_host: Host
    born_timestamp: int
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_string: str | None = None
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedMessage:
    """One message of a batch, as the client encodes it."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """MessageExtBatch: messages for one queue that are stored next to each other; `properties` are added to each message's own."""

    topic: str
    queue_id: int
    messages: Sequence[BatchedMessage]
    born_host: Host
    store_host: Host
    born_timestamp: int
    properties: Mapping[str, str] = field(default_factory=dict)
    sys_flag: int = 0
    reconsume_times: int = 0


def properties_to_string(properties: Mapping[str, str]) -> str:
    """MessageDecoder.messageProperties2String of a HashMap that was filled in the order of `properties`."""
    return encode_properties({name: properties[name] for name in hash_map_order(properties)}).decode()


def delay_level(properties: Mapping[str, str]) -> int:
    """Message.getDelayTimeLevel: the delay level in `properties`, 0 for none.

    Raises:
        PutMessageError: the level is no int; the broker throws.
    """
    text = properties.get(PROPERTY_DELAY, "0")
    if not _INT.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise PutMessageError(f"property {PROPERTY_DELAY}: expected an int, found {text!r}")
    return int(text)


def scheduled(message: InnerMessage, max_delay_level: int) -> InnerMessage:
    """The message that CommitLog writes: `message` itself, or for a delayed one the message of the delay topic."""
    kind = message.sys_flag & layout.TRANSACTION_ROLLBACK_TYPE
    if kind not in {0, layout.TRANSACTION_COMMIT_TYPE}:
        return message
    level = delay_level(message.properties)
    if level <= 0:
        return message
    properties = dict(message.properties)
    if level > max_delay_level:
        level = max_delay_level
        properties[PROPERTY_DELAY] = str(level)
    properties |= {PROPERTY_REAL_TOPIC: message.topic, PROPERTY_REAL_QUEUE_ID: str(message.queue_id)}
    text = properties_to_string(properties)
    return replace(message, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties, properties_string=text)


def _same(message: InnerMessage) -> InnerMessage:
    return message


def prepare(
    message: InnerMessage,
    store_timestamp: int,
    settings: PutSettings,
    with_further_queues: Callable[[InnerMessage], InnerMessage] = _same,
) -> Message | PutMessageStatus:
    """The record of `message` with both offsets 0, or the status with which the broker refuses it.

    `with_further_queues` gives the message that is written its offsets in further queues; it returns a message without such queues itself.

    Raises:
        PutMessageError: the broker throws, or writes a record that it cannot read.
    """
    if settings.is_slave:
        return PutMessageStatus.SERVICE_NOT_AVAILABLE
    text, rule = message.properties_string, settings.rule
    if _is_topic_too_long(message.topic, rule) or (rule.refuses_inner_num and _INNER_NUM in message.properties):
        return PutMessageStatus.MESSAGE_ILLEGAL
    is_too_long = text is not None and _units(text) > SHORT_MAX
    if is_too_long and not rule.delay_is_read_first:
        return PutMessageStatus.MESSAGE_ILLEGAL
    inner = scheduled(message, settings.max_delay_level)
    if is_too_long:
        return PutMessageStatus.MESSAGE_ILLEGAL
    written = with_further_queues(inner)
    if written is inner:
        return _fitting(inner, store_timestamp, settings, rule.more_than_body)
    if rule.multi_dispatch_is_checked_before:
        fitting = _fitting(inner, store_timestamp, settings, rule.more_than_body)
        if isinstance(fitting, PutMessageStatus):
            return fitting
    found = _fitting(written, store_timestamp, settings, 0 if rule.multi_dispatch_says_why else rule.more_than_body)
    is_unknown = isinstance(found, PutMessageStatus) and not rule.multi_dispatch_says_why
    return PutMessageStatus.UNKNOWN_ERROR if is_unknown else found


def _is_topic_too_long(topic: str, rule: PutMessageRule) -> bool:
    if rule.long_topics_begin is None:
        return _units(topic) > BYTE_MAX
    return len(topic.encode()) > (_LONG_TOPIC_MAX if topic.startswith(rule.long_topics_begin) else BYTE_MAX)


def _fitting(inner: InnerMessage, store_timestamp: int, settings: PutSettings, more_than_body: int) -> Message | PutMessageStatus:
    """The record of a message that is as long as allowed, or the status of one that is not."""
    properties = (inner.properties_string or "").encode()
    if settings.ends_properties and properties:
        properties += PROPERTY_SEPARATOR.encode()
    if len(properties) > SHORT_MAX:
        return PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    sys_flag = with_host_flags(inner.sys_flag, inner.born_host, inner.store_host)
    is_v2 = _units(inner.topic) > BYTE_MAX
    length = _FIXED + is_v2 + hosts_length(sys_flag) + len(inner.body) + len(inner.topic.encode()) + len(properties)
    if len(inner.body) > settings.max_message_size or length > settings.max_message_size + more_than_body:
        return PutMessageStatus.MESSAGE_ILLEGAL
    record = _record(inner, inner, properties, sys_flag, store_timestamp, inner.prepared_transaction_offset)
    return replace(record, magic_code=layout.MESSAGE_MAGIC_CODE_V2) if is_v2 else record


def _record(
    sent: InnerMessage | MessageBatch,
    message: InnerMessage | BatchedMessage,
    properties: bytes,
    sys_flag: int,
    store_timestamp: int,
    prepared_transaction_offset: int = 0,
) -> Message:
    """The record, with both offsets 0, of a `message` that was sent alone or in a batch."""
    topic = sent.topic.encode()
    if _units(sent.topic) <= BYTE_MAX < len(topic):  # a longer topic is in a record of version 2
        raise PutMessageError(f"a topic: expected up to {BYTE_MAX} bytes, found {len(topic)}")
    return Message(
        queue_id=sent.queue_id,
        queue_offset=0,
        physic_offset=0,
        born_timestamp=sent.born_timestamp,
        born_host=sent.born_host,
        store_timestamp=store_timestamp,
        store_host=sent.store_host,
        body=message.body,
        topic=topic,
        properties=properties,
        flag=message.flag,
        sys_flag=sys_flag,
        reconsume_times=sent.reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body_crc=body_crc32(message.body),
    )


def prepare_batch(batch: MessageBatch, store_timestamp: int, settings: PutSettings) -> list[Message] | PutMessageStatus:
    """The records of `batch` with both offsets 0, or the status with which the broker refuses it.

    Raises:
        PutMessageError: the broker throws, or writes a record that it cannot read.
    """
    if settings.is_slave:
        return PutMessageStatus.SERVICE_NOT_AVAILABLE
    sent = sum(_BATCHED + len(message.body) + len(message.properties) for message in batch.messages)
    if _units(batch.topic) > BYTE_MAX or sent > settings.max_message_size:
        return PutMessageStatus.MESSAGE_ILLEGAL
    if batch.sys_flag & layout.TRANSACTION_ROLLBACK_TYPE or delay_level(batch.properties) > 0:
        return PutMessageStatus.MESSAGE_ILLEGAL
    added = properties_to_string(batch.properties).encode()
    if len(added) > SHORT_MAX:
        raise PutMessageError(f"a batch's properties: expected up to {SHORT_MAX} bytes, found {len(added)}")
    records = [_batched(batch, message, added, store_timestamp) for message in batch.messages]
    total = sum(_FIXED + hosts_length(one.sys_flag) + len(one.body) + len(one.topic) + len(one.properties) for one in records)
    if total > settings.max_message_size:
        raise PutMessageError(f"a batch: expected up to {settings.max_message_size} bytes of records, found {total}")
    return records


def _batched(batch: MessageBatch, message: BatchedMessage, added: bytes, store_timestamp: int) -> Message:
    properties = message.properties
    if properties and added and not properties.endswith(PROPERTY_SEPARATOR.encode()):
        properties += PROPERTY_SEPARATOR.encode()
    properties += added
    if len(properties) > SHORT_MAX:  # the length wraps
        raise PutMessageError(f"a batched message's properties: expected up to {SHORT_MAX} bytes, found {len(properties)}")
    sys_flag = with_host_flags(batch.sys_flag, batch.born_host, batch.store_host)
    return _record(batch, message, properties, sys_flag, store_timestamp)


def with_host_flags(sys_flag: int, born_host: Host, store_host: Host) -> int:
    """`sys_flag` with the bits that mark IPv6 hosts set.

    Raises:
        PutMessageError: `sys_flag` has such a bit for an IPv4 host; the record's lengths would not add up.
    """
    for host, bit in ((born_host, layout.BORNHOST_V6_FLAG), (store_host, layout.STOREHOSTADDRESS_V6_FLAG)):
        if len(host.address) == layout.IPV6_HOST - 4:
            sys_flag |= bit
        elif sys_flag & bit:
            raise PutMessageError(f"sysFlag {sys_flag}: expected bit {bit} with an IPv6 address only, found {host}")
    return sys_flag


def hosts_length(sys_flag: int) -> int:
    """The bytes of both hosts of a record with this sysFlag."""
    born = layout.IPV6_HOST if sys_flag & layout.BORNHOST_V6_FLAG else layout.IPV4_HOST
    return born + (layout.IPV6_HOST if sys_flag & layout.STOREHOSTADDRESS_V6_FLAG else layout.IPV4_HOST)


def _units(text: str) -> int:
    """String.length: UTF-16 units of `text`."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
