"""Puts the messages of a real broker's log into our store, each as it was before the broker put it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.generate.store_writer import WrittenStore, new_store, shut_down
from pipeline.settings.settings import BrokerSettings
from store_format.index.index_file import IndexSizes
from store_format.log.append import NO_BATCH, columns_of
from store_format.log.commit_log import walk
from store_format.log.put_message import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC, InnerMessage, PutSettings, prepare
from store_format.record.message import Message, decode, decode_text
from store_format.store.dispatcher import BitMapOf
from store_format.store.store_settings import StoreSettings
from udfs.broker.schedule import parse_delay_level

# small files, so that there are many
PLAIN_CONFIG = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "600",
}


def settings_of(config: Mapping[str, str]) -> StoreSettings:
    """The settings of our store, from `config` of a golden store's NAME.meta.json."""
    broker = BrokerSettings.from_sources(options=[f"{name}={value}" for name, value in config.items() if not name.startswith("bloom")])
    return StoreSettings(
        commit_log_size=broker.value("mappedFileSizeCommitLog"),
        consume_queue_size=broker.value("mappedFileSizeConsumeQueue"),
        ext_size=broker.value("mappedFileSizeConsumeQueueExt"),
        index_sizes=IndexSizes(hash_slot_num=broker.value("maxHashSlotNum"), index_num=broker.value("maxIndexNum")),
        delays=parse_delay_level(broker.value("messageDelayLevel")),
        enable_consume_queue_ext=broker.value("enableConsumeQueueExt"),
    )


@dataclass(frozen=True)
class Logged:
    """A message of a log, and the number of its batch."""

    message: Message
    batch: int


def messages_of(store: Path) -> list[Logged]:
    """The messages of a store's log. The harness marks a batch by the flags 0, 1, 2… of one queue at one time."""
    found = list(_decoded(store))
    batches, number = [], -1
    for before, one in zip([None, *found], found, strict=False):
        if one.topic != b"BatchTopic" or one.sys_flag & 0xF:
            batches.append(NO_BATCH)
        elif before is not None and batches[-1] != NO_BATCH and _goes_on(before, one):
            batches.append(number)
        else:
            number += 1
            batches.append(number)
    return [Logged(message, batch) for message, batch in zip(found, batches, strict=True)]


def _goes_on(before: Message, one: Message) -> bool:
    same = (before.queue_id, before.store_timestamp, before.topic) == (one.queue_id, one.store_timestamp, one.topic)
    return same and one.flag == before.flag + 1


def _decoded(store: Path) -> Iterator[Message]:
    for path in sorted((store / "commitlog").iterdir()):
        raw = np.frombuffer(path.read_bytes(), np.uint8)
        for at in walk(raw, 0, len(raw), 1_000_000).positions.tolist():
            message = decode(raw[at:].tobytes(), uncompress_body=False)
            assert message is not None
            yield message


def as_put(message: Message, put: PutSettings) -> Message:
    """Undo the broker's put of a record, and return the message as our store puts it."""
    # not properties_map: a property without value is in the record, but the broker drops it when it reads the record
    properties = dict(pair.split("\x01", 1) for pair in decode_text(message.properties).split("\x02") if pair)
    topic, queue_id, text = decode_text(message.topic), message.queue_id, decode_text(message.properties)
    if topic == SCHEDULE_TOPIC:
        topic, queue_id = properties.pop(PROPERTY_REAL_TOPIC), int(properties.pop(PROPERTY_REAL_QUEUE_ID))
    inner = InnerMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        born_host=message.born_host,
        store_host=message.store_host,
        born_timestamp=message.born_timestamp,
        properties=properties,
        properties_string=text,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    prepared = prepare(inner, message.store_timestamp, put)
    assert isinstance(prepared, Message)
    return prepared


def put_again(
    logged: Sequence[Logged], root: Path, config: Mapping[str, str], steps: Sequence[int], bit_map_of: BitMapOf | None = None
) -> WrittenStore:
    """Put the messages into a new store, some at a time; batches are not divided."""
    writer = new_store(str(root), settings_of(config), bit_map_of=bit_map_of)
    at, turn = 0, 0
    while at < len(logged):
        stop = min(at + steps[turn % len(steps)], len(logged))
        while stop < len(logged) and logged[stop].batch != NO_BATCH and logged[stop].batch == logged[stop - 1].batch:
            stop += 1
        part = [as_put(one.message, writer.put_settings) for one in logged[at:stop]]
        queues = [writer.queue_number(one.topic, one.queue_id) for one in part]
        writer.append(columns_of(part, queues, [one.batch for one in logged[at:stop]]))
        at, turn = stop, turn + 1
    shut_down(writer)
    return writer


def recorded_bit_maps(store: Path) -> BitMapOf:
    """A function from a message's topic and properties to its recorded bit map; equal messages get their bit maps in turn."""
    log = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
    found: dict[tuple[str, frozenset[tuple[str, str]]], list[bytes | None]] = {}
    for queue in sorted((store / "consumequeue").glob("*/*")):
        units = b"".join(path.read_bytes() for path in sorted((store / "consumequeue_ext" / queue.relative_to(queue.parents[1])).iterdir()))
        for path in sorted(queue.iterdir()):
            for offset, size, code in struct.iter_unpack(">qiq", path.read_bytes()):
                if size:
                    message = decode(log[offset : offset + size], uncompress_body=False)
                    assert message is not None
                    at = code + 2**63
                    (length,) = struct.unpack_from(">h", units, at + 18)
                    key = decode_text(message.topic), frozenset(message.properties_map().items())
                    found.setdefault(key, []).append(units[at + 20 : at + 20 + length] if length else None)
    return lambda topic, properties: found[topic, frozenset(properties.items())].pop(0)
