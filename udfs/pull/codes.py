"""The broker's names and numbers for statuses of a pull, response codes and roles of a broker.

Broker source (4.9.3): org.apache.rocketmq.store.GetMessageStatus, org.apache.rocketmq.common.protocol.ResponseCode,
org.apache.rocketmq.remoting.protocol.RemotingSysResponseCode, org.apache.rocketmq.store.config.BrokerRole.
Surprise: NO_MATCHED_LOGIC_QUEUE never occurs, because the store creates a queue when a pull names one that does not exist.
An unknown topic or queue is NO_MESSAGE_IN_QUEUE.
"""

from __future__ import annotations

from enum import IntEnum


class GetMessageStatus(IntEnum):
    """The store's status of a pull; the number is the place in the Java enum."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class ResponseCode(IntEnum):
    """The response codes to pulls, to sent messages and to queries of offsets."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    SLAVE_NOT_AVAILABLE = 11
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29


class BrokerRole(IntEnum):
    """The setting brokerRole; the number is the place in the Java enum."""

    ASYNC_MASTER = 0
    SYNC_MASTER = 1
    SLAVE = 2
