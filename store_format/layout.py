"""The fixed layouts of the broker's files: numpy types of records, entries and headers, whose lengths are asserted, and constants.

Broker source (4.9.3): CommitLog.calMsgLength, MessageDecoder, ConsumeQueue, MessageSysFlag. All numbers are big endian.
Surprise: each of a record's two hosts is 8 or 20 bytes long, as a bit of sysFlag says, so the fields after it have no fixed position.
"""

from __future__ import annotations

from typing import Final

import numpy as np

MESSAGE_MAGIC_CODE: Final = -626843481  # 0xDAA320A7, a record
MESSAGE_MAGIC_CODE_V2: Final = -626843477  # 0xDAA320AB, a record of 5.x whose topic length has two bytes
BLANK_MAGIC_CODE: Final = -875286124  # 0xCBD43194, a BLANK: the rest of the file is unused

COMPRESSED_FLAG: Final = 0x1
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20

LMQ_PREFIX: Final = "%LMQ%"  # of light message queues and of their groups (MixAll.isLmq)

IPV4_HOST: Final = 8  # address and a four byte port
IPV6_HOST: Final = 20

RECORD_PREFIX: Final = np.dtype(
    [
        ("storeSize", ">i4"),  # the whole record, these bytes included
        ("magicCode", ">i4"),
        ("bodyCrc", ">i4"),  # CRC-32 of the body as stored, top bit cleared
        ("queueId", ">i4"),
        ("flag", ">i4"),
        ("queueOffset", ">i8"),
        ("physicOffset", ">i8"),
        ("sysFlag", ">i4"),
        ("bornTimestamp", ">i8"),  # ms, clock of the client
    ]  # bornHost, storeTimestamp, storeHost and RECORD_MIDDLE follow
)
assert RECORD_PREFIX.itemsize == 48

RECORD_MIDDLE: Final = np.dtype(
    [
        ("reconsumeTimes", ">i4"),
        ("preparedTransactionOffset", ">i8"),
        ("bodyLength", ">i4"),
    ]  # body, topicLength (i1, in V2 records i2), topic, propertiesLength (i2), properties follow
)
assert RECORD_MIDDLE.itemsize == 16

SYS_FLAG_POSITION: Final = 36
BORN_HOST_POSITION: Final = 48
# a record with IPv4 hosts and empty body, topic and properties
RECORD_MIN_SIZE: Final = RECORD_PREFIX.itemsize + IPV4_HOST + 8 + IPV4_HOST + RECORD_MIDDLE.itemsize + 1 + 2
assert RECORD_MIN_SIZE == 91

BLANK_SIZE: Final = 8  # CommitLog.END_FILE_MIN_BLANK_LENGTH: size and magic code of the BLANK at a file's end

CQ_UNIT: Final = np.dtype(
    [
        ("physicOffset", ">i8"),  # where the message starts in the commit log
        ("size", ">i4"),
        ("tagsCode", ">i8"),  # hash of the tag, or an address in the extension, or the delivery time of a delayed message
    ]
)
assert CQ_UNIT.itemsize == 20  # ConsumeQueue.CQ_STORE_UNIT_SIZE
CQ_STORE_UNIT_SIZE: Final = CQ_UNIT.itemsize

PRE_BLANK: Final = (0, 2147483647, 0)  # ConsumeQueue.fillPreBlank

# ConsumeQueueExt.MAX_ADDR: a tagsCode at or below it is an address in the ext file
EXT_MAX_ADDRESS: Final = -(2**31) - 1

DEFAULT_COMMIT_LOG_FILE_SIZE: Final = 1 << 30
DEFAULT_CONSUME_QUEUE_FILE_SIZE: Final = 300_000 * CQ_STORE_UNIT_SIZE
