"""Calls the kernels with bytes of every kind.

test_kernels.py runs it with NUMBA_BOUNDSCHECK=1, so an access outside a buffer raises IndexError.
"""

from __future__ import annotations

import random

import numpy as np

from store_format.big_endian import Bytes
from store_format.broker_version import BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.log.commit_log import first_bad_body, walk, walk_checked
from store_format.queue.entry_lookup import look_up
from store_format.queue.entry_properties import find_properties
from store_format.queue.packed_ext_units import pack_units
from store_format.record import record_columns as rc
from store_format.record.crc32 import crc32_of_ranges
from store_format.record.message import Host, Message, encode

ROUNDS = 3000


def record(digits: random.Random, at: int) -> bytes:
    sys_flag = digits.choice([0, 0x10, 0x20, 0x30])
    return encode(
        Message(
            queue_id=0,
            queue_offset=0,
            physic_offset=at,
            born_timestamp=0,
            born_host=Host(address=digits.randbytes(16 if sys_flag & 0x10 else 4), port=1),
            store_timestamp=digits.choice([-1, 0, 5]),
            store_host=Host(address=digits.randbytes(16 if sys_flag & 0x20 else 4), port=1),
            body=digits.randbytes(digits.randint(0, 40)),
            topic=bytes(digits.choices(b"aT\xc3\xa9\xf0\x9f", k=digits.randint(0, 6))),
            properties=bytes(digits.choices(b"ab\x01\x02\xc3\xe2\x82\xf0\xff", k=digits.randint(0, 30))),
            sys_flag=sys_flag,
        )
    )


def near_record(digits: random.Random) -> bytes:
    """Bytes with the size and magic code of a record, and lengths that do not quite fit."""
    size = digits.randint(88, 125)
    raw = bytearray(size.to_bytes(4, "big") + digits.choice([bytes.fromhex("daa320a7"), bytes.fromhex("daa320ab")]) + bytes(size - 8))
    raw[39] = digits.choice([0, 0, 0x10, 0x20, 0x30])
    for at in digits.sample([87, 88, 99, 100, 111, 112], k=digits.randint(1, 3)):
        if at < size:
            raw[at] = max(size - at + digits.randint(-5, 1), 0)
    return bytes(raw)


def some_bytes(digits: random.Random) -> Bytes:
    """Records, some of them damaged, cut anywhere; or no records at all."""
    raw = bytearray()
    for _ in range(digits.randint(0, 3)):
        raw += record(digits, len(raw))
    if digits.random() < 0.3:
        raw += near_record(digits)
    raw += digits.randbytes(digits.choice([0, digits.randint(0, 30)]))
    for _ in range(digits.randint(0, 3) if raw else 0):
        raw[digits.randrange(len(raw))] = digits.choice([0, 1, 0x7F, 0x80, 0xFF, digits.randrange(256)])
    cut = digits.choice([len(raw), digits.randint(0, len(raw))])
    return np.frombuffer(bytes(raw[:cut]), np.uint8)


def use_all(digits: random.Random, content: Bytes) -> int:
    """Call every kernel that reads a file's bytes; returns the number of records seen."""
    version = digits.choice([BrokerVersion.V4_9_3, BrokerVersion.V5_5_0])
    positions = walk(content, 0, len(content), 16, version).positions
    walk_checked(content, len(content), check_crc=True, version=version)
    first_bad_body(content, positions)
    parts = rc.locate(content, positions)
    properties = rc.parse_properties(content, parts.properties)
    rc.pick_property(content, properties, rc.PROPERTY_TAGS)
    for slices in (parts.topic, parts.properties, parts.body):
        rc.are_utf8(content, slices)
        rc.gather(content, slices)
        crc32_of_ranges(content, slices.starts, np.maximum(slices.lengths, 0))
    rc.representable(content, positions, 0)
    rc.message_ids(content, parts.store_host, rc.prefixes(content, positions)["physicOffset"].astype(np.int64))
    if len(content):
        entries = [digits.choice([*positions.tolist(), digits.randint(-2, len(content) + 2)]) for _ in range(8)]
        sizes = [digits.choice([-1, 0, 39, 40, 63, 64, 91, 200, 2**31 - 1, digits.randint(0, len(content))]) for _ in entries]
        file = MappedFile(name="", from_offset=0, length=len(content), wrote=len(content))
        offsets, lengths = np.array(entries), np.array(sizes, np.int32)
        look_up([file], [len(content)], lambda _: content, offsets, lengths, version)
        find_properties([file], lambda _: content, offsets, lengths).bytes_of(lambda _: content)
        pack_units([file], lambda _: content, offsets + np.int64(-(2**63)))
    return len(positions)


def main() -> None:
    digits = random.Random(20260101)
    seen = sum(use_all(digits, some_bytes(digits)) for _ in range(ROUNDS))
    print(f"records seen: {seen}")


if __name__ == "__main__":
    main()
