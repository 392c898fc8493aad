"""Records of both versions: the bytes of a V2 record that the real broker 5.5.0 wrote, and every reader of records against them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.rows.log_records import encoded_records
from pipeline.schema.tables import COMMIT_LOG
from store_format.broker_version import BrokerVersion
from store_format.files.mapped_files import MappedFile
from store_format.java.string_hash import string_hash
from store_format.layout import CQ_UNIT, MESSAGE_MAGIC_CODE_V2
from store_format.log.commit_log import WalkEnd, walk
from store_format.queue.entry_lookup import look_up
from store_format.queue.entry_properties import find_properties
from store_format.record.message import Host, Message, body_crc32, decode, encode
from store_format.record.record_columns import gather, locate, representable
from store_format.remoting.message_list import decode_messages
from store_format.store.entry_check import Held, check_keys, check_units
from tests.makers.log_rows import batches_of
from tests.makers.records import placed

V5 = BrokerVersion.V5_5_0
VERSIONS = list(BrokerVersion)
TOPIC = "%RETRY%" + "g" * 121
PROPERTIES = (
    b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x0100000000000000000000000000000001\x02CLUSTER\x01DefaultCluster\x02TAGS\x01B\x02"
    b"KEYS\x01k1 k\x02WAIT\x01true\x02TRACE_ON\x01true\x02"
)
# the second record of a log of the real broker 5.5.0, sent to the retry topic of a group with 121 characters
WRITTEN = bytes.fromhex(
    "00000169daa320ab0edf47770000000000000001000000000000000000000000000000e000000000000001a22747bef97f0000010000a376"
    "000001a22747c25e7f00000100005c130000000000000000000000000000000a78787878787878787878"
    "0080" + TOPIC.encode().hex() + "0083" + PROPERTIES.hex()
)
MESSAGE = Message(
    queue_id=0,
    queue_offset=0,
    physic_offset=224,
    flag=1,
    born_timestamp=0x1A22747BEF9,
    born_host=Host(address=bytes([127, 0, 0, 1]), port=0xA376),
    store_timestamp=0x1A22747C25E,
    store_host=Host(address=bytes([127, 0, 0, 1]), port=0x5C13),
    body=b"x" * 10,
    body_crc=body_crc32(b"x" * 10),
    topic=TOPIC.encode(),
    properties=PROPERTIES,
    magic_code=MESSAGE_MAGIC_CODE_V2,
    store_size=len(WRITTEN),
)
# the record is at byte 224 of the file
CONTENT = np.frombuffer(bytes(224) + WRITTEN, np.uint8)
FILE = MappedFile(name="f", from_offset=0, length=len(CONTENT), wrote=len(CONTENT))
AT, SIZES = np.array([224]), np.array([len(WRITTEN)], np.int32)


def is_v5(version: BrokerVersion) -> bool:
    return version is V5


def test_the_written_record_has_the_length_that_it_says() -> None:
    assert len(WRITTEN) == 0x169


def test_encode_writes_what_the_broker_wrote() -> None:
    assert encode(MESSAGE) == WRITTEN


def test_only_5_5_0_decodes_it() -> None:
    assert decode(WRITTEN, version=V5) == MESSAGE
    as_v1 = decode(WRITTEN)
    assert as_v1 is not None
    assert as_v1.topic == b""
    assert decode(WRITTEN[:4] + b"\1" + WRITTEN[5:], version=V5) is None


def test_a_list_of_messages_goes_on_after_it() -> None:
    other = replace(MESSAGE, topic=b"T", magic_code=-626843481, store_size=0)
    found = decode_messages(WRITTEN + encode(other) + WRITTEN, version=V5)
    assert [one.topic for one in found] == [TOPIC.encode(), b"T", TOPIC.encode()]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_walk_of_4_9_ends_before_it(version: BrokerVersion) -> None:
    found = walk(CONTENT, 224, len(CONTENT), 9, version)
    assert (found.positions.tolist(), found.ended) == (([224], WalkEnd.LIMIT) if is_v5(version) else ([], WalkEnd.NO_RECORD))


def test_its_row_gives_its_bytes() -> None:
    (rows,) = batches_of(COMMIT_LOG, FILE, CONTENT, 224, version=V5)
    assert rows.column("topic").to_pylist() == [TOPIC]
    content, ends = encoded_records(rows, 1 << 20)
    assert (content.tobytes(), ends.tolist()) == (WRITTEN, [0, len(WRITTEN)])


@pytest.mark.parametrize(
    ("topic", "is_row"), [(b"T" * 127, False), (b"T" * 128, True), (b"T" * 255, True), (b"T" * 32767, True), (b"\xff" * 128, False)]
)
def test_a_row_represents_a_v2_record_whose_topic_needs_it(topic: bytes, is_row: bool) -> None:
    raw = encode(replace(MESSAGE, physic_offset=0, topic=topic))
    content = np.frombuffer(raw, np.uint8)
    assert walk(content, 0, len(raw), 2, V5).positions.tolist() == [0]
    assert representable(content, np.array([0]), 0).tolist() == [is_row]


def test_its_parts_are_found() -> None:
    parts = locate(CONTENT, AT)
    texts = [gather(CONTENT, one)[1].tobytes() for one in (parts.body, parts.topic, parts.properties)]
    assert texts == [b"x" * 10, TOPIC.encode(), PROPERTIES]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_entry_finds_it_in_5_5_0_alone(version: BrokerVersion) -> None:
    found = look_up([FILE], [len(CONTENT)], lambda _: CONTENT, AT, SIZES, version)
    assert found.is_record.tolist() == [is_v5(version)]
    assert found.store_timestamps.tolist() == [MESSAGE.store_timestamp]


def test_its_properties_are_found() -> None:
    found = find_properties([FILE], lambda _: CONTENT, AT, SIZES, version=V5)
    assert found.bytes_of(lambda _: CONTENT).tobytes() == PROPERTIES


@pytest.mark.parametrize("version", VERSIONS)
def test_entries_of_queue_and_index_are_checked_against_it(version: BrokerVersion) -> None:
    units = np.array([(224, len(WRITTEN), ord("B"))], CQ_UNIT)
    held = check_units(CONTENT, len(CONTENT), AT, units, np.array([0]), (TOPIC, 0), is_lmq=False, version=version)
    other = check_units(CONTENT, len(CONTENT), AT, units, np.array([0]), ("T", 0), is_lmq=False, version=version)
    keys = check_keys(CONTENT, len(CONTENT), AT, np.array([abs(string_hash(f"{TOPIC}#k1"))]), version)
    right, wrong = (Held.RIGHT, Held.OTHER_MESSAGE) if is_v5(version) else (Held.NO_RECORD, Held.NO_RECORD)
    assert (held.tolist(), other.tolist(), keys.tolist()) == ([right], [wrong], [right])


def test_records_of_both_versions_follow_each_other() -> None:
    short = replace(MESSAGE, topic=b"T", magic_code=-626843481)
    log = placed([MESSAGE, short, MESSAGE], 0)
    raw = np.frombuffer(b"".join(map(encode, log)), np.uint8)
    assert walk(raw, 0, len(raw), 9, V5).positions.tolist() == [one.physic_offset for one in log]
