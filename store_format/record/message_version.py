"""The versions of a record: the magic codes that begin one, and the bytes that the length of its topic takes.

Broker source (5.5.0): MessageVersion, MessageExtEncoder.calMsgLength; CommitLog.asyncPutMessage, which chooses the version.
Rule: the length of the topic has one byte in a record of MESSAGE_VERSION_V1, and two in one of MESSAGE_VERSION_V2. A broker writes V2 if
the topic has more than 127 characters, so a record's version follows from its topic. All else is the same.
Surprise: to a broker 4.9 a V2 record is none: its recovery cuts the log there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.big_endian import int16_at, int32_at
from store_format.broker_version import BrokerVersion, Rule, Variant
from store_format.compiled import inner
from store_format.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2

MAGIC_CODE_POSITION: Final = 4
BYTE_MAX: Final = 2**7 - 1
"""The longest topic of a V1 record, bytes."""

MESSAGE_VERSION: Final = Rule(
    term="MessageVersion",
    variants=(
        Variant(
            BrokerVersion.V4_9_3,
            False,
            "a record has one magic code, and the length of its topic one byte",
            "CommitLog.checkMessageAndReturnSize, isMappedFileMatchedRecover; MessageDecoder.decode",
        ),
        Variant(
            BrokerVersion.V5_5_0,
            True,
            (
                "the length of the topic has two bytes in a record with the magic code of MESSAGE_VERSION_V2, which is written for topics "
                "of more than 127 characters; bytes with another magic code are decoded as no message"
            ),
            "MessageVersion, CommitLog.checkMessageAndReturnSize, isMappedFileMatchedRecover, asyncPutMessage; MessageDecoder.decode",
        ),
    ),
)


@inner
def is_message(buffer, start, with_v2):  # type: ignore[no-untyped-def]
    """Whether the magic code of a record is at its place after `start`; `with_v2` is the value of MESSAGE_VERSION."""
    magic = int32_at(buffer, start + MAGIC_CODE_POSITION)
    return magic == MESSAGE_MAGIC_CODE or (with_v2 and magic == MESSAGE_MAGIC_CODE_V2)


@inner
def topic_length_size(buffer, start):  # type: ignore[no-untyped-def]
    """MessageVersion.getTopicLengthSize of the record at `start`: the bytes of its topic's length."""
    return 2 if int32_at(buffer, start + MAGIC_CODE_POSITION) == MESSAGE_MAGIC_CODE_V2 else 1


@inner
def topic_length(buffer, at, size):  # type: ignore[no-untyped-def]
    """MessageVersion.getTopicLength: the signed number of `size` bytes, 1 or 2, at `at`."""
    return int16_at(buffer, at) if size == 2 else np.int64(np.int8(buffer[at]))
