"""Any table stays the same when its config file is written and read; any bytes in place of the file are read or refused.

tests/data/config holds the five files of a broker as it wrote them. fastjson refuses each of them if it is cut at any byte, also
with zeros in place of the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_format.config import config_files
from store_format.config.config_rows import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilters,
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    FilterDataMapByTopic,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
)
from store_format.errors import ConfigFileError
from tests.runs.sampling import examples
from tests.truth.places import DATA

CONFIG = DATA / "config"
CODECS: dict[str, tuple[Callable[[bytes, str], Any], Callable[[Any], bytes]]] = {
    "topics": (config_files.decode_topic_configs, config_files.encode_topic_configs),
    "subscriptionGroup": (config_files.decode_subscription_groups, config_files.encode_subscription_groups),
    "consumerOffset": (config_files.decode_consumer_offsets, config_files.encode_consumer_offsets),
    "delayOffset": (config_files.decode_delay_offsets, config_files.encode_delay_offsets),
    "consumerFilter": (config_files.decode_consumer_filters, config_files.encode_consumer_filters),
}
each_file = pytest.mark.parametrize("name", CODECS)


def real(name: str) -> bytes:
    return (CONFIG / f"{name}.json").read_bytes()


names = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name != "@type")
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(names, st.dictionaries(ints, longs)))
@example({"{0:": {0: 1}, '"\\\u2028': {}})
def test_offsets_of_any_names_go_round(table: dict[str, dict[int, int]]) -> None:
    written = config_files.encode_consumer_offsets(ConsumerOffsets(table))
    assert config_files.decode_consumer_offsets(written, "x") == ConsumerOffsets(table)


versions = st.builds(DataVersion, counter=longs, timestamp=longs)
topics = st.builds(
    TopicConfig,
    topicName=names,
    readQueueNums=ints,
    writeQueueNums=ints,
    perm=ints,
    topicFilterType=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    topicSysFlag=ints,
    order=st.booleans(),
)
groups = st.builds(
    SubscriptionGroupConfig,
    groupName=names,
    consumeEnable=st.booleans(),
    consumeFromMinEnable=st.booleans(),
    consumeBroadcastEnable=st.booleans(),
    retryQueueNums=ints,
    retryMaxTimes=ints,
    brokerId=longs,
    whichBrokerWhenConsumeSlowly=longs,
    notifyConsumerIdsChangedEnable=st.booleans(),
)
blooms = st.builds(BloomFilterData, bitPos=st.none() | st.lists(ints).map(tuple), bitNum=ints)


@st.composite
def filter_maps(draw: st.DrawFn) -> FilterDataMapByTopic:
    name = draw(names)
    rows = st.builds(
        ConsumerFilterData,
        topic=st.just(name),
        consumerGroup=names,
        expression=st.none() | names,
        expressionType=st.none() | names,
        bornTime=longs,
        deadTime=longs,
        clientVersion=longs,
        bloomFilterData=st.none() | blooms,
        dead=st.none() | st.booleans(),
    )
    return FilterDataMapByTopic(name, tuple(draw(st.lists(rows, unique_by=lambda row: row.consumerGroup, max_size=3))))


tables = st.one_of(
    st.tuples(
        st.just("topics"),
        st.builds(TopicConfigs, st.lists(topics, unique_by=lambda row: row.topicName, max_size=3).map(tuple), st.none() | versions),
    ),
    st.tuples(
        st.just("subscriptionGroup"),
        st.builds(SubscriptionGroups, st.lists(groups, unique_by=lambda row: row.groupName, max_size=3).map(tuple), st.none() | versions),
    ),
    st.tuples(
        st.just("consumerFilter"),
        st.builds(ConsumerFilters, st.lists(filter_maps(), unique_by=lambda row: row.topic, max_size=2).map(tuple)),
    ),
    st.tuples(st.just("delayOffset"), st.builds(DelayOffsets, st.dictionaries(ints, longs))),
)


@given(tables)
def test_any_table_goes_round(named: tuple[str, object]) -> None:
    decode, encode = CODECS[named[0]]
    assert decode(encode(named[1]), "x") == named[1]


@each_file
def test_a_file_cut_anywhere_is_refused_as_fastjson_refuses_it(name: str) -> None:
    text, decode = real(name), CODECS[name][0]
    for end in range(1, len(text), 1 + len(text) // examples(2000)):
        for damaged in (text[:end], text[:end].ljust(len(text), b"\0")):
            with pytest.raises(ConfigFileError) as caught:
                decode(damaged, name)
            assert type(caught.value) is ConfigFileError, (end, str(caught.value))


def read_or_refuse(name: str, text: bytes) -> None:
    decode, encode = CODECS[name]
    try:
        table = decode(text, name)
    except ConfigFileError as error:
        assert error.position is None or 0 <= error.position <= len(text)  # noqa: PT017
        return
    written = encode(table)
    # members that no class of the broker knows are not written
    assert decode(written, "again") == table or "extra='{" in repr(table)
    assert encode(decode(written, "again")) == written


@given(st.sampled_from(sorted(CODECS)), st.binary() | st.text("{}[]:,'\"0123456789-+.eE/*\\unxtrl \n\0\x1aaé@$").map(str.encode))
def test_any_bytes_are_read_or_refused(name: str, text: bytes) -> None:
    read_or_refuse(name, text)


@given(st.sampled_from(sorted(CODECS)), st.data())
def test_a_garbled_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    text = bytearray(real(name))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        text[start : start + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8) | st.just(bytes(64)))
    read_or_refuse(name, bytes(text))
