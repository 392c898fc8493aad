"""Decodes the body of a HEART_BEAT: a client's groups and their subscriptions.

Broker source (4.9.3): HeartbeatData, ConsumerData, ProducerData, SubscriptionData, ClientManageProcessor.heartBeat; fastjson reads it.
Rule: the body is JSON, whatever the form of the frame's header. Absent sets are empty, an unknown enum name is null, fractions are cut off,
and keys match without case, underscores and hyphens.
Surprise: the client computes the hash codes of the tags. The broker filters pulls that have no subscription by these hash codes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from store_format.config.fastjson import parse_json, plain
from store_format.config.fastjson_scanner import NumberText
from store_format.errors import ConfigFileError
from store_format.record.message import decode_text
from store_format.remoting.errors import JSON_EXCEPTION, NULL_POINTER, FrameError
from store_format.remoting.header_text import plain_name
from store_format.remoting.headers import java_number

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_TRUE, _FALSE = {"true", "1", "y", "t"}, {"false", "0", "n", "f", "", "null"}
_PATH = "body"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSubscription:
    """SubscriptionData: one subscription of a heartbeat.

    `subVersion` is in ms of the client's clock, None if the heartbeat has none; the broker then takes its own clock.
    """

    topic: str | None
    subString: str | None
    tagsSet: frozenset[str]
    codeSet: frozenset[int]
    subVersion: int | None
    expressionType: str | None
    classFilterMode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    """A consumer group of a client."""

    groupName: str | None
    consumeType: str | None
    messageModel: str | None
    consumeFromWhere: str | None
    subscriptionDataSet: tuple[HeartbeatSubscription, ...]
    unitMode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData:
    """A heartbeat, which a client sends to a broker every half minute; the sets are in the order of the text.

    `heartbeatFingerprint` and `isWithoutSub` (withoutSub in the text) are of 5.x: a client leaves out subscriptions that are as before.
    """

    clientID: str | None
    producerGroups: tuple[str | None, ...]
    consumerDataSet: tuple[ConsumerData, ...]
    heartbeatFingerprint: int = 0
    isWithoutSub: bool = False

    @property
    def keeps_subscriptions(self) -> bool:
        """Whether a broker 5.x keeps the subscriptions of the groups: ClientManageProcessor.heartBeatV2 (5.5.0)."""
        return self.heartbeatFingerprint != 0 and self.isWithoutSub


def decode_heartbeat(body: bytes | None) -> HeartbeatData:
    """HeartbeatData.decode: the heartbeat in a frame's body.

    Raises:
        FrameError: the body is no JSON object, or a field does not have the broker's type; the text names the field.
    """
    tree = _tree(body)
    consumers, fingerprint = enumerate(_list(tree, "consumerDataSet", "")), _field(tree, "heartbeatFingerprint")
    return HeartbeatData(
        clientID=_text(tree, "clientID", ""),
        producerGroups=tuple(_text(one, "groupName", "producerDataSet") for one in _list(tree, "producerDataSet", "")),
        consumerDataSet=tuple(_consumer(one, f"consumerDataSet[{index}]") for index, one in consumers),
        heartbeatFingerprint=0 if fingerprint is None else _number(fingerprint, "heartbeatFingerprint", 32),
        isWithoutSub=_flag(tree, "withoutSub", ""),
    )


def _tree(body: bytes | None) -> dict[str, Any]:
    text = decode_text(body or b"")
    try:
        tree: object = json.loads(text)
    except (ValueError, RecursionError):
        try:
            tree = plain(parse_json(text.encode(), _PATH))
        except ConfigFileError as error:
            raise FrameError(JSON_EXCEPTION, error.expected, error.found, position=error.position or 0, path=_PATH) from None
    if tree is None:
        raise FrameError(NULL_POINTER, "a heartbeat, a JSON object", "nothing", position=0, path=_PATH)
    return _object(tree, "the heartbeat")


def _refuse(what: str, expected: str, found: object) -> FrameError:
    return FrameError(JSON_EXCEPTION, f"{expected} in {what}", repr(found)[:80], position=0, path=_PATH)


def _object(value: object, what: str) -> dict[str, Any]:
    """The members of an object, by their names in the form in which fastjson compares them."""
    if not isinstance(value, dict):
        raise _refuse(what, "a JSON object", value)
    return {plain_name(str(key)): one for key, one in value.items()}


def _field(tree: dict[str, Any], name: str) -> Any:
    return tree.get(plain_name(name))


def _list(tree: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    return [_object(one, _place(name, where)) for one in _items(tree, name, where)]


def _items(tree: dict[str, Any], name: str, where: str) -> list[Any]:
    value = _field(tree, name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _refuse(_place(name, where), "a list", value)
    return value


def _place(name: str, where: str) -> str:
    return f"{where}.{name}" if where else name


def _text(tree: dict[str, Any], name: str, where: str) -> str | None:
    return _as_text(_field(tree, name), _place(name, where))


def _as_text(value: object, what: str) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str | int | float):
        return None if value is None else str(value)
    raise _refuse(what, "a text", value)


def _enum(tree: dict[str, Any], name: str, where: str, names: tuple[str, ...]) -> str | None:
    """The name of an enum's value, which is given by its name without case or by its number."""
    value = _field(tree, name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    if value is None or (isinstance(value, str) and not isinstance(value, NumberText)):
        return (value or "").upper() if (value or "").upper() in names else None
    raise _refuse(_place(name, where), f"one of {', '.join(names)}", value)


def _flag(tree: dict[str, Any], name: str, where: str) -> bool:
    value = _field(tree, name)
    if value is None or isinstance(value, bool | int):
        return value == 1
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise _refuse(_place(name, where), "true or false", value)


def _number(value: object, what: str, bits: int) -> int:
    text = str(int(value)) if isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0 else value
    number = java_number(text, bits) if isinstance(text, str) else None
    if number is None:
        raise _refuse(what, f"a whole number of {bits} bits", value)
    return number


def _consumer(tree: dict[str, Any], where: str) -> ConsumerData:
    subscriptions = enumerate(_list(tree, "subscriptionDataSet", where))
    return ConsumerData(
        groupName=_text(tree, "groupName", where),
        consumeType=_enum(tree, "consumeType", where, CONSUME_TYPES),
        messageModel=_enum(tree, "messageModel", where, MESSAGE_MODELS),
        consumeFromWhere=_enum(tree, "consumeFromWhere", where, CONSUME_FROM_WHERE),
        subscriptionDataSet=tuple(_subscription(one, f"{where}.subscriptionDataSet[{index}]") for index, one in subscriptions),
        unitMode=_flag(tree, "unitMode", where),
    )


def _subscription(tree: dict[str, Any], where: str) -> HeartbeatSubscription:
    version = _field(tree, "subVersion")
    tags = [_as_text(one, f"{where}.tagsSet") for one in _items(tree, "tagsSet", where)]
    return HeartbeatSubscription(
        topic=_text(tree, "topic", where),
        subString=_text(tree, "subString", where),
        tagsSet=frozenset(tag for tag in tags if tag is not None),
        codeSet=frozenset(_number(code, f"{where}.codeSet", 32) for code in _items(tree, "codeSet", where)),
        subVersion=None if version is None else _number(version, f"{where}.subVersion", 64),
        expressionType=_text(tree, "expressionType", where) if "expressiontype" in tree else "TAG",
        classFilterMode=_flag(tree, "classFilterMode", where),
    )
