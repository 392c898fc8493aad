"""The broker's config files: real ones come back byte for byte; their rows; the .bak.

tests/data/config holds the five files of a broker as it wrote them. How fields are filled, which values are refused and
when the .bak is used was found by running the broker's own classes of 4.9.3: fastjson 1.2.76 and ConfigManager.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store_format.config import config_files, config_rows
from store_format.config.config_rows import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerOffset,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    SubscriptionGroupConfig,
    TopicConfig,
)
from store_format.config.fastjson import parse_json, plain
from store_format.config.fastjson_scanner import UnsupportedConfigError
from store_format.config.fastjson_writer import FASTJSON, FASTJSON2, TextForm, encode_json
from store_format.errors import ConfigFileError
from tests.truth.golden5 import needs_golden5, unpacked
from tests.truth.places import DATA, GOLDEN

CONFIG = DATA / "config"
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the shared golden data is not here")

CODECS: dict[str, tuple[Callable[[bytes, str], Any], Callable[..., bytes]]] = {
    "topics": (config_files.decode_topic_configs, config_files.encode_topic_configs),
    "subscriptionGroup": (config_files.decode_subscription_groups, config_files.encode_subscription_groups),
    "consumerOffset": (config_files.decode_consumer_offsets, config_files.encode_consumer_offsets),
    "delayOffset": (config_files.decode_delay_offsets, config_files.encode_delay_offsets),
    "consumerFilter": (config_files.decode_consumer_filters, config_files.encode_consumer_filters),
}
# what LmqConsumerOffsetManager.encode of each version gives for the same offsets; 5.5.0 adds groupTopicMap
OF_LMQ = b"""{
\t"lmqOffsetTable":{
\t\t"orders@%LMQ%dev":4,
\t\t"%LMQ%dev@%LMQ%dev":9
\t},
\t"offsetTable":{
\t\t"orders@g":{0:5,3:7
\t\t}
\t}
}"""
OF_LMQ_IN_5 = b"""{
\t"dataVersion":{
\t\t"counter":0,
\t\t"stateVersion":0,
\t\t"timestamp":1795906999227
\t},
\t"groupTopicMap":{
\t\t"g":[
\t\t\t"orders"
\t\t]
\t},
\t"lmqOffsetTable":{
\t\t"orders@%LMQ%dev":4,
\t\t"%LMQ%dev@%LMQ%dev":9
\t},
\t"offsetTable":{
\t\t"orders@g":{
\t\t\t0:5,
\t\t\t3:7
\t\t}
\t},
\t"pullOffsetTable":{}
}"""
each_file = pytest.mark.parametrize("name", CODECS)


def real(name: str) -> bytes:
    return (CONFIG / f"{name}.json").read_bytes()


def topic(members: str) -> TopicConfig:
    text = f'{{"topicConfigTable":{{"a":{{"topicName":"a",{members}}}}}}}'
    (row,) = config_files.decode_topic_configs(text.encode(), "topics.json").topicConfigTable
    return row


@each_file
def test_a_file_of_a_broker_goes_round_to_the_byte(name: str) -> None:
    decode, encode = CODECS[name]
    assert encode(decode(real(name), name)) == real(name)
    assert encode_json(plain(parse_json(real(name), name))) == real(name)


def golden_files() -> Iterator[tuple[str, str, bytes]]:
    for archive in sorted(GOLDEN.glob("*/*.tar.xz")):
        with tarfile.open(archive) as files:
            for member in files:
                name = Path(member.name).name.split(".")[0]
                if "/config/" in member.name and name in CODECS and (content := files.extractfile(member)):
                    yield member.name, name, content.read()


@needs_golden
def test_every_file_of_the_golden_data_goes_round_to_the_byte() -> None:
    files = list(golden_files())
    assert len(files) >= 50
    for path, name, text in files:
        decode, encode = CODECS[name]
        table = decode(text, path)
        written = text.removesuffix(b"\n")  # not every one of these files was written by the broker itself
        assert (path, encode(table)) == (path, written)
        assert table.extra == ""


@needs_golden5
def test_every_file_of_a_broker_5_5_0_goes_round_to_the_byte() -> None:
    folder = unpacked("live") / "live" / "store" / "config"
    files = [(path, CODECS[name]) for path in folder.iterdir() if (name := path.name.split(".")[0]) in CODECS]
    assert len(files) == 2 * len(CODECS)
    for path, (decode, encode) in files:
        assert (path, encode(decode(path.read_bytes(), path.name), FASTJSON2)) == (path, path.read_bytes())


def test_the_offsets_of_a_broker_are_read() -> None:
    table = config_files.decode_consumer_offsets(real("consumerOffset"), "x")
    assert len(table.offsetTable) == 35
    assert table.offsetTable["orders@g-probe"] == {1: 91, 2: 105, 3: 101, 5: 105, 6: 91, 7: 99}
    assert table.by_queue()["g-main", "%RETRY%g-main", 0] == 75
    assert ConsumerOffset("ledger@g-probe", "ledger", "g-probe", 2, 69) in table.rows()


def test_the_delay_offsets_of_a_broker_are_read() -> None:
    assert config_files.decode_delay_offsets(real("delayOffset"), "x") == DelayOffsets({1: 25, 2: 20, 3: 103, 4: 29})


def test_the_topics_of_a_broker_are_read() -> None:
    table = config_files.decode_topic_configs(real("topics"), "x")
    topics = {row.topicName: row for row in table.topicConfigTable}
    assert topics["vault"] == TopicConfig(topicName="vault", readQueueNums=1, writeQueueNums=1, perm=2)
    assert topics["BenchmarkTest"] == TopicConfig(topicName="BenchmarkTest", readQueueNums=1024, writeQueueNums=1024)
    raw = json.loads(real("topics"))["dataVersion"]
    assert table.dataVersion == DataVersion(counter=raw["counter"], timestamp=raw["timestamp"])


def test_the_groups_of_a_broker_are_read() -> None:
    table = config_files.decode_subscription_groups(real("subscriptionGroup"), "x")
    groups = {row.groupName: row for row in table.subscriptionGroupTable}
    assert len(groups) == 25
    assert groups["g-main"] == SubscriptionGroupConfig(groupName="g-main")
    assert groups["g-off"] == SubscriptionGroupConfig(groupName="g-off", consumeEnable=False)
    assert table.dataVersion == DataVersion(counter=17, timestamp=1795257316208)


def test_the_filters_of_a_broker_are_read() -> None:
    (metrics,) = config_files.decode_consumer_filters(real("consumerFilter"), "x").filterDataByTopic
    assert metrics.topic == "metrics"
    assert metrics.groupFilterData[1] == ConsumerFilterData(
        topic="metrics",
        consumerGroup="g-sql",
        expression="qty > 4 AND color IN ('red', 'blue')",
        expressionType="SQL92",
        bornTime=1795257286432,
        deadTime=1795257350434,
        clientVersion=1795257350362,
        bloomFilterData=BloomFilterData(bitPos=(44, 7, 59), bitNum=112),
        dead=True,
    )


@pytest.mark.parametrize(
    ("members", "field", "expected"),
    [
        ('"x":0', "perm", 6),
        ('"x":0', "readQueueNums", 16),
        ('"x":0', "writeQueueNums", 16),
        ('"x":0', "topicFilterType", "SINGLE_TAG"),
        ('"perm":null', "perm", 6),
        ('"perm":"4"', "perm", 4),
        ('"perm":-2147483648', "perm", -2147483648),
        ('"order":true', "order", True),
        ('"order":null', "order", False),
        ('"topicFilterType":"MULTI_TAG"', "topicFilterType", "MULTI_TAG"),
        (r'"p\u0065rm":2', "perm", 2),
    ],
)
def test_fields_of_a_topic_are_filled_as_fastjson_fills_them(members: str, field: str, expected: object) -> None:
    assert getattr(topic(members), field) == expected


@pytest.mark.parametrize(
    ("members", "supported"),
    [
        ('"perm":2147483648', True),
        ('"perm":{}', True),
        ('"order":[]', True),
        ('"perm":4.0', False),
        ('"perm":true', False),
        ('"perm":""', False),
        ('"order":1', False),
        ('"order":"true"', False),
        ('"isOrder":true', False),
        ('"read_queue_nums":4', False),
        ('"topicFilterType":"x"', False),
        ('"topicFilterType":1', False),
        ('"perm":1,"perm":2', False),
    ],
)
def test_values_of_another_type_are_refused(members: str, supported: bool) -> None:
    with pytest.raises(ConfigFileError) as caught:
        topic(members)
    assert isinstance(caught.value, UnsupportedConfigError) is not supported
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("name", "text", "refused_by_fastjson"),
    [
        ("topics", '{"dataVersion":{"counter":null}}', True),
        ("topics", '{"dataVersion":1}', True),
        ("topics", '{"topicConfigTable":{"a":null}}', True),
        ("topics", '{"topicConfigTable":{"a":[]}}', True),
        ("subscriptionGroup", " ", True),
        ("subscriptionGroup", '{"subscriptionGroupTable":{"g":null}}', True),
        ("subscriptionGroup", '{"subscriptionGroupTable":{"g":{"retryMaxTimes":2147483648}}}', True),
        ("subscriptionGroup", '{"dataVersion":{"counter":"zz"}}', False),
        ("consumerFilter", '{"filterDataByTopic":{"t":null}}', True),
        ("consumerFilter", '{"filterDataByTopic":{"t":{"topic":"t","topic":"u"}}}', False),
        ("consumerFilter", '{"filterDataByTopic":{"t":{"groupFilterData":{"g":null}}}}', True),
        ("consumerFilter", '{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"bloomFilterData":{"bitPos":[2147483648]}}}}}}', False),
        ("delayOffset", '{"offsetTable":{1:null}}', True),
    ],
)
def test_tables_of_another_shape_are_refused(name: str, text: str, refused_by_fastjson: bool) -> None:
    with pytest.raises(ConfigFileError) as caught:
        CODECS[name][0](text.encode(), name)
    assert isinstance(caught.value, UnsupportedConfigError) is not refused_by_fastjson


def test_fields_of_a_newer_broker_are_kept_and_written_back() -> None:
    text = (
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":2\n\t},\n'
        b'\t"forbiddenTable":{},\n\t"subscriptionGroupTable":{\n\t\t"g":{\n'
        b'\t\t\t"attributes":{\n\t\t\t\t"+a":1.50\n\t\t\t},\n\t\t\t"brokerId":0,\n\t\t\t"consumeBroadcastEnable":true,\n'
        b'\t\t\t"consumeEnable":true,\n\t\t\t"consumeFromMinEnable":true,\n\t\t\t"groupName":"g",\n'
        b'\t\t\t"notifyConsumerIdsChangedEnable":true,\n\t\t\t"retryMaxTimes":16,\n\t\t\t"retryQueueNums":1,\n'
        b'\t\t\t"whichBrokerWhenConsumeSlowly":1\n\t\t}\n\t}\n}'
    )
    table = config_files.decode_subscription_groups(text, "x")
    assert table.subscriptionGroupTable[0].extra == '{"attributes":{\n\t\t\t\t"+a":1.50\n\t\t\t}}'
    assert table.dataVersion == DataVersion(counter=1, timestamp=2, extra='{"stateVersion":0}')
    assert config_files.encode_subscription_groups(table) == text


def test_a_row_goes_by_its_key_and_keeps_the_name_inside_it() -> None:
    text = b'{"topicConfigTable":{"a":{"topicName":"b"},"c":{}}}'
    table = config_files.decode_topic_configs(text, "x")
    assert [(row.topicName, row.extra) for row in table.topicConfigTable] == [
        ("a", '{"topicName":"b"}'),
        ("c", '{"topicName":null}'),
    ]
    written = json.loads(config_files.encode_topic_configs(table))["topicConfigTable"]
    assert written["a"]["topicName"] == "b"
    assert "topicName" not in written["c"]


@pytest.mark.parametrize(
    ("key", "pair"),
    [
        ("t@g", ("t", "g")),
        ("%RETRY%g@g", ("%RETRY%g", "g")),
        ("@g", ("", "g")),
        ("t@", None),
        ("t", None),
        ("@", None),
        ("", None),
        ("t@g@", None),
        ("t@g@h", None),
        ("%RETRY%a@b@a@b", None),
    ],
)
def test_a_key_gives_a_topic_and_a_group_only_where_listing_and_lookup_agree(key: str, pair: tuple[str, str] | None) -> None:
    assert config_rows.split_topic_at_group(key) == pair
    table = ConsumerOffsets({key: {3: 7}})
    topic, group = pair or (None, None)
    assert table.rows() == [ConsumerOffset(key, topic, group, queueId=3, offset=7)]
    assert table.by_queue() == ({(pair[1], pair[0], 3): 7} if pair else {})


GOOD, OLD, CUT = b'{"offsetTable":{1:5}}', b'{"offsetTable":{1:4}}', b'{"offsetTable":{1:'


@pytest.mark.parametrize(
    ("main", "bak", "source", "table"),
    [
        (GOOD, OLD, "main", {1: 5}),
        (GOOD, CUT, "main", {1: 5}),
        (GOOD, None, "main", {1: 5}),
        (b"null", OLD, "main", {}),
        (b" \n", OLD, "main", {}),
        (b"", OLD, "bak", {1: 4}),
        (None, OLD, "bak", {1: 4}),
        (CUT, OLD, "bak", {1: 4}),
        (b"\0" * 21, OLD, "bak", {1: 4}),
        (b"not json", OLD, "bak", {1: 4}),
        (b'{"offsetTable":{1:99999999999999999999}}', OLD, "bak", {1: 4}),
        (None, None, "missing", {}),
        (b"", b"", "missing", {}),
        (None, b"", "missing", {}),
    ],
)
def test_the_bak_is_taken_where_the_broker_takes_it(main: bytes | None, bak: bytes | None, source: str, table: dict[int, int]) -> None:
    loaded = config_files.load(main, bak, "delayOffset.json", config_files.decode_delay_offsets)
    assert (loaded.source, loaded.table) == (source, DelayOffsets(table))
    assert bool(loaded.reason) is (source != "main")


@pytest.mark.parametrize(("main", "bak", "path"), [(CUT, CUT, "x.bak"), (None, CUT, "x.bak"), (CUT, None, "x"), (CUT, b"", "x")])
def test_two_unusable_files_are_an_error_that_says_which(main: bytes | None, bak: bytes | None, path: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        config_files.load(main, bak, "x", config_files.decode_delay_offsets)
    assert caught.value.path == path
    assert caught.value.position == len(CUT)
    assert caught.value.found == "the end of the file"
    assert caught.value.hint


# offsets of a broker with light message queues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "form"), [(OF_LMQ, FASTJSON), (OF_LMQ_IN_5, FASTJSON2)], ids=["4.9", "5.5.0"])
def test_groups_of_light_message_queues_have_an_offset_of_queue_0(text: bytes, form: TextForm) -> None:
    found = config_files.decode_lmq_consumer_offsets(text, "lmqConsumerOffset.json")
    of_lmq = {("%LMQ%dev", "orders", 0): 4, ("%LMQ%dev", "%LMQ%dev", 0): 9}
    assert found.by_queue() == {("g", "orders", 0): 5, ("g", "orders", 3): 7} | of_lmq
    assert found.of_topics({"orders"}).by_queue() == {("g", "orders", 0): 5, ("g", "orders", 3): 7, ("%LMQ%dev", "orders", 0): 4}
    assert config_files.encode_consumer_offsets(found, form) == text


def test_each_group_has_the_offsets_of_its_own_table() -> None:
    text = b'{"offsetTable":{"orders@%LMQ%x":{0:1},"a@g":{0:2}},"lmqOffsetTable":{"q@%LMQ%x":8,"a@g":3}}'
    assert config_files.decode_lmq_consumer_offsets(text, "f").by_queue() == {("g", "a", 0): 2, ("%LMQ%x", "q", 0): 8}
    assert config_files.decode_consumer_offsets(text, "f").by_queue() == {("%LMQ%x", "orders", 0): 1, ("g", "a", 0): 2}
