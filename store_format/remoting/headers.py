"""The header classes of pulls and their answers, which read and write ext fields as the broker does.

Broker source (4.9.3; LITE_PULL_MESSAGE: 5.5.0): PullMessageRequestHeader, PullMessageResponseHeader, PullSysFlag, RequestCode,
RemotingCommand.decodeCommandCustomHeader.
Rule: every value is a text; Integer.parseInt and Long.parseLong read numbers, so blanks are errors and a plus sign is allowed.
Surprise: fields marked as required may be missing. The broker logs a field that is missing or no number and leaves it null; it fails only
where the field is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, Final, Self

_JAVA_NUMBER = re.compile(r"[+-]?\d{1,64}")


class RequestCode(IntEnum):
    """The codes of pull requests, and of the requests that change their answers; the codes of answers are in udfs.pull.codes."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    RESET_CONSUMER_CLIENT_OFFSET = 220
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    LITE_PULL_MESSAGE = 361  # of 5.x


# a client of 5.x sends pulls with PullSysFlag.LITE_PULL_MESSAGE under a code of their own (MQClientAPIImpl.pullMessage)
PULL_CODES: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class PullSysFlag(IntFlag):
    """The bits of a pull's sysFlag that have a meaning."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL_MESSAGE = 16


def java_number(text: str | None, bits: int) -> int | None:
    """The number that Integer.parseInt (32 bits) or Long.parseLong (64 bits) reads from `text`; None if it throws."""
    if text is None or not _JAVA_NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """A header class with fields of the broker's names; None is the broker's null."""

    NUMBERS: ClassVar[Mapping[str, int]] = {}
    NUMBERS_OF_5: ClassVar[Mapping[str, int]] = {}  # of further fields of 5.x
    NULLABLE: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def decode(cls, ext_fields: Mapping[str, str | None] | None) -> Self:
        """RemotingCommand.decodeCommandCustomHeader: the header in a command's ext fields; every field may be missing (see the module)."""
        values: dict[str, Any] = {}
        for one in fields(cls):
            text = (ext_fields or {}).get(one.name)
            values[one.name] = java_number(text, cls.NUMBERS[one.name]) if one.name in cls.NUMBERS else text
        return cls(**values)

    @classmethod
    def has_bad_number(cls, ext_fields: Mapping[str, str | None] | None, *, of_5: bool) -> bool:
        """Whether a field of a number is there, but is no number of its type; `of_5` tells whether the fields of 5.x count."""
        given, numbers = ext_fields or {}, {**cls.NUMBERS, **(cls.NUMBERS_OF_5 if of_5 else {})}
        return any(given.get(name) is not None and java_number(given[name], bits) is None for name, bits in numbers.items())

    def missing(self) -> tuple[str, ...]:
        """The names of fields that are marked CFNotNull and null: absent in the command, or no number of the field's type."""
        return tuple(one.name for one in fields(self) if one.name not in self.NULLABLE and getattr(self, one.name) is None)

    def ext_fields(self) -> dict[str, str | None]:
        """RemotingCommand.makeCustomHeaderToNet: the header as ext fields, without null fields."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageRequestHeader(_Header):
    """The header of PULL_MESSAGE: suspendTimeoutMillis in ms, subVersion in ms of the consumer's clock, offsets in entries of the queue."""

    NUMBERS: ClassVar[Mapping[str, int]] = {
        "queueId": 32,
        "queueOffset": 64,
        "maxMsgNums": 32,
        "sysFlag": 32,
        "commitOffset": 64,
        "suspendTimeoutMillis": 64,
        "subVersion": 64,
    }
    NUMBERS_OF_5: ClassVar[Mapping[str, int]] = {"maxMsgBytes": 32, "requestSource": 32}
    NULLABLE: ClassVar[frozenset[str]] = frozenset({"subscription", "expressionType"})

    consumerGroup: str | None
    topic: str | None
    queueId: int | None
    queueOffset: int | None
    maxMsgNums: int | None
    sysFlag: int | None
    commitOffset: int | None
    suspendTimeoutMillis: int | None
    subVersion: int | None
    subscription: str | None = None
    expressionType: str | None = None

    def has(self, flag: PullSysFlag) -> bool:
        """Whether a bit of sysFlag is set; without sysFlag no bit is, and the broker answers with an error."""
        return bool((self.sysFlag or 0) & flag)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageResponseHeader(_Header):
    """The header of the answer to a pull; all fields are null if an early check failed."""

    NUMBERS: ClassVar[Mapping[str, int]] = {"suggestWhichBrokerId": 64, "nextBeginOffset": 64, "minOffset": 64, "maxOffset": 64}

    suggestWhichBrokerId: int | None
    nextBeginOffset: int | None
    minOffset: int | None
    maxOffset: int | None
