"""Messages as producers might have sent them, made many at once for generated stores.

Only MessageClientIDSetter.createUniqID is RocketMQ's code: the key that a client gives a message.
Rule: message n of a seed is always the same, whatever the number of messages made at once. Its choices come from its own stream of random
numbers; only the clock and the current batch pass from one message to the next.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from store_format import layout
from store_format.big_endian import Bytes
from store_format.compiled import compiled
from store_format.log.append import MessageColumns, body_crcs, put_bytes
from store_format.made import made_tables as t
from store_format.made.made_values import GAMMA, between, mixed, pick, put_decimal, put_hex, put_letters, unit
from store_format.record.record_columns import Slices

Longs = NDArray[np.int64]

_NAME_VALUE_SEPARATOR = 1
_PROPERTY_SEPARATOR = 2
_MAX_LATENCY = 10  # greatest store timestamp minus born timestamp, ms

# positions in the state that passes from one message to the next
_REMAINING, _TOPIC, _QUEUE, _HOST, _STORED, _BORN, _BATCH, _STATE = range(8)
# rows of the array of made columns
(
    _C_QUEUE,
    _C_BATCH,
    _C_QUEUE_ID,
    _C_SYS_FLAG,
    _C_BORN,
    _C_STORED,
    _C_HOST,
    _C_HOST_LENGTH,
    _C_BODY,
    _C_BODY_LENGTH,
    _C_TOPIC,
    _C_TOPIC_LENGTH,
    _C_PROPERTIES,
    _C_PROPERTIES_LENGTH,
    _COLUMNS,
) = range(15)


@compiled
def _uniq_key(out, at, tables, host, born, message):  # type: ignore[no-untyped-def]
    """Write MessageClientIDSetter.createUniqID: address, process, class loader, time since the month began, counter."""
    start = tables.hosts[host, 0]
    for k in range(tables.hosts[host, 1] - 4):
        at = put_hex(out, at, np.int64(tables.text[start + k]), 2)
    process = np.int64(mixed(np.uint64(tables.numbers[0]) + np.uint64(host) * GAMMA) >> np.uint64(16))
    at = put_hex(out, at, process & 0xFFFFFFFFFFFF, 12)
    at = put_hex(out, at, (born - tables.numbers[2]) & 0xFFFFFFFF, 8)
    return put_hex(out, at, message & 0xFFFF, 4)


@compiled
def _keys(out, at, tables, topic, count, stream):  # type: ignore[no-untyped-def]
    row = tables.topics[topic]
    for k in range(count):
        if k > 0:
            out[at] = 32
            at += 1
        stream += GAMMA
        at = put_bytes(out, at, tables.text, row[t.KEY_PREFIX], row[t.KEY_PREFIX_LENGTH])
        at = put_decimal(out, at, between(np.int64(0), row[t.KEYS_DISTINCT] - 1, mixed(stream)))
    return at, stream


@compiled
def _properties(out, at, tables, topic, queue, host, born, level, message, stream):  # type: ignore[no-untyped-def]
    row = tables.topics[topic]
    begin = at
    for p in range(row[t.PROPERTY_FIRST], row[t.PROPERTY_FIRST] + row[t.PROPERTY_COUNT]):
        kind = tables.properties[p, t.PROPERTY_KIND]
        choice = np.int64(-1)
        keys = np.int64(0)
        if kind == t.CHOSEN:
            stream += GAMMA
            choice = pick(tables.shares, tables.properties[p, t.CHOICE_FIRST], tables.properties[p, t.CHOICE_COUNT], mixed(stream))
            if tables.choice_text[choice, 1] == 0:
                continue
        elif kind == t.KEYS:
            stream += GAMMA
            keys = between(row[t.KEYS_MIN], row[t.KEYS_MAX], mixed(stream))
            if keys == 0:
                continue
        elif kind != t.UNIQ_KEY and level == 0:
            continue
        if at > begin:
            out[at] = _PROPERTY_SEPARATOR
            at += 1
        at = put_bytes(out, at, tables.text, tables.properties[p, t.PROPERTY_NAME], tables.properties[p, t.PROPERTY_NAME_LENGTH])
        out[at] = _NAME_VALUE_SEPARATOR
        at += 1
        if kind == t.CHOSEN:
            at = put_bytes(out, at, tables.text, tables.choice_text[choice, 0], tables.choice_text[choice, 1])
        elif kind == t.KEYS:
            at, stream = _keys(out, at, tables, topic, keys, stream)
        elif kind == t.UNIQ_KEY:
            at = _uniq_key(out, at, tables, host, born, message)
        elif kind == t.REAL_TOPIC:
            at = put_bytes(out, at, tables.text, row[t.TOPIC], row[t.TOPIC_LENGTH])
        else:
            at = put_decimal(out, at, level if kind == t.DELAY else queue)
    return at, stream


@compiled
def _send(tables, state, clock, stream):  # type: ignore[no-untyped-def]
    """Draw the next send's time, queue, producer and number of messages into `state`; returns the clock and the stream."""
    stream += GAMMA
    clock -= math.log(1.0 - unit(mixed(stream))) * tables.gap_ms
    stream += GAMMA
    topic = pick(tables.topic_shares, np.int64(0), len(tables.topic_shares), mixed(stream))
    row = tables.topics[topic]
    stream += GAMMA
    queue = pick(tables.shares, row[t.QUEUE_FIRST], row[t.QUEUE_COUNT], mixed(stream)) - row[t.QUEUE_FIRST]
    stream += GAMMA
    host = between(row[t.HOST_FIRST], row[t.HOST_FIRST] + row[t.HOST_COUNT] - 1, mixed(stream))
    stream += GAMMA
    state[_REMAINING] = between(row[t.BATCH_MIN], row[t.BATCH_MAX], mixed(stream))
    state[_TOPIC], state[_QUEUE], state[_HOST] = topic, queue, host
    state[_STORED] = tables.numbers[1] + np.int64(clock)
    stream += GAMMA
    state[_BORN] = state[_STORED] - between(np.int64(0), np.int64(_MAX_LATENCY), mixed(stream))
    state[_BATCH] += 1
    return clock, stream


@compiled
def _level_and_kind(tables, row, stream):  # type: ignore[no-untyped-def]
    stream += GAMMA
    kind = tables.values[pick(tables.shares, row[t.KIND_FIRST], row[t.KIND_COUNT], mixed(stream))]
    stream += GAMMA
    level = tables.values[pick(tables.shares, row[t.LEVEL_FIRST], row[t.LEVEL_COUNT], mixed(stream))]
    if kind in (layout.TRANSACTION_PREPARED_TYPE, layout.TRANSACTION_ROLLBACK_TYPE):
        level = np.int64(0)
    return level, kind, stream


@compiled
def _make(tables, message, state, clock, out, columns):  # type: ignore[no-untyped-def]
    """Make messages from number `message` on until `columns` or `out` is full; a batch is never split between two calls."""
    at = np.int64(0)
    count = 0
    while True:
        stream = mixed(np.uint64(tables.numbers[0]) * GAMMA + mixed(np.uint64(message)))
        if state[_REMAINING] == 0:
            before = clock
            clock, stream = _send(tables, state, clock, stream)
            needed = tables.topics[state[_TOPIC], t.MAX_BYTES] * state[_REMAINING]
            if count + state[_REMAINING] > columns.shape[1] or at + needed > len(out):
                state[_REMAINING] = 0
                state[_BATCH] -= 1
                return count, before
        topic, queue, host = state[_TOPIC], state[_QUEUE], state[_HOST]
        row = tables.topics[topic]
        level, kind, stream = _level_and_kind(tables, row, stream)
        columns[_C_QUEUE, count] = tables.delay_topic[2] + level - 1 if level > 0 else row[t.QUEUE_NUMBER] + queue
        columns[_C_QUEUE_ID, count] = level - 1 if level > 0 else queue
        columns[_C_TOPIC, count] = tables.delay_topic[0] if level > 0 else row[t.TOPIC]
        columns[_C_TOPIC_LENGTH, count] = tables.delay_topic[1] if level > 0 else row[t.TOPIC_LENGTH]
        columns[_C_BATCH, count] = state[_BATCH] if row[t.BATCH_MAX] > 1 else -1
        columns[_C_SYS_FLAG, count] = kind
        columns[_C_BORN, count] = state[_BORN]
        columns[_C_STORED, count] = state[_STORED]
        columns[_C_HOST, count] = tables.hosts[host, 0]
        columns[_C_HOST_LENGTH, count] = tables.hosts[host, 1]
        columns[_C_PROPERTIES, count] = at
        at, stream = _properties(out, at, tables, topic, queue, host, state[_BORN], level, message, stream)
        columns[_C_PROPERTIES_LENGTH, count] = at - columns[_C_PROPERTIES, count]
        stream += GAMMA
        length = between(row[t.BODY_MIN], row[t.BODY_MAX], mixed(stream))
        columns[_C_BODY, count] = at
        columns[_C_BODY_LENGTH, count] = length
        at = put_letters(out, at, length, stream)
        state[_REMAINING] -= 1
        message += 1
        count += 1


class MessageMaker:
    """Makes the messages of a workload, part by part."""

    def __init__(self, tables: t.Tables, *, messages: int, rows: int, buffer_bytes: int) -> None:
        """Begin with message 0 of `messages`; the last batch is cut to that number.

        A part has at most `rows` messages, and `buffer_bytes` bytes for bodies and properties; each must hold the largest batch.
        """
        self.made = 0
        self._tables = tables
        self._messages = messages
        self._rows = rows
        self._buffer_bytes = buffer_bytes
        self._state = np.zeros(_STATE, np.int64)
        self._clock = 0.0

    def next_stretch(self) -> MessageColumns | None:
        """The columns of the next messages, None after the last message."""
        if self.made >= self._messages:
            return None
        text = self._tables.text
        buffer = np.empty(len(text) + self._buffer_bytes, np.uint8)
        buffer[: len(text)] = text
        made = np.empty((_COLUMNS, self._rows), np.int64)
        count, self._clock = _make(self._tables, np.int64(self.made), self._state, self._clock, buffer[len(text) :], made)
        count = min(int(count), self._messages - self.made)
        self.made += count
        return self._columns(buffer, made[:, :count])

    def _columns(self, buffer: Bytes, made: Longs) -> MessageColumns:
        text_end = len(self._tables.text)
        zeros = np.zeros(made.shape[1], np.int64)
        body = Slices(made[_C_BODY] + text_end, made[_C_BODY_LENGTH])
        start, length = self._tables.store_host.tolist()
        flags = np.where(made[_C_HOST_LENGTH] > layout.IPV4_HOST, layout.BORNHOST_V6_FLAG, 0)
        flags |= layout.STOREHOSTADDRESS_V6_FLAG if length > layout.IPV4_HOST else 0
        return MessageColumns(
            buffer=buffer,
            bodies=buffer,
            queue=made[_C_QUEUE],
            batch=made[_C_BATCH],
            body_crc=body_crcs(buffer, body),
            queue_id=made[_C_QUEUE_ID],
            flag=zeros,
            sys_flag=made[_C_SYS_FLAG] | flags,
            born_timestamp=made[_C_BORN],
            store_timestamp=made[_C_STORED],
            reconsume_times=zeros,
            prepared_transaction_offset=zeros,
            born_host=Slices(made[_C_HOST], made[_C_HOST_LENGTH]),
            store_host=Slices(zeros + start, zeros + length),
            body=body,
            topic=Slices(made[_C_TOPIC], made[_C_TOPIC_LENGTH]),
            properties=Slices(made[_C_PROPERTIES] + text_end, made[_C_PROPERTIES_LENGTH]),
        )
