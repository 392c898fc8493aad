"""Transactional messages: what the broker stores when a message is prepared, committed or rolled back.

Broker source (4.9.3): broker.transaction.queue.TransactionalMessageBridge (parseHalfMessageInner, renewHalfMessageInner,
renewImmunityHalfMessageInner, addRemoveTagInTransactionOp, makeOpMessageInner), DefaultTransactionalMessageCheckListener;
EndTransactionProcessor (checkPrepareMessage, endMessageTransaction); SendMessageProcessor.asyncSendMessage.
Rules: a prepared message is stored in the only queue of the half topic, with its own topic and queue as properties. A commit stores the
message in its own topic. Commit and rollback then store an op message, with the half message's queue offset, in the op topic.
Surprises: a committed message keeps the properties REAL_TOPIC, REAL_QID, TRAN_MSG and WAIT; a message sent without a transaction is stored
without WAIT. A half message that is put back to be checked again loses its flag and its reconsumeTimes, so the committed message lacks them
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.put_message import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, InnerMessage, properties_to_string
from store_format.record.message import Host, Message
from udfs.broker.send_message import PROPERTY_UNIQ_KEY, PROPERTY_WAIT_STORE_MSG_OK, stored_again
from udfs.broker.topic_config import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from udfs.java.texts import boolean_value_of
from udfs.pull.codes import ResponseCode

CONSUMER_GROUP: Final = "CID_RMQ_SYS_TRANS"
REMOVE_TAG: Final = "d"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
_TRANSACTION_ID: Final = "__transactionId__"  # of 5.x
PROPERTY_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
_CHECK_MAX_TIME_QUEUE: Final = 0  # the topic has one queue


def is_prepared(properties: Mapping[str, str]) -> bool:
    """Return whether a sent message is a half message, by its properties; rejectTransactionMessage refuses it with NO_PERMISSION."""
    return boolean_value_of(properties.get(PROPERTY_TRANSACTION_PREPARED, ""))


def transaction_value(sys_flag: int) -> int:
    """Return the transaction bits of a sysFlag: MessageSysFlag.getTransactionValue. Tests compare it with recorded flags."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE


def reset_transaction_value(sys_flag: int, kind: int) -> int:
    """Return a sysFlag with the transaction bits `kind`: MessageSysFlag.resetTransactionValue."""
    return sys_flag & ~TRANSACTION_ROLLBACK_TYPE | kind


def half_message(message: InnerMessage, *, has_id: bool = False) -> InnerMessage:
    """Return the half message that is stored for a message sent in a transaction.

    Args:
        message: a message from `SendMessageProcessor.accept`.
        has_id: whether the UNIQ_KEY becomes the property __transactionId__ too.
    """
    properties = {**message.properties, PROPERTY_REAL_TOPIC: message.topic, PROPERTY_REAL_QUEUE_ID: str(message.queue_id)}
    if has_id:
        properties[_TRANSACTION_ID] = message.properties[PROPERTY_UNIQ_KEY]
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        sys_flag=reset_transaction_value(message.sys_flag, 0),
        properties=properties,
        properties_string=properties_to_string(properties),
    )


def renewed_half_message(half: Message, properties: Mapping[str, str]) -> InnerMessage:
    """Return the half message that is put back when its producer is asked: without its flag and its reconsumeTimes.

    `properties` are its properties with the changes of the check.
    """
    return replace(stored_again(half, half.topic.decode(), half.queue_id, properties, 0), flag=0)


def renewed_immune_half_message(half: Message, properties: Mapping[str, str]) -> InnerMessage:
    """Return the half message that is put back for its immunity time; a property keeps its first queue offset."""
    first = properties.get(PROPERTY_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return renewed_half_message(half, {**properties, PROPERTY_WAIT_STORE_MSG_OK: "false", PROPERTY_PREPARED_QUEUE_OFFSET: first})


def discarded_half_message(half: Message, properties: Mapping[str, str]) -> InnerMessage:
    """Return the message in CHECK_MAX_TIME_TOPIC for a half message that was checked too often or is too old."""
    return stored_again(half, CHECK_MAX_TIME_TOPIC, _CHECK_MAX_TIME_QUEUE, properties, half.reconsume_times)


def op_message(half: Message, store_host: Host, now: int) -> InnerMessage:
    """Return the op message that marks a half message as ended; `now` in ms."""
    properties = {PROPERTY_TAGS: REMOVE_TAG, PROPERTY_WAIT_STORE_MSG_OK: "true"}
    return InnerMessage(
        topic=OP_TOPIC,
        queue_id=half.queue_id,
        body=str(half.queue_offset).encode(),
        born_host=store_host,
        store_host=store_host,
        born_timestamp=now,
        properties=properties,
        properties_string=properties_to_string(properties),
    )


def committed_message(half: Message) -> InnerMessage:
    """Return the message in its own topic for a half message that its producer commits."""
    properties = half.properties_map()
    topic, queue_id = properties.get(PROPERTY_REAL_TOPIC, ""), int(properties.get(PROPERTY_REAL_QUEUE_ID, "0"))
    return replace(
        stored_again(half, topic, queue_id, properties, half.reconsume_times),
        sys_flag=reset_transaction_value(half.sys_flag, TRANSACTION_COMMIT_TYPE),
        prepared_transaction_offset=half.physic_offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRequest:
    """A request END_TRANSACTION: the offsets of the half message, and the producer group."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int


def check_prepare_message(half: Message | None, request: EndTransactionRequest) -> tuple[ResponseCode, str | None]:
    """Return code and remark of the broker's check of END_TRANSACTION; only after SUCCESS does the broker store messages.

    `half` is the message at the physical offset of the request. Tests compare the result with the recorded answers of a broker.
    """
    if half is None:
        return ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
    if half.properties_map().get(PROPERTY_PRODUCER_GROUP) != request.producer_group:
        return ResponseCode.SYSTEM_ERROR, "The producer group wrong"
    if half.queue_offset != request.tran_state_table_offset:
        return ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
    if half.physic_offset != request.commit_log_offset:
        return ResponseCode.SYSTEM_ERROR, "The commit log offset wrong"
    return ResponseCode.SUCCESS, None
