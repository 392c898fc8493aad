"""Reads the rows of a config file from its JSON tree, as fastjson fills the broker's objects.

Broker source (4.9.3): the classes of config_rows; JavaBeanDeserializer, IntegerCodec and LongCodec of fastjson 1.2.76.
Rule: an integer may stand in quotes, null leaves a primitive field at its default, an integer out of range fails.
Surprise: fastjson also reads 1.9 as 1, true as 1 and `read_queue_nums` as readQueueNums. This module refuses such a file. Its .bak is not
used instead, because the broker would load the file itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from store_format.config.config_rows import BloomFilterData, ConsumerFilterData, DataVersion, Row, SubscriptionGroupConfig, TopicConfig
from store_format.config.fastjson_scanner import Node, NumberText, UnsupportedConfigError
from store_format.config.fastjson_writer import quoted
from store_format.errors import ConfigFileError

INT_BITS, LONG_BITS = 32, 64
_INTEGER = re.compile(r"[+-]?[0-9]{1,25}")
R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A config file's bytes, and its name for errors."""

    text: bytes
    path: str

    def raw(self, node: Node) -> str:
        """The text from which a node was read."""
        return self.text[node.start : node.end].decode(errors="replace")  # a comment may hold any bytes

    def broken(self, node: Node, expected: str) -> ConfigFileError:
        """The error for a node that the broker refuses too."""
        return ConfigFileError(self.path, expected, self._found(node), position=node.start)

    def unsupported(self, node: Node, expected: str) -> UnsupportedConfigError:
        """The error for a node that the broker may load, but that this module does not read."""
        hint = "the broker may read this all the same; write it as the broker does"
        return UnsupportedConfigError(self.path, expected, self._found(node), position=node.start, hint=hint)

    def _found(self, node: Node) -> str:
        return repr(self.text[node.start : min(node.end, node.start + 24)])


Reader = Callable[[Node, ConfigText], Any]


def integer(node: Node, source: ConfigText, bits: int) -> int:
    """The value of a node as a Java integer of 32 or 64 bits; it may stand in quotes."""
    value, expected = node.value, f"an integer of {bits} bits"
    if isinstance(value, NumberText):
        raise source.broken(node, expected) if value.lstrip("+-").isdigit() else source.unsupported(node, expected)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool | str):
        raise source.unsupported(node, expected)
    if not isinstance(value, int) or not _fits(value, bits):
        raise source.broken(node, expected)
    return value


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def members(node: Node, source: ConfigText) -> Iterator[tuple[str, Node, Node]]:
    """Name, key and value of each member of an object whose keys are names."""
    if not isinstance(node.value, tuple):
        raise source.broken(node, "an object")
    for key, value in node.value:
        if not isinstance(key.value, str):
            raise source.broken(key, "a name")
        yield key.value, key, value


def refuse_similar(name: str, key: Node, source: ConfigText, known: Iterable[str]) -> None:
    """Raise if fastjson's smart match takes `name` for a known field: it ignores case, '_', '-' and a leading "is"."""
    plain_name = _smart(name)
    for field in known:
        if _smart(field) in {plain_name, plain_name.removeprefix("is")}:
            raise source.unsupported(key, field)


def _smart(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def extra_text(extra: Mapping[str, str]) -> str:
    """The text of a JSON object with the members that no class knows, their values as they were written; empty without members."""
    return "{" + ",".join(f"{quoted(name)}:{text}" for name, text in extra.items()) + "}" if extra else ""


def read_row(kind: type[R], node: Node, source: ConfigText, **names: str) -> R:
    """The row of class `kind` in a node; `names` are the fields that are known from the row's key in the file."""
    known: dict[str, Any] = {}
    extra: dict[str, str] = {}
    for name, key, value in members(node, source):
        reader = FIELDS[kind].get(name)
        if name in known:
            raise source.unsupported(key, f"{name} once")
        if reader is None:
            refuse_similar(name, key, source, FIELDS[kind])
            extra[name] = source.raw(value)
        elif value.value is not None or reader not in _PRIMITIVE:
            known[name] = reader(value, source)
    for name, place in names.items():
        inner = known.get(name)
        if inner != place:
            extra[name] = "null" if inner is None else quoted(inner)
    return kind(**(known | names), extra=extra_text(extra))


_int: Reader = partial(integer, bits=INT_BITS)
_atomic_long: Reader = partial(integer, bits=LONG_BITS)


def _long(node: Node, source: ConfigText) -> int:
    value = node.value
    if isinstance(value, NumberText) or (isinstance(value, int) and not _fits(value, LONG_BITS)):
        raise source.unsupported(node, f"an integer of {LONG_BITS} bits")  # the broker wraps some integers that are out of range
    return integer(node, source, LONG_BITS)


def _boolean(node: Node, source: ConfigText) -> bool:
    if isinstance(node.value, bool):
        return node.value
    raise (source.broken if isinstance(node.value, list | tuple) else source.unsupported)(node, "true or false")


def _string(node: Node, source: ConfigText) -> str | None:
    if isinstance(node.value, str | None) and not isinstance(node.value, NumberText):
        return node.value
    raise source.unsupported(node, "a string")


def _dead(node: Node, source: ConfigText) -> bool | None:
    if isinstance(node.value, bool | None):
        return node.value
    raise source.unsupported(node, "true or false")


def _topic_filter_type(node: Node, source: ConfigText) -> str:
    if isinstance(node.value, str) and node.value in {"SINGLE_TAG", "MULTI_TAG"}:
        return node.value
    raise source.unsupported(node, '"SINGLE_TAG" or "MULTI_TAG"')


def _bit_positions(node: Node, source: ConfigText) -> tuple[int, ...] | None:
    if node.value is None:
        return None
    try:
        if isinstance(node.value, list):
            return tuple(_int(item, source) for item in node.value)
    except ConfigFileError as error:  # fastjson clips integers that are out of range
        raise source.unsupported(node, "a list of integers of 32 bits") from error
    raise source.unsupported(node, "a list of integers of 32 bits")


def _bloom_filter_data(node: Node, source: ConfigText) -> BloomFilterData | None:
    return None if node.value is None else read_row(BloomFilterData, node, source)


_PRIMITIVE: set[Reader] = {_int, _long, _boolean}  # a null leaves a primitive field at its default
FIELDS: Mapping[type[object], Mapping[str, Reader]] = {
    DataVersion: {"counter": _atomic_long, "timestamp": _long},
    TopicConfig: {
        "order": _boolean,
        "perm": _int,
        "readQueueNums": _int,
        "topicFilterType": _topic_filter_type,
        "topicName": _string,
        "topicSysFlag": _int,
        "writeQueueNums": _int,
    },
    SubscriptionGroupConfig: {
        "brokerId": _long,
        "consumeBroadcastEnable": _boolean,
        "consumeEnable": _boolean,
        "consumeFromMinEnable": _boolean,
        "groupName": _string,
        "notifyConsumerIdsChangedEnable": _boolean,
        "retryMaxTimes": _int,
        "retryQueueNums": _int,
        "whichBrokerWhenConsumeSlowly": _long,
    },
    BloomFilterData: {"bitNum": _int, "bitPos": _bit_positions},
    ConsumerFilterData: {
        "bloomFilterData": _bloom_filter_data,
        "bornTime": _long,
        "clientVersion": _long,
        "consumerGroup": _string,
        "dead": _dead,
        "deadTime": _long,
        "expression": _string,
        "expressionType": _string,
        "topic": _string,
    },
}
