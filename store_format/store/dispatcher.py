"""Dispatches messages of the commit log to consume queues, checkpoint and index.

Broker source (4.9.3): DefaultMessageStore.doDispatch, putMessagePositionInfo, checkMultiDispatchQueue, findConsumeQueue;
ConsumeQueue.putMessagePositionInfoWrapper, multiDispatchLmqQueue.
Rule: each message goes to its consume queue (unless it is prepared or rolled back), then to the index. Queues do not depend on each other,
so here consecutive messages are put queue by queue.
Surprises: the checkpoint's time of the queues is that of the last dispatched message, even if its queue ignored it. With multi dispatch on,
an offset that is no number throws, and so does a message without properties in 4.9.3: load fails, and start repeats it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from store_format.compiled import compiled
from store_format.files.files import Files
from store_format.java.blanks import is_blank
from store_format.layout import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from store_format.log.dispatch_request import DispatchRequests
from store_format.queue.consume_queue_dispatch import put_message_position_info
from store_format.queue.running_queue import Queue
from store_format.record.record_columns import are_same
from store_format.store.multi_dispatch import MULTI_DISPATCH, further_queue, has_further_queues, queue_offset, split_queues
from store_format.store.store_settings import StoreSettings

Longs = NDArray[np.int64]
Rows = NDArray[np.int64]
QueueKey = tuple[str, int]
BitMapOf = Callable[[str, dict[str, str]], bytes | None]


class BuildsIndex(Protocol):
    """An index that takes dispatched messages."""

    def build_index(self, requests: DispatchRequests) -> None:
        """IndexService.buildIndex for each message."""


class DispatchError(Exception):
    """A message at which the broker's dispatch throws."""


@compiled
def _same_queue(buffer, starts, lengths, queue_ids, a, b):  # type: ignore[no-untyped-def]
    return queue_ids[a] == queue_ids[b] and are_same(buffer, starts[a], lengths[a], buffer, starts[b], lengths[b])


@compiled
def _group(buffer, starts, lengths, queue_ids, table, first, group):  # type: ignore[no-untyped-def]
    """Number the messages' queues in order of appearance: write each message's number to `group`, each queue's first message to `first`."""
    count = 0
    for i in range(len(starts)):
        code = np.int64(queue_ids[i]) & 0xFFFFFFFF
        for k in range(lengths[i]):
            code = ((code ^ np.int64(buffer[starts[i] + k])) * 16777619) & 0xFFFFFFFF
        slot = (code ^ (code >> 15)) & (len(table) - 1)
        while table[slot] >= 0 and not _same_queue(buffer, starts, lengths, queue_ids, first[table[slot]], i):
            slot = (slot + 1) & (len(table) - 1)
        if table[slot] < 0:
            table[slot] = count
            first[count] = i
            count += 1
        group[i] = table[slot]
    return count


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """The broker's dispatchers and the state that they change.

    Attributes:
        store: the store's files and their changes.
        queues: consumeQueueTable.
        new_queue: (topic, queueId) -> a queue without files.
        index: the index, None if the setting messageIndexEnable is off.
        bit_map_of: (topic, properties) -> bit map of the consumers whose filter takes the message; None if units get no bit map.
        physic_msg_timestamp: time that dispatch sets in the checkpoint for the log, ms; None if it sets none.
        logics_msg_timestamp: time that dispatch sets in the checkpoint for the queues, ms; None if it sets none.
        logics_physical_offset: offset in the log of the last message that was dispatched to a queue; None without one.
        count: number of messages dispatched so far.
        first_offset: offset in the log of the first dispatched message since `count` was 0.
    """

    store: Files
    settings: StoreSettings
    queues: dict[QueueKey, Queue]
    new_queue: Callable[[str, int], Queue]
    index: BuildsIndex | None
    bit_map_of: BitMapOf | None = None
    physic_msg_timestamp: int | None = None
    logics_msg_timestamp: int | None = None
    logics_physical_offset: int | None = None
    count: int = 0
    first_offset: int | None = None
    _pending: DispatchError | None = field(default=None)

    def find_consume_queue(self, topic: str, queue_id: int) -> Queue:
        """DefaultMessageStore.findConsumeQueue: the queue, which is created if it is unknown."""
        if (topic, queue_id) not in self.queues:
            self.queues[topic, queue_id] = self.new_queue(topic, queue_id)
        return self.queues[topic, queue_id]

    def dispatch(self, requests: DispatchRequests) -> None:
        """DefaultMessageStore.doDispatch of each message, in order.

        Raises:
            DispatchError: the broker throws at a message; the messages before it are dispatched.
        """
        self._pending = None
        puts = self._puts(requests)
        self._put(requests, puts)
        done = requests if self._pending is None else requests.first(puts.failed_at)
        if self.index is not None:
            self.index.build_index(done)
        if len(done) and self.first_offset is None:
            self.first_offset = int(done.physic_offset[0])
        self.count += len(done)
        if self._pending is not None:
            raise self._pending

    def _puts(self, requests: DispatchRequests) -> _Puts:
        kind = requests.sys_flag & TRANSACTION_ROLLBACK_TYPE
        rows = np.flatnonzero((kind == 0) | (kind == TRANSACTION_COMMIT_TYPE))
        named, numbers = self._queues_of(requests, rows)
        puts = _Puts(rows=rows, named=named, numbers=numbers, offsets=requests.queue_offset[rows])
        if self.settings.enable_multi_dispatch:
            self._add_multi_dispatch(requests, puts)
        return puts

    def _queues_of(self, requests: DispatchRequests, rows: Rows) -> tuple[dict[QueueKey, int], Rows]:
        """The messages' queues with their numbers, and for each message the number of its queue."""
        table = np.full(1 << (2 * len(rows) + 1).bit_length(), -1, np.int64)
        first, group = np.empty((2, len(rows)), np.int64)
        topics = requests.topic[rows]
        count = _group(requests.buffer, topics.starts, topics.lengths, requests.queue_id[rows], table, first, group)
        # topics of different bytes can be the same text if they are no UTF-8
        keys = [(requests.text(requests.topic, row) or "", int(requests.queue_id[row])) for row in rows[first[:count]].tolist()]
        named: dict[QueueKey, int] = {}
        numbers = np.array([named.setdefault(key, len(named)) for key in keys], np.int64)
        return named, numbers[group]

    def _add_multi_dispatch(self, requests: DispatchRequests, puts: _Puts) -> None:
        """Add the entries for the further queues (light message queues and others) of each message; a message that throws ends `puts`."""
        rule = MULTI_DISPATCH.of(self.settings.version).value
        for place, row in enumerate(puts.rows.tolist()):
            if rule.needs_properties and not requests.has_properties[row]:
                self._fail(puts, place, row, f"the message at {requests.physic_offset[row]} has no properties")
                return
            names = requests.text(requests.multi_dispatch, row) or ""
            offsets = requests.text(requests.multi_queue_offset, row) or ""
            if is_blank(names) or is_blank(offsets) or not has_further_queues(requests.text(requests.topic, row) or "", rule):
                continue
            pairs = list(zip(split_queues(names), split_queues(offsets), strict=False))
            if len(split_queues(names)) != len(split_queues(offsets)):
                continue
            for name, offset in pairs:
                if rule.skips_paths and "/" in name:
                    continue
                number = queue_offset(offset)
                if number is None:
                    self._fail(puts, place + 1, row, f"the message at {requests.physic_offset[row]} has the queue offset {offset!r}")
                    return
                key = further_queue(name, int(requests.queue_id[row]), enable_lmq=self.settings.enable_lmq)
                puts.more.append((row, puts.named.setdefault(key, len(puts.named)), number))

    def _fail(self, puts: _Puts, kept: int, row: int, what: str) -> None:
        puts.rows, puts.numbers, puts.offsets = puts.rows[:kept], puts.numbers[:kept], puts.offsets[:kept]
        puts.failed_at = row
        self._pending = DispatchError(f"{what}, on which enableMultiDispatch throws")

    def _put(self, requests: DispatchRequests, puts: _Puts) -> None:
        if not len(puts.rows):
            return
        last = int(puts.rows[-1])
        self.logics_msg_timestamp = int(requests.store_timestamp[last])
        self.logics_physical_offset = int(requests.physic_offset[last])
        if self.settings.is_slave:
            self.physic_msg_timestamp = self.logics_msg_timestamp
        for key, rows, offsets, is_own in puts.by_queue():
            queue = self.find_consume_queue(*key)
            tags_codes = requests.tags_code[rows]
            if queue.extension is not None and is_own.any():
                own = tags_codes[is_own]
                bit_map_of, mine = self.bit_map_of, rows[is_own].tolist()
                bit_maps = [bit_map_of(queue.topic, requests.properties_map(row)) if bit_map_of else None for row in mine]
                queue.extension.put(self.store, own, requests.store_timestamp[rows[is_own]], bit_maps)
                tags_codes[is_own] = own
            put_message_position_info(self.store, queue, requests.physic_offset[rows], requests.size[rows], tags_codes, offsets)


@dataclass(slots=True, kw_only=True)
class _Puts:
    """The entries to put: an entry for each message's own queue, then the entries for further queues.

    Attributes:
        rows: the messages that get an entry in their own queue.
        named: the number of each queue.
        numbers: number of each message's own queue.
        offsets: queue offset of each message's entry in its own queue.
        more: (message, number of the queue, queue offset) of each entry for a further queue.
        failed_at: the message at which the broker throws.
    """

    rows: Rows
    named: dict[QueueKey, int]
    numbers: Rows
    offsets: Longs
    more: list[tuple[int, int, int]] = field(default_factory=list)
    failed_at: int = -1

    def by_queue(self) -> list[tuple[QueueKey, Rows, Longs, NDArray[np.bool_]]]:
        """For each queue its messages in order, their queue offsets, and for each message whether the queue is the message's own."""
        more = np.array(self.more, np.int64).reshape(-1, 3)
        rows = np.concatenate([self.rows, more[:, 0]])
        numbers = np.concatenate([self.numbers, more[:, 1]])
        offsets = np.concatenate([self.offsets, more[:, 2]])
        # the sort is stable: a message's entry for its own queue comes before its other entries
        order = np.lexsort((rows, numbers))
        parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        keys = list(self.named)
        return [(keys[numbers[part[0]]], rows[part], offsets[part], part < len(self.rows)) for part in parts]
