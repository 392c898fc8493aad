"""Hypothesis strategies for records of the commit log, and the log files made of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from hypothesis import strategies as st

from store_format.layout import BORNHOST_V6_FLAG, COMPRESSED_FLAG, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, STOREHOSTADDRESS_V6_FLAG
from store_format.record.message import Host, Message, body_crc32, encode
from store_format.record.message_version import BYTE_MAX

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
SEPARATED = st.text("ab=\x01\x02é🚀", max_size=24)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

BLANK_MAGIC = (0xCBD43194).to_bytes(4, "big")
RECORD_MAGIC = (0xDAA320A7).to_bytes(4, "big")
V2_MAGIC = (0xDAA320AB).to_bytes(4, "big")


@st.composite
def messages(draw: st.DrawFn, *, text_properties: bool = False, with_v2: bool = False) -> Message:
    """Any message the broker could have stored; with `text_properties` both topic and properties are UTF-8, as a client sends them.

    With `with_v2`, the broker is 5.5.0 and some records are V2.
    """
    sys_flag = draw(INTS)
    body = draw(st.binary(max_size=80))
    if sys_flag & COMPRESSED_FLAG and body:
        body = zlib.compress(body)
    properties = st.binary(max_size=60)
    topic = st.binary(max_size=127)
    if with_v2:
        topic |= st.binary(min_size=128, max_size=400)
    if text_properties:
        properties = (SEPARATED | TEXTS).map(str.encode)
        topic = st.text("Tt-_%é🚀", min_size=1, max_size=20).map(str.encode)
        if with_v2:
            topic |= st.text("Tt-_%é🚀", min_size=128, max_size=200).map(str.encode)
    drawn_topic = draw(topic)
    return Message(
        queue_id=draw(INTS),
        queue_offset=draw(LONGS),
        physic_offset=draw(LONGS),
        born_timestamp=draw(LONGS),
        born_host=draw(_hosts(16 if sys_flag & BORNHOST_V6_FLAG else 4)),
        store_timestamp=draw(LONGS),
        store_host=draw(_hosts(16 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 4)),
        body=body,
        topic=drawn_topic,
        magic_code=magic_code_of(drawn_topic),
        properties=draw(properties),
        flag=draw(INTS),
        sys_flag=sys_flag,
        reconsume_times=draw(INTS),
        prepared_transaction_offset=draw(LONGS),
        body_crc=body_crc32(body),
    )


def magic_code_of(topic: bytes) -> int:
    """The magic code of a record that a broker 5.5.0 writes for a topic."""
    return MESSAGE_MAGIC_CODE_V2 if len(topic) > BYTE_MAX else MESSAGE_MAGIC_CODE


def _hosts(length: int) -> st.SearchStrategy[Host]:
    return st.builds(Host, address=st.binary(min_size=length, max_size=length), port=st.integers(0, 65535))


def placed(found: list[Message], from_offset: int) -> list[Message]:
    """The messages with their places one after the other in a file that starts at `from_offset`."""
    at, lying = from_offset, []
    for message in found:
        size = len(encode(message))
        lying.append(replace(message, physic_offset=at, store_size=size))
        at += size
    return lying


def blank(rest: int) -> bytes:
    """The blank that ends a file with `rest` bytes left."""
    return rest.to_bytes(4, "big") + BLANK_MAGIC


def message_of(row: Mapping[str, Any]) -> Message:
    """The record of a row of commit_log."""
    return Message(
        store_size=row["storeSize"],
        body_crc=row["bodyCrc"],
        queue_id=row["queueId"],
        flag=row["flag"],
        queue_offset=row["queueOffset"],
        physic_offset=row["physicOffset"],
        sys_flag=row["sysFlag"],
        born_timestamp=row["bornTimestamp"],
        born_host=Host(address=ip_address(row["bornHost"]).packed, port=row["bornPort"]),
        store_timestamp=row["storeTimestamp"],
        store_host=Host(address=ip_address(row["storeHost"]).packed, port=row["storePort"]),
        reconsume_times=row["reconsumeTimes"],
        prepared_transaction_offset=row["preparedTransactionOffset"],
        body=bytes(row["body"]),
        topic=row["topic"].encode(),
        magic_code=magic_code_of(row["topic"].encode()),
        properties=bytes(row["propertiesRaw"]),
    )
