"""Index entries compared with their messages: keys in every version, and the tag, which 5.5.0 indexes."""

from __future__ import annotations

import numpy as np
import pytest

from store_format.record.message import Host, Message, encode
from store_format.store.entry_check import Held, check_keys
from tests.truth.golden_holds import java_hash

HOST = Host(address=bytes([127, 0, 0, 1]), port=10911)


def record(properties: bytes, sys_flag: int = 0) -> bytes:
    return encode(
        Message(
            topic=b"topic",
            queue_id=0,
            queue_offset=0,
            physic_offset=0,
            store_timestamp=1,
            born_timestamp=1,
            sys_flag=sys_flag,
            properties=properties,
            born_host=HOST,
            store_host=HOST,
            body=b"body",
        )
    )


@pytest.mark.parametrize(
    ("key", "held"),
    [
        ("topic#a", Held.RIGHT),
        ("topic#b", Held.RIGHT),
        ("topic#T#blue", Held.RIGHT),
        ("topic#T#red", Held.OTHER_CODE),
        ("topic#blue", Held.OTHER_CODE),
        ("topic#T#", Held.OTHER_CODE),
    ],
)
def test_an_index_entry_is_right_under_a_key_or_the_tag(key: str, held: Held) -> None:
    content = np.frombuffer(record(b"KEYS\x01a  b\x02TAGS\x01blue\x02"), np.uint8)
    assert check_keys(content, len(content), np.array([0]), np.array([abs(java_hash(key))])).tolist() == [held]


@pytest.mark.parametrize(
    ("properties", "sys_flag", "held"),
    [
        (b"KEYS\x01a\x02TAGS\x01\x02", 0, Held.OTHER_CODE),  # an empty tag has no entry
        (b"KEYS\x01a\x02TAGS\x01blue\x02", 12, Held.OTHER_CODE),  # nor has a message that was rolled back
        (b"KEYS\x01a\x02TAGS\x01\xff\x02", 0, Held.UNSURE),
    ],
)
def test_a_tag_that_is_not_indexed_makes_no_entry_right(properties: bytes, sys_flag: int, held: Held) -> None:
    content = np.frombuffer(record(properties, sys_flag), np.uint8)
    hashes = np.array([abs(java_hash("topic#T#")), abs(java_hash("topic#T#blue"))])
    assert check_keys(content, len(content), np.array([0, 0]), hashes).tolist() == [held, held]
