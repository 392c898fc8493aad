"""The broker's check of half messages: which have ended, which the producer is asked about, and which are discarded.

Broker source (4.9.3): broker.transaction.queue.TransactionalMessageServiceImpl (check, needDiscard, needSkip, fillOpRemoveMap,
checkPrepareQueueOffset, calculateOpOffset), TransactionalMessageCheckService.
Rules: every minute the broker reads the half messages from where the last check stopped. A half message with an op message has ended. A
half message younger than six seconds ends the check. For any other, the broker asks the producer, and puts the message back with its
number of checks increased. After fifteen checks the message is discarded.
Surprises: a message with an immunity time of its own does not end the check; it is put back too, and that counts as a check. A message
that is put back keeps its bornTimestamp, and so its age. The broker asks no producer before it has read all op messages, unless the last
one of a read was born more than six seconds after the check began. But if the committed offset is no longer in the op queue, the broker
asks about all half messages, ended or not. If a half message has two op messages, the first one is done only when a check begins after the
half message. If the bornTimestamp is in the future, the broker asks at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from udfs.broker.transactional_message import PROPERTY_PREPARED_QUEUE_OFFSET, REMOVE_TAG
from udfs.java.texts import NumberFormatError, integer_value_of, long_value_of

CHECK_INTERVAL: Final = 60_000  # ms, transactionCheckInterval
MAX_PROCESS_TIME_LIMIT: Final = 60_000  # ms; the longest time that a check spends on one queue
OPS_AT_ONCE: Final = 32
PROPERTY_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_HOUR: Final = 3_600_000
_UNREADABLE: Final = -1
_TIMES_NOTHING_IS_FOUND: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """The settings of a check, under the broker's own names: transactionTimeOut in ms, fileReservedTime in hours."""

    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    file_reserved_time: int = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """The fields of a half message that a check reads; times in ms."""

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
    """The result of reading op messages: OPS_AT_ONCE at most, None if there are none.

    `next_begin_offset` is the offset of the next read; `is_illegal` is whether there are none because the offset is outside the queue's
    bounds.
    """

    messages: Sequence[OpMessage] | None
    next_begin_offset: int
    is_illegal: bool = False


class Look(Enum):
    """The action of a check on a half message that has not ended."""

    DISCARD = "store it in CHECK_MAX_TIME_TOPIC"
    LATER = "end the check"
    IMMUNE = "put it back, unless an op message names its first offset"
    ASK = "put it back and ask its producer"
    MORE_OPS = "read more op messages, and decide again"


def _number(text: str) -> int:
    try:
        return long_value_of(text)
    except NumberFormatError:
        return _UNREADABLE


def check_times(properties: Mapping[str, str]) -> int:
    """Return how often a half message was checked before; 0 without the property, -1 if its value is no number."""
    text = properties.get(PROPERTY_CHECK_TIMES)
    if text is None:
        return 0
    try:
        return integer_value_of(text)
    except NumberFormatError:
        return _UNREADABLE


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a half message that is put back: with its number of checks increased."""
    return {**properties, PROPERTY_CHECK_TIMES: str(check_times(properties) + 1)}


def immunity_time(properties: Mapping[str, str], transaction_time_out: int) -> int | None:
    """Return a half message's own immunity time, in ms after its bornTimestamp; None if it has no such property."""
    text = properties.get(PROPERTY_CHECK_IMMUNITY_TIME)
    if text is None:
        return None
    seconds = _number(text)
    return transaction_time_out if seconds == _UNREADABLE else seconds * 1000


def look_at(half: HalfMessage, ops: Sequence[OpMessage] | None, *, started: int, now: int, settings: CheckSettings) -> Look:
    """Return the action of a check on a half message for which no op message was read yet; times in ms.

    `ops` are the op messages of the last read, None if there were none; `started` is when the check of the queue began.
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
    """Return a half message's first queue offset, None if it was never put back for its immunity time."""
    text = half.properties.get(PROPERTY_PREPARED_QUEUE_OFFSET)
    return None if text is None else _number(text)


class TransactionQueues(Protocol):
    """A half queue and its op queue; a half message that is put back goes to the end of the half queue."""

    def half(self, offset: int) -> HalfMessage | int | None:
        """Return the half message at an offset; the next offset if the broker answers OFFSET_ILLEGAL; None past the end of the queue."""

    def ops(self, offset: int) -> OpRead:
        """Return the op messages from an offset on."""

    def put_back(self, half: HalfMessage, properties: Mapping[str, str], *, immune: bool) -> None:
        """Store a half message again with these properties: `renewed_immune_half_message` if `immune`, else `renewed_half_message`."""


@dataclass(slots=True)
class CheckResult:
    """The result of a check of one half queue.

    The next check starts at the two offsets, which are committed if they have changed. Half messages whose producers are `asked` have been
    put back; the `discarded` ones go to CHECK_MAX_TIME_TOPIC.
    """

    half_offset: int
    op_offset: int
    asked: list[HalfMessage] = field(default_factory=list)
    discarded: list[HalfMessage] = field(default_factory=list)


@dataclass(slots=True)
class _Check:
    """The state of a check of one half queue.

    Attributes:
        least: half offset at which the check began.
        next_op: offset of the next read of the op queue.
        removed: half offset -> op offset, for the op messages read whose half messages were not reached yet.
        done: offsets of op messages that no later check needs.
        last_ops: the op messages of the last read.
        moved_to: offset that the op queue gave in place of an illegal one.
        is_at_end: whether all op messages are read.
    """

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
        """Return the op offset where the next check starts: after the offsets in `done` that follow `before` without a gap."""
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
        """Return the action on a half message after reading as many op messages as needed, and its time in ms."""
        look = look_at(half, self.last_ops, started=started, now=now, settings=self.settings)
        while look is Look.MORE_OPS:
            if self.is_at_end:  # the broker reads again and again until the message is old enough
                waits = immunity_time(half.properties, self.settings.transaction_time_out)
                now = half.born_timestamp + (self.settings.transaction_time_out if waits is None else waits) + 1
                return (Look.LATER if now - started > MAX_PROCESS_TIME_LIMIT else Look.ASK), now
            self.read_ops()
            if half.queue_offset in self.removed:
                break
            look = look_at(half, self.last_ops, started=started, now=now, settings=self.settings)
        return look, now


def check_queue(queues: TransactionQueues, half_offset: int, op_offset: int, now: int, settings: CheckSettings) -> CheckResult:
    """Check one half queue, beginning at `now` (ms), and return the result. Only waiting takes time.

    `half_offset` and `op_offset` are where the last check stopped in each queue; for the first check, the queue's minOffset.
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
