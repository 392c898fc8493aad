"""Loads and encodes the broker's tables under config/: topics, subscriptionGroup, consumerOffset, delayOffset, consumerFilter (.json).

Broker source (4.9.3): ConfigManager.load, loadBak and persist, MixAll.file2String; decode of TopicConfigManager,
SubscriptionGroupManager, ConsumerOffsetManager, ScheduleMessageService, ConsumerFilterManager.
Rule: the .bak is read if the file is missing, empty or cannot be decoded; without a .bak the table starts empty.
Surprise: a file of blanks or of `null` is decoded to an empty table, even if its .bak is good. For a file that cannot be decoded and has no
.bak, the broker starts with an empty table and writes a line to its log; here that is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from store_format.config import config_rows as cr
from store_format.config.config_fields import INT_BITS, LONG_BITS, ConfigText, extra_text, integer, members, read_row, refuse_similar
from store_format.config.fastjson import parse_json
from store_format.config.fastjson_scanner import BLANKS, Node, UnsupportedConfigError
from store_format.config.fastjson_writer import FASTJSON, TextForm, encode_json, quoted
from store_format.errors import ConfigFileError

T = TypeVar("T")
_OF_LMQ = "lmqOffsetTable"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A table, the file it was read from, and the reason why it was not read from the main file (empty if it was)."""

    table: T
    source: Literal["main", "bak", "missing"]
    reason: str = ""


def load(main: bytes | None, bak: bytes | None, path: str, decode: Callable[[bytes, str], T]) -> Loaded[T]:
    """The table that ConfigManager.load takes from the bytes of a main file and its .bak; None for a file that does not exist.

    `decode` is one of the decode functions of this module.

    Raises:
        ConfigFileError: both files are unusable and the broker would not start, or the main file is unusable, there is no .bak, and the
            broker would start with an empty table.
        UnsupportedConfigError: the broker may read a file that `decode` does not.
    """
    failure: ConfigFileError | None = None
    if main:
        try:
            return Loaded(decode(main, path), "main")
        except UnsupportedConfigError:
            raise
        except ConfigFileError as error:
            failure = error
    reason = str(failure) if failure else f"{path} is {'missing' if main is None else 'empty'}"
    if bak:
        try:
            return Loaded(decode(bak, f"{path}.bak"), "bak", reason)
        except UnsupportedConfigError:
            raise
        except ConfigFileError as error:
            error.hint = f"there is nothing else to read: {reason}"
            raise
    if failure:
        failure.hint = "there is no .bak; to go on with an empty table, as the broker would, remove the file"
        raise failure
    return Loaded(decode(b"", path), "missing", f"{reason}, and so is its .bak")


def offsets_file(*, enable_lmq: bool) -> tuple[str, Callable[[bytes, str], cr.ConsumerOffsets]]:
    """The name of the file that has all committed offsets, and what reads it.

    Broker source (4.9.3 and 5.5.0): BrokerController, which makes a LmqConsumerOffsetManager where enableLmq is set; its configFilePath.
    The broker then neither reads nor writes consumerOffset.json.
    Surprise: the start of 4.9.3 finds no offset in lmqConsumerOffset.json, as fastjson cannot make an object of the class; 4.9.8 does.
    """
    if enable_lmq:
        return "lmqConsumerOffset.json", decode_lmq_consumer_offsets
    return "consumerOffset.json", decode_consumer_offsets


def decode_consumer_offsets(text: bytes, path: str) -> cr.ConsumerOffsets:
    """The committed offsets in the text of consumerOffset.json (ConsumerOffsetManager.decode)."""
    source = ConfigText(text, path)
    tables, extra = _tables(source, "offsetTable", "pullOffsetTable")
    return _consumer_offsets(tables, extra, source)


def decode_lmq_consumer_offsets(text: bytes, path: str) -> cr.ConsumerOffsets:
    """The committed offsets in the text of lmqConsumerOffset.json (LmqConsumerOffsetManager.decode)."""
    source = ConfigText(text, path)
    tables, extra = _tables(source, "offsetTable", "pullOffsetTable", _OF_LMQ)
    of_lmq = members(tables.pop(_OF_LMQ, Node(0, 0, ())), source)
    found = {key: integer(offset, source, LONG_BITS) for key, _, offset in of_lmq}
    return replace(_consumer_offsets(tables, extra, source), lmqOffsetTable=found)


def _consumer_offsets(tables: dict[str, Node], extra: str, source: ConfigText) -> cr.ConsumerOffsets:
    found = {name: {key: _offsets(queues, source) for key, _, queues in members(node, source)} for name, node in tables.items()}
    return cr.ConsumerOffsets(found["offsetTable"], extra, found.get("pullOffsetTable"))


def decode_delay_offsets(text: bytes, path: str) -> cr.DelayOffsets:
    """The offsets of the delay levels in the text of delayOffset.json (ScheduleMessageService.decode)."""
    source = ConfigText(text, path)
    tables, extra = _tables(source, "offsetTable")
    return cr.DelayOffsets(_offsets(tables["offsetTable"], source), extra)


def decode_topic_configs(text: bytes, path: str) -> cr.TopicConfigs:
    """The topics in the text of topics.json, without the topics that the broker creates at its start (TopicConfigManager.decode)."""
    source = ConfigText(text, path)
    tables, extra = _tables(source, "topicConfigTable", "dataVersion")
    topics = {name: read_row(cr.TopicConfig, row, source, topicName=name) for name, _, row in members(tables["topicConfigTable"], source)}
    version = tables.get("dataVersion")
    return cr.TopicConfigs(tuple(topics.values()), read_row(cr.DataVersion, version, source) if version else None, extra)


def decode_subscription_groups(text: bytes, path: str) -> cr.SubscriptionGroups:
    """The groups in the text of subscriptionGroup.json, without the broker's system groups (SubscriptionGroupManager.decode)."""
    source = ConfigText(text, path)
    if text and not text.strip(BLANKS):  # the only class that fastjson fills without generated code; it then refuses a blank text
        raise source.broken(Node(0, 0, None), "an object")
    tables, extra = _tables(source, "subscriptionGroupTable", "dataVersion")
    groups = {
        name: read_row(cr.SubscriptionGroupConfig, row, source, groupName=name)
        for name, _, row in members(tables["subscriptionGroupTable"], source)
    }
    version = tables.get("dataVersion")
    try:
        return cr.SubscriptionGroups(tuple(groups.values()), read_row(cr.DataVersion, version, source) if version else None, extra)
    except ConfigFileError as error:  # the class has no setter for dataVersion, so fastjson skips any value
        hint = "the broker does not read it; take it out"
        raise UnsupportedConfigError(path, error.expected, error.found, position=error.position, hint=hint) from error


def decode_consumer_filters(text: bytes, path: str) -> cr.ConsumerFilters:
    """The subscriptions by expression in the text of consumerFilter.json (ConsumerFilterManager.decode).

    This is the file's content. The broker discards all subscriptions if their bitNum is not that of its own Bloom filter, and marks the
    live ones dead.
    """
    source = ConfigText(text, path)
    tables, extra = _tables(source, "filterDataByTopic")
    topics = {topic: _filter_data_map(topic, node, source) for topic, _, node in members(tables["filterDataByTopic"], source)}
    return cr.ConsumerFilters(tuple(topics.values()), extra)


def encode_consumer_offsets(table: cr.ConsumerOffsets, form: TextForm = FASTJSON) -> bytes:
    """The text of consumerOffset.json, or of lmqConsumerOffset.json."""
    tables: dict[str, object] = {_OF_LMQ: table.lmqOffsetTable, "offsetTable": table.offsetTable, "pullOffsetTable": table.pullOffsetTable}
    return encode_json(cr.with_extra(tables, table.extra), form)


def encode_delay_offsets(table: cr.DelayOffsets, form: TextForm = FASTJSON) -> bytes:
    """The text of delayOffset.json."""
    return encode_json(cr.with_extra({"offsetTable": table.offsetTable}, table.extra), form)


def encode_topic_configs(table: cr.TopicConfigs, form: TextForm = FASTJSON) -> bytes:
    """The text of topics.json."""
    version = cr.members_of(table.dataVersion) if table.dataVersion else None
    rows = {row.topicName: cr.members_of(row) for row in table.topicConfigTable}
    return encode_json(cr.with_extra({"dataVersion": version, "topicConfigTable": rows}, table.extra), form)


def encode_subscription_groups(table: cr.SubscriptionGroups, form: TextForm = FASTJSON) -> bytes:
    """The text of subscriptionGroup.json."""
    version = cr.members_of(table.dataVersion) if table.dataVersion else None
    rows = {row.groupName: cr.members_of(row) for row in table.subscriptionGroupTable}
    return encode_json(cr.with_extra({"dataVersion": version, "subscriptionGroupTable": rows}, table.extra), form)


def encode_consumer_filters(table: cr.ConsumerFilters, form: TextForm = FASTJSON) -> bytes:
    """The text of consumerFilter.json."""
    topics = {}
    for topic in table.filterDataByTopic:
        rows = {row.consumerGroup: cr.members_of(row) for row in topic.groupFilterData}
        topics[topic.topic] = cr.with_extra({"groupFilterData": rows, "topic": topic.topic}, topic.extra)
    return encode_json(cr.with_extra({"filterDataByTopic": topics}, table.extra), form)


def _tables(source: ConfigText, *names: str) -> tuple[dict[str, Node], str]:
    """The members `names` of the file's object, and all other members as text. The first of `names` is always in the result."""
    found: dict[str, Node] = {}
    extra: dict[str, str] = {}
    root = parse_json(source.text, source.path)
    if root.value in ([], ""):
        raise source.unsupported(root, "an object")
    for name, key, value in [] if root.value is None else members(root, source):
        if name in found or (name in names and value.value is None):
            raise source.unsupported(key, f"{name} once, and an object")
        if name in names:
            found[name] = value
        else:
            refuse_similar(name, key, source, names)
            extra[name] = source.raw(value)
    return {names[0]: Node(0, 0, ()), **found}, extra_text(extra)


def _offsets(node: Node, source: ConfigText) -> dict[int, int]:
    """The offsets in a node, by queueId or delay level."""
    if not isinstance(node.value, tuple):
        raise source.broken(node, "an object")
    return {integer(key, source, INT_BITS): integer(value, source, LONG_BITS) for key, value in node.value}


def _filter_data_map(topic: str, node: Node, source: ConfigText) -> cr.FilterDataMapByTopic:
    rows: dict[str, cr.ConsumerFilterData] = {}
    extra = {"topic": "null"}
    seen: set[str] = set()
    for name, key, value in members(node, source):
        if name in seen:
            raise source.unsupported(key, f"{name} once")
        seen.add(name)
        if name == "groupFilterData":
            rows = {
                group: read_row(cr.ConsumerFilterData, row, source, topic=topic, consumerGroup=group)
                for group, _, row in members(value, source)
            }
        else:
            refuse_similar(name, key, source, {"groupFilterData", "topic"} - {name})
            extra[name] = quoted(topic) if value.value == topic else source.raw(value)
    if extra["topic"] == quoted(topic):
        del extra["topic"]
    return cr.FilterDataMapByTopic(topic, tuple(rows.values()), extra_text(extra))
