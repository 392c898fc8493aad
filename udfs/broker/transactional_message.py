"""Transactional messages: what the broker stores when one is prepared, committed and rolled back.

Broker source (4.9.3): broker.transaction.queue.TransactionalMessageBridge (parseHalfMessageInner, renewHalfMessageInner,
renewImmunityHalfMessageInner, addRemoveTagInTransactionOp, makeOpMessageInner), DefaultTransactionalMessageCheckListener;
EndTransactionProcessor (checkPrepareMessage, endMessageTransaction); SendMessageProcessor.asyncSendMessage.
Rules: a prepared message is kept in the one queue of the half topic, with its own topic and queue as properties. To end it, an op message
with its queue offset goes to the op topic, and if it is committed, before that, the message to its own topic.
Surprises: a committed message keeps REAL_TOPIC, REAL_QID and TRAN_MSG, and so does WAIT, which is not stored of other messages. A half
message that is put back to be checked again loses its flag and its reconsumeTimes, and with them the message that is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.put_message import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, InnerMessage, properties_to_string
from store_format.record.message import Host, Message
from udfs.broker.send_message import PROPERTY_WAIT_STORE_MSG_OK
from udfs.java.texts import boolean_value_of
from udfs.pull.codes import ResponseCode

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
CONSUMER_GROUP: Final = "CID_RMQ_SYS_TRANS"
REMOVE_TAG: Final = "d"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
_CHECK_MAX_TIME_QUEUE: Final = 0  # the topic has one queue


def is_prepared(properties: Mapping[str, str]) -> bool:
    """Whether a message that is sent is a half message; the broker refuses it with NO_PERMISSION under rejectTransactionMessage."""
    return boolean_value_of(properties.get(PROPERTY_TRANSACTION_PREPARED, ""))


def transaction_value(sys_flag: int) -> int:
    """MessageSysFlag.getTransactionValue."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE


def reset_transaction_value(sys_flag: int, kind: int) -> int:
    """MessageSysFlag.resetTransactionValue."""
    return sys_flag & ~TRANSACTION_ROLLBACK_TYPE | kind


def half_message(message: InnerMessage) -> InnerMessage:
    """What is stored of a message that is sent in a transaction.

    Args:
        message: as `SendMessageProcessor.accept` gives it.
    """
    properties = {**message.properties, PROPERTY_REAL_TOPIC: message.topic, PROPERTY_REAL_QUEUE_ID: str(message.queue_id)}
    return replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        sys_flag=reset_transaction_value(message.sys_flag, 0),
        properties=properties,
        properties_string=properties_to_string(properties),
    )


def _inner(message: Message, properties: Mapping[str, str]) -> InnerMessage:
    """A stored message, to be stored again: without its flag and its tries."""
    return InnerMessage(
        topic=message.topic.decode(),
        queue_id=message.queue_id,
        body=message.body,
        born_host=message.born_host,
        store_host=message.store_host,
        born_timestamp=message.born_timestamp,
        properties=properties,
        properties_string=properties_to_string(properties),
        sys_flag=message.sys_flag,
    )


def renewed_half_message(half: Message, properties: Mapping[str, str]) -> InnerMessage:
    """A half message that is put back while its producer is asked.

    Args:
        half: as it is stored.
        properties: its properties with those that the check changed.
    """
    return _inner(half, properties)


def renewed_immune_half_message(half: Message, properties: Mapping[str, str]) -> InnerMessage:
    """A half message that is put back because it is not to be checked yet; it remembers where it stood first."""
    first = properties.get(PROPERTY_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return _inner(half, {**properties, PROPERTY_WAIT_STORE_MSG_OK: "false", PROPERTY_PREPARED_QUEUE_OFFSET: first})


def discarded_half_message(half: Message, properties: Mapping[str, str]) -> InnerMessage:
    """A half message that was checked too often, or is too old."""
    inner = replace(_inner(half, properties), flag=half.flag, reconsume_times=half.reconsume_times)
    return replace(inner, topic=CHECK_MAX_TIME_TOPIC, queue_id=_CHECK_MAX_TIME_QUEUE)


def op_message(half: Message, store_host: Host, now: int) -> InnerMessage:
    """What says that a half message is done with; `now` in ms."""
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
    """The message that consumers get, of a half message that its producer commits."""
    properties = half.properties_map()
    inner = replace(_inner(half, properties), flag=half.flag, reconsume_times=half.reconsume_times)
    return replace(
        inner,
        topic=properties.get(PROPERTY_REAL_TOPIC, ""),
        queue_id=int(properties.get(PROPERTY_REAL_QUEUE_ID, "0")),
        sys_flag=reset_transaction_value(half.sys_flag, TRANSACTION_COMMIT_TYPE),
        prepared_transaction_offset=half.physic_offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRequest:
    """END_TRANSACTION: which half message, and by whom."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int


def check_prepare_message(half: Message | None, request: EndTransactionRequest) -> tuple[ResponseCode, str | None]:
    """Code and remark for the end of a transaction; only after SUCCESS is anything stored.

    Args:
        half: the message at the physical offset of the request, None where there is none.
        request: what the producer asks.
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
