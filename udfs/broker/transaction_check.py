"""The broker's check of half messages: which are done with, which their producers are asked about, and which are given up.

Broker source (4.9.3): broker.transaction.queue.TransactionalMessageServiceImpl (check, needDiscard, needSkip, fillOpRemoveMap,
checkPrepareQueueOffset, calculateOpOffset), TransactionalMessageCheckService.
Rules: every minute the broker goes through the half messages from where it stopped. One with an op message is done with. One that is
younger than six seconds ends the check. Of any other the producer is asked, and the message is put back, one check older; after fifteen it
is given up.
Surprises: a message that is immune for a time of its own does not end the check but is put back too, and that counts as a check. One that
is put back keeps the age that it has from its birth. No producer is asked before all op messages are read, unless one of them was born six
seconds after the check began; but where the op queue does not have the offset noted any more, all are asked, ended or not. Two op messages
of one half message leave the first one standing until the half messages are past it. A message from the future is asked about at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from udfs.broker.transactional_message import PROPERTY_PREPARED_QUEUE_OFFSET, REMOVE_TAG
from udfs.java.texts import NumberFormatError, integer_value_of, long_value_of

CHECK_INTERVAL: Final = 60_000  # ms, transactionCheckInterval
MAX_PROCESS_TIME_LIMIT: Final = 60_000  # ms that one queue is checked for
OPS_AT_ONCE: Final = 32
PROPERTY_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_HOUR: Final = 3_600_000
_UNREADABLE: Final = -1
_TIMES_NOTHING_IS_FOUND: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The settings, by their own names: transactionTimeOut in ms, fileReservedTime in hours."""

    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    file_reserved_time: int = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """What a check looks at of a half message; times in ms."""

    queue_offset: int
    born_timestamp: int
    store_timestamp: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpMessage:
    """An op message: its queue offset, its body (the queue offset of the half message), when it was born (ms), and its tag."""

    queue_offset: int
    body: str
    born_timestamp: int
    tag: str | None = REMOVE_TAG


class OpRead(NamedTuple):
    """Op messages that were read.

    Attributes:
        messages: at most OPS_AT_ONCE, None where there are none.
        next_begin_offset: where to read on.
        is_illegal: there are none because the queue does not have the offset; it begins elsewhere.
    """

    messages: Sequence[OpMessage] | None
    next_begin_offset: int
    is_illegal: bool = False


class Look(Enum):
    """What a check does about a half message that is not done with."""

    DISCARD = "give it up"
    LATER = "end the check"
    IMMUNE = "put it back, unless an op message of where it stood first is there"
    ASK = "put it back and ask its producer"
    MORE_OPS = "read more op messages, and look again"


def _number(text: str) -> int:
    try:
        return long_value_of(text)
    except NumberFormatError:
        return _UNREADABLE


def check_times(properties: Mapping[str, str]) -> int:
    """How often a half message was checked before; 0 without the property, -1 where it is no number."""
    text = properties.get(PROPERTY_CHECK_TIMES)
    if text is None:
        return 0
    try:
        return integer_value_of(text)
    except NumberFormatError:
        return _UNREADABLE


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a half message that is put back: one check older."""
    return {**properties, PROPERTY_CHECK_TIMES: str(check_times(properties) + 1)}


def immunity_time(properties: Mapping[str, str], transaction_time_out: int) -> int | None:
    """For how many ms from its birth a half message asks not to be checked, None where it does not say."""
    text = properties.get(PROPERTY_CHECK_IMMUNITY_TIME)
    if text is None:
        return None
    seconds = _number(text)
    return transaction_time_out if seconds == _UNREADABLE else seconds * 1000


def look_at(half: HalfMessage, ops: Sequence[OpMessage] | None, *, started: int, now: int, settings: CheckSettings) -> Look:
    """What a check does about a half message that no op message that was read names.

    Args:
        half: the message.
        ops: the op messages of the last reading, None where there were none left.
        started: when the check of the queue began, ms.
        now: ms.
        settings: of the broker.
    """
    age, asked_for = now - half.born_timestamp, immunity_time(half.properties, settings.transaction_time_out)
    too_often = PROPERTY_CHECK_TIMES in half.properties and check_times(half.properties) >= settings.transaction_check_max
    if too_often or age > settings.file_reserved_time * _HOUR:
        return Look.DISCARD
    if half.store_timestamp >= started:
        return Look.LATER
    if asked_for is None and 0 <= age < settings.transaction_time_out:
        return Look.LATER
    if asked_for is not None and age < asked_for and _prepared_offset(half) != _UNREADABLE:
        return Look.IMMUNE
    return Look.ASK if _needs_check(age, asked_for, ops, started, settings) else Look.MORE_OPS


def _needs_check(age: int, asked_for: int | None, ops: Sequence[OpMessage] | None, started: int, settings: CheckSettings) -> bool:
    if age < 0:
        return True
    if ops is None:
        return age > (settings.transaction_time_out if asked_for is None else asked_for)
    return ops[-1].born_timestamp - started > settings.transaction_time_out


def _prepared_offset(half: HalfMessage) -> int | None:
    """Where a half message stood first, None where it was never put back for its immunity."""
    text = half.properties.get(PROPERTY_PREPARED_QUEUE_OFFSET)
    return None if text is None else _number(text)


class TransactionQueues(Protocol):
    """A half queue and its op queue, as a check sees them; what is put back comes to the end of the half queue."""

    def half(self, offset: int) -> HalfMessage | int | None:
        """The message at an offset; the next offset where the broker says that this one is illegal, None where it is past the end."""

    def ops(self, offset: int) -> OpRead:
        """The op messages from an offset on."""

    def put_back(self, half: HalfMessage, properties: Mapping[str, str], *, immune: bool) -> None:
        """Store a half message again, with these properties, as `renewed_half_message` or `renewed_immune_half_message` makes it."""


@dataclass(slots=True)
class CheckResult:
    """What a check comes to.

    Attributes:
        half_offset: where the next check goes on; to be committed if it is another than before, like the one that follows.
        op_offset: likewise, for the op queue.
        asked: half messages whose producers are asked; they have been put back.
        discarded: half messages that are given up; they go to CHECK_MAX_TIME_TOPIC.
    """

    half_offset: int
    op_offset: int
    asked: list[HalfMessage] = field(default_factory=list)
    discarded: list[HalfMessage] = field(default_factory=list)


@dataclass(slots=True)
class _Check:
    """A check of one queue under way: `removed` has the op messages that were read, by half message; `moved_to` is where they begin."""

    queues: TransactionQueues
    settings: CheckSettings
    least: int
    next_op: int
    removed: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    last_ops: Sequence[OpMessage] | None = None
    moved_to: int | None = None
    is_at_end: bool = False

    def read_ops(self) -> None:
        self.last_ops, self.next_op, is_illegal = self.queues.ops(self.next_op)
        self.is_at_end = self.last_ops is None and not is_illegal
        if is_illegal:
            self.moved_to = self.next_op
        for op in self.last_ops or ():
            half_offset = _number(op.body)
            if op.tag != REMOVE_TAG:
                continue
            if half_offset < self.least:
                self.done.add(op.queue_offset)
            else:
                self.removed[half_offset] = op.queue_offset

    def op_offset(self, before: int) -> int:
        """Where the next check reads op messages on: behind those that are done with, without a gap."""
        offset = before
        while offset in self.done:
            offset += 1
        return self.moved_to if offset == before and self.moved_to is not None else offset

    def is_removed(self, half_offset: int) -> bool:
        if half_offset not in self.removed:
            return False
        self.done.add(self.removed.pop(half_offset))
        return True

    def keep_immune(self, half: HalfMessage) -> None:
        first = _prepared_offset(half)
        if first is None or not self.is_removed(first):
            self.queues.put_back(half, checked_properties(half.properties), immune=True)

    def next_look(self, half: HalfMessage, started: int, now: int) -> tuple[Look, int]:
        """What is done about a half message once enough op messages are read, and when."""
        look = look_at(half, self.last_ops, started=started, now=now, settings=self.settings)
        while look is Look.MORE_OPS:
            if self.is_at_end:  # the broker reads on until the message is old enough
                waits = immunity_time(half.properties, self.settings.transaction_time_out)
                now = half.born_timestamp + (self.settings.transaction_time_out if waits is None else waits) + 1
                return (Look.LATER if now - started > MAX_PROCESS_TIME_LIMIT else Look.ASK), now
            self.read_ops()
            if half.queue_offset in self.removed:
                break
            look = look_at(half, self.last_ops, started=started, now=now, settings=self.settings)
        return look, now


def check_queue(queues: TransactionQueues, half_offset: int, op_offset: int, now: int, settings: CheckSettings) -> CheckResult:
    """One check of a half queue, which takes no time but that which it waits.

    Args:
        queues: the half queue and its op queue.
        half_offset: where the last check stopped, the least offset of the queue at first.
        op_offset: likewise, of the op queue.
        now: when it begins, ms.
        settings: of the broker.
    """
    check = _Check(queues, settings, least=half_offset, next_op=op_offset)
    check.read_ops()
    started, at, result, missing = now, half_offset, CheckResult(half_offset, op_offset), 0
    while True:
        if check.is_removed(at):
            at += 1
            continue
        half = queues.half(at)
        if not isinstance(half, HalfMessage):
            missing += 1
            if half is None or missing == _TIMES_NOTHING_IS_FOUND:
                break
            at = half
            continue
        look, now = check.next_look(half, started, now)
        if look is Look.LATER:
            break
        if look is Look.MORE_OPS:
            continue
        if look is Look.DISCARD:
            result.discarded.append(half)
        elif look is Look.IMMUNE:
            check.keep_immune(half)
        else:
            queues.put_back(half, checked_properties(half.properties), immune=False)
            result.asked.append(half)
        at += 1
    result.half_offset, result.op_offset = at, check.op_offset(op_offset)
    return result
