"""Match the answers of one connection to their requests, and make rows of the tables from both.

Broker source (4.9.3): NettyRemotingAbstract (responses by opaque); the processors of pulls, of offsets, of clients.
Rule: an answer has the opaque of its request and the opposite direction. Answers may come in another order than requests. The broker sends
requests of its own, with its own opaques, on the same connection.
Surprise: a client uses an opaque again only after it has given up the first request; the older request was never answered then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pipeline.capture.reassembly import CapturedPacket
from pipeline.schema.capture_tables import RAW_BYTES_MAX
from store_format.record.message import decode
from store_format.remoting.command import RPC_ONEWAY_FLAG, RPC_TYPE_FLAG
from store_format.remoting.errors import FrameError
from store_format.remoting.frame import LENGTH_FIELD, decode_command
from store_format.remoting.frame_columns import NO_OPAQUE, FrameColumns
from store_format.remoting.headers import (
    PULL_CODES,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    RequestCode,
    java_number,
)
from store_format.remoting.heartbeat import ConsumerData, decode_heartbeat
from store_format.remoting.reset_offset import decode_reset_offset
from store_format.remoting.text import java_bytes
from udfs.pull.codes import ResponseCode

Row = dict[str, Any]
PULL, OFFSET, RESET, SUBSCRIPTION, BAD = "pull", "offset", "reset", "subscription", "bad"
HEART_BEAT, UNREGISTER_CLIENT, CLOSED = "HEART_BEAT", "UNREGISTER_CLIENT", "CLOSED"

# limits of unanswered requests and of answers without a request in memory; a broker holds at most some thousands of pulls of a connection
PENDING_MAX: Final = 1 << 16
ANSWERS_AHEAD_MAX: Final = 1 << 10
_AHEAD_MICROS: Final = 1_000_000  # most by which an answer may precede its request in the file; captures mix up only close packets
_FRAMES_A_PACKET: Final = 1 << 20
_WAITED_MICROS: Final = 20_000  # a pull that took longer was held: workers are faster
_WANTED: Final = PULL_CODES | {
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
}
# codes of the checks of the registration; codes of the checks before it, which do not depend on it
OF_REGISTRATION: Final = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
}
BEFORE_REGISTRATION: Final = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
}
# codes of all checks that come before the offset is committed
_NOT_COMMITTED: Final = OF_REGISTRATION | BEFORE_REGISTRATION | {ResponseCode.SUBSCRIPTION_PARSE_FAILED}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a batch: `row` of `columns`, at `offset` in the stream; `packet` completed it.

    `whole` is whether the frame's body was captured completely.
    """

    columns: FrameColumns
    row: int
    offset: int
    packet: CapturedPacket
    whole: bool = True

    @property
    def content(self) -> memoryview:
        """The frame's bytes after the length field."""
        start, length = int(self.columns.starts[self.row]), int(self.columns.lengths[self.row])
        return self.columns.buffer[start + LENGTH_FIELD : start + length].data

    @property
    def body(self) -> memoryview:
        """The frame's body."""
        start, length = int(self.columns.body.starts[self.row]), int(self.columns.body.lengths[self.row])
        return self.columns.buffer[start : start + length].data

    def fields(self, header: type[PullMessageRequestHeader | PullMessageResponseHeader]) -> Row:
        """The values of the fields of a header class, by their names."""
        texts = {one.name: self.columns.text(self.row, one.name) for one in fields(header)}
        bits = header.NUMBERS
        return {name: java_number(text, bits[name]) if name in bits else plain_text(text) for name, text in texts.items()}


def plain_text(text: str | None) -> str | None:
    """A text as Java encodes it: half of a surrogate pair, which JSON can escape, becomes a question mark."""
    try:
        return text if text is None or text.isascii() else text.encode().decode()
    except UnicodeEncodeError:
        return java_bytes(text or "").decode()


@dataclass(slots=True)
class _Answer:
    """The fields of an answer that are used for any kind of request."""

    packet: CapturedPacket
    code: int
    remark: str | None
    fields: Row
    ext_offset: int | None
    body_length: int
    body_sha256: str | None
    stored_ms: int | None


@dataclass(slots=True)
class _Pending:
    code: int
    packet: CapturedPacket
    rows: list[Row]


@dataclass(slots=True)
class Exchanges:
    """The requests of one connection that wait for their answers, in both directions.

    `ends` are the senders by direction; `digest` is the SHA-256 of the capture file.
    """

    connection: str
    ends: tuple[str, str]
    digest: str
    _pending: tuple[dict[int, _Pending], dict[int, _Pending]] = field(default_factory=lambda: ({}, {}))
    _ahead: tuple[dict[int, _Answer], dict[int, _Answer]] = field(default_factory=lambda: ({}, {}))
    _in_packet: list[tuple[int, int]] = field(default_factory=lambda: [(-1, 0), (-1, 0)])
    _groups: dict[str, int] = field(default_factory=dict)
    _subscribed: dict[str, list[Row]] = field(default_factory=dict)

    def take(self, frame: Frame, direction: int) -> Iterator[tuple[str, Row]]:
        """Process a frame that was sent in a direction (0 or 1); gives the rows that are complete now, each with its kind."""
        columns, row = frame.columns, frame.row
        opaque = int(columns.opaque[row])
        if int(columns.flag[row]) & RPC_TYPE_FLAG:
            yield from self._answered(frame, 1 - direction, opaque)
            return
        code = int(columns.code[row])
        rows: list[Row] = []
        try:
            rows = self._rows_of(code, frame, direction, opaque)
        except FrameError as error:
            yield BAD, bad_row(frame, f"{self._place(frame.offset, direction)}: {error}")
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            yield from ((OFFSET, one) for one in rows)
            return
        if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:  # one-way
            yield from ((RESET, one) for one in rows)
            return
        waiting = self._pending[direction]
        if (older := waiting.pop(opaque, None)) is not None:
            yield from _without_answer(older)
        pending = _Pending(code, frame.packet, rows)
        ahead = self._ahead[direction].pop(opaque, None)
        if ahead is not None and abs(ahead.packet.micros - frame.packet.micros) <= _AHEAD_MICROS:
            yield from _with_answer(pending, ahead)
        elif opaque == NO_OPAQUE or int(columns.flag[row]) & RPC_ONEWAY_FLAG:
            yield from _without_answer(pending)
        else:
            waiting[opaque] = pending
            if len(waiting) > PENDING_MAX:
                yield from _without_answer(waiting.pop(next(iter(waiting))))

    def close(self, packet: CapturedPacket) -> Iterator[tuple[str, Row]]:
        """Process the close of the connection: a row CLOSED for each group that pulled or sent heartbeats on it, and did not unregister."""
        for group, direction in self._groups.items():
            yield SUBSCRIPTION, self._common(f"closed-{group}", packet, direction) | _event_row(CLOSED, packet, group)
        self._groups.clear()
        self._subscribed.clear()

    def end(self) -> Iterator[tuple[str, Row]]:
        """End the connection; gives the rows of requests without answers."""
        for waiting in self._pending:
            for pending in waiting.values():
                yield from _without_answer(pending)
            waiting.clear()

    def bad(self, offset: int, direction: int, error: str, raw: bytes, packet: CapturedPacket) -> tuple[str, Row]:
        """A row of bad_request for bytes of a stream that are no frame."""
        return BAD, {"position": packet.position, "error": f"{self._place(offset, direction)}: {error}", "raw": raw}

    def _place(self, offset: int, direction: int) -> str:
        return f"connection {self.connection}, sent by {self.ends[direction]}, byte {offset}"

    def _rows_of(self, code: int, frame: Frame, direction: int, opaque: int) -> list[Row]:
        """The rows of a request, without the columns of its answer."""
        if code not in _WANTED:
            return []
        place = f"{direction}-{frame.offset}-{'' if opaque == NO_OPAQUE else opaque}"
        common = self._common(place, frame.packet, direction)
        if code == RequestCode.HEART_BEAT:
            return [] if not frame.whole else self._heartbeat(frame, direction, common)
        if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return [] if not frame.whole else self._resets(frame, common)
        fields = frame.fields(PullMessageRequestHeader)
        if code == RequestCode.UNREGISTER_CLIENT:
            group = fields["consumerGroup"]
            self._groups.pop(group, None)
            self._subscribed.pop(group, None)
            return [] if group is None else [common | _event_row(UNREGISTER_CLIENT, frame.packet, group)]  # a producer has no group
        if code in PULL_CODES:
            if fields["consumerGroup"] is not None:
                self._groups.setdefault(fields["consumerGroup"], direction)
            return [common | fields | {"opaque": None if opaque == NO_OPAQUE else opaque, "arrivalMicros": frame.packet.micros}]
        queue = {name: fields[name] for name in ("consumerGroup", "topic", "queueId")}
        history = {"origin": RequestCode(code).name, "micros": frame.packet.micros, "consumerOffset": fields["commitOffset"]}
        return [common | queue | history]

    def _resets(self, frame: Frame, common: Row) -> list[Row]:
        """A row for each queue whose offset the broker tells the client to commit; the group is a field of this request alone."""
        group = plain_text((decode_command(frame.content).ext_fields or {}).get("group"))
        told = common | {"consumerGroup": group, "micros": frame.packet.micros}
        return [
            told | {"topic": plain_text(topic), "queueId": queue_id, "consumerOffset": offset}
            for (topic, queue_id), offset in decode_reset_offset(bytes(frame.body)).items()
        ]

    def _common(self, place: str, packet: CapturedPacket, direction: int) -> Row:
        number, count = self._in_packet[direction]
        count = count + 1 if number == packet.number else 0
        self._in_packet[direction] = (packet.number, count)
        return {
            "requestId": f"{self.digest[:16]}-{self.connection}-{place}",
            "sequence": packet.number * _FRAMES_A_PACKET + count,
            "connection": self.connection,
            "client": self.ends[direction],
        }

    def _heartbeat(self, frame: Frame, direction: int, common: Row) -> list[Row]:
        heartbeat = decode_heartbeat(bytes(frame.body))
        rows = []
        for data in heartbeat.consumerDataSet:
            if data.groupName is None:
                continue
            group = plain_text(data.groupName) or ""
            self._groups[group] = direction
            if not heartbeat.keeps_subscriptions:
                self._subscribed[group] = [*_subscriptions(data)]
            heard = common | {"event": HEART_BEAT, "micros": frame.packet.micros, "clientId": plain_text(heartbeat.clientID)}
            # a client of 5.x sends its subscriptions only after they changed; those before the capture are not known
            rows += [heard | one for one in self._subscribed.get(group, [])]
        return rows

    def _answered(self, frame: Frame, direction: int, opaque: int) -> Iterator[tuple[str, Row]]:
        pending = self._pending[direction].pop(opaque, None)
        if pending is not None and not pending.rows:
            return
        answer = _answer_of(frame)
        if pending is not None:
            yield from _with_answer(pending, answer)
            return
        ahead = self._ahead[direction]
        ahead[opaque] = answer
        if len(ahead) > ANSWERS_AHEAD_MAX:
            del ahead[next(iter(ahead))]


def bad_row(frame: Frame, error: str) -> Row:
    """A row of bad_request for a frame that the broker would refuse."""
    return {"position": frame.packet.position, "error": error, "raw": bytes(frame.content[:RAW_BYTES_MAX])}


def _subscriptions(data: ConsumerData) -> Iterator[Row]:
    """The subscriptions of a heartbeat's group: a row for each topic; one row without a topic if there is none."""
    group = {"consumerGroup": plain_text(data.groupName), "consumeType": data.consumeType, "messageModel": data.messageModel}
    for one in data.subscriptionDataSet:
        yield group | {
            "topic": plain_text(one.topic),
            "subString": plain_text(one.subString),
            "expressionType": plain_text(one.expressionType),
            "subVersion": one.subVersion,
            "classFilterMode": one.classFilterMode,
            "tagsSet": sorted(plain_text(tag) or "" for tag in one.tagsSet),
            "codeSet": sorted(one.codeSet),
        }
    if not data.subscriptionDataSet:
        yield group


def _event_row(event: str, packet: CapturedPacket, group: str | None) -> Row:
    return {"event": event, "micros": packet.micros, "consumerGroup": group}


def _answer_of(frame: Frame) -> _Answer:
    columns, row = frame.columns, frame.row
    body = frame.body
    fields = frame.fields(PullMessageResponseHeader)
    offset = None
    if not len(body) and fields["nextBeginOffset"] is None:  # the answer to a QUERY_CONSUMER_OFFSET
        offset = java_number((decode_command(frame.content).ext_fields or {}).get("offset"), 64)
    has_messages = frame.whole and len(body) and fields["nextBeginOffset"] is not None
    first = decode(body, uncompress_body=False) if has_messages else None  # type: ignore[arg-type]
    return _Answer(
        packet=frame.packet,
        code=int(columns.code[row]),
        remark=plain_text(columns.text(row, "remark")),
        fields=fields,
        ext_offset=offset,
        body_length=len(body),
        body_sha256=hashlib.sha256(body).hexdigest() if len(body) and frame.whole else None,
        stored_ms=None if first is None else first.store_timestamp,
    )


def _with_answer(pending: _Pending, answer: _Answer) -> Iterator[tuple[str, Row]]:
    if pending.code == RequestCode.LITE_PULL_MESSAGE and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return  # a broker 4.9 does not know lite pulls
    if pending.code in PULL_CODES:
        for row in pending.rows:
            yield from _pulled(row | _recorded(answer) | {"held": _was_held(row, answer)})
    elif pending.code == RequestCode.QUERY_CONSUMER_OFFSET:
        found = {"consumerOffset": answer.ext_offset, "code": answer.code, "micros": answer.packet.micros}
        yield from ((OFFSET, row | found) for row in pending.rows)
    else:
        yield from ((SUBSCRIPTION, row | {"answerMicros": answer.packet.micros}) for row in pending.rows)


def _without_answer(pending: _Pending) -> Iterator[tuple[str, Row]]:
    if pending.code in PULL_CODES:
        for row in pending.rows:
            yield from _pulled(row | {"held": bool((row["sysFlag"] or 0) & PullSysFlag.SUSPEND)})
    else:
        kind = OFFSET if pending.code == RequestCode.QUERY_CONSUMER_OFFSET else SUBSCRIPTION
        yield from ((kind, row) for row in pending.rows)


def _recorded(answer: _Answer) -> Row:
    return {f"recorded{name[0].upper()}{name[1:]}": value for name, value in answer.fields.items()} | {
        "recordedCode": answer.code,
        "recordedRemark": answer.remark,
        "recordedBodyLength": answer.body_length,
        "recordedBodySha256": answer.body_sha256,
        "answerMicros": answer.packet.micros,
    }


def _was_held(row: Row, answer: _Answer) -> bool:
    """Whether the broker held the pull.

    A pull with the suspend bit was held if it found no message, or if its first message was stored after the pull. If no message of the
    answer can be read, the time decides: it was held if it took _WAITED_MICROS. A pull whose offset moved was not held.
    """
    if not (row["sysFlag"] or 0) & PullSysFlag.SUSPEND:
        return False
    if answer.code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED}:
        return answer.code == ResponseCode.PULL_NOT_FOUND
    if answer.stored_ms is not None:
        return answer.stored_ms * 1000 + 999 >= int(row["arrivalMicros"])
    return answer.packet.micros - int(row["arrivalMicros"]) >= _WAITED_MICROS


def _pulled(row: Row) -> Iterator[tuple[str, Row]]:
    """The row of a pull, and the row of the offset that it commits."""
    yield PULL, row
    commits = (row["sysFlag"] or 0) & PullSysFlag.COMMIT_OFFSET
    if commits and row["commitOffset"] is not None and row.get("recordedCode") not in _NOT_COMMITTED:
        same = ("requestId", "sequence", "connection", "client", "consumerGroup", "topic", "queueId")
        history = {"origin": RequestCode.PULL_MESSAGE.name, "micros": row["arrivalMicros"], "consumerOffset": row["commitOffset"]}
        yield OFFSET, {name: row[name] for name in same} | history | {"code": row.get("recordedCode")}
