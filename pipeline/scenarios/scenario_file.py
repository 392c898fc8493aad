"""Files of scenarios: each line is a JSON object with the steps to run against a broker.

A line that is no scenario, and a step that lacks a field, are reported before anything is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pipeline.requests.request_file import Chunk, bytes_of_chunk
from pipeline.requests.request_lines import RequestError
from pipeline.scenarios.scenario_settings import memory_settings
from pipeline.settings.settings import RULES_VERSION, Setting, SettingsError, Value, load_catalogue
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from store_format.config.config_rows import SubscriptionGroupConfig
from store_format.errors import printable, shown
from store_format.java.blanks import is_blank
from store_format.layout import LMQ_PREFIX
from store_format.remoting.frame import FRAME_MAX_LENGTH
from store_format.store.multi_dispatch import MULTI_DISPATCH, split_queues
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.memory_broker import MemoryBroker
from udfs.broker.multi_dispatch import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET
from udfs.broker.send_message import as_sent
from udfs.filters.consumer_filter_manager import SQL92
from udfs.filters.message_filter import SubscriptionError, TopicSubscription
from udfs.filters.tags import SubscriptionParseError

Step = dict[str, Any]
_SHOWN = 200
_TEXT, _INT, _BOOL, _OBJECT, _LIST = str, int, bool, dict, list
_QUEUE = {"topic": _TEXT, "queueId": _INT}
# required fields of each kind of step; a step may have others
FIELDS: Mapping[str, Mapping[str, type]] = {
    "brokerConfig": {"set": _OBJECT},
    "storeConfig": {"set": _OBJECT},
    "topic": {"topic": _TEXT, "readQueueNums": _INT, "writeQueueNums": _INT, "perm": _INT},
    "group": {"group": _TEXT},
    "groupConfig": {"group": _TEXT},
    "topicConfig": {"topic": _TEXT},
    "send": _QUEUE,
    "heartbeat": {"clientId": _TEXT, "group": _TEXT, "subscriptions": _LIST},
    "unregister": {"clientId": _TEXT, "group": _TEXT},
    "disconnect": {"client": _TEXT},
    "pull": {},
    "request": {"code": _INT},
    "drain": {"ext": _OBJECT},
    "await": {"id": _TEXT},
    "expectNoResponse": {"id": _TEXT, "ms": _INT},
    "sleep": {"ms": _INT},
    "syncHoldTick": {},
    "holdCount": _QUEUE,
    "minOffset": {**_QUEUE, "offset": _INT},
    "storeReadable": {"value": _BOOL},
    "consumerOffset": {"group": _TEXT, **_QUEUE},
    "queueRange": _QUEUE,
    "readStored": _QUEUE,
    "filterState": {"group": _TEXT, "topic": _TEXT},
    "groupState": {"group": _TEXT},
    "pushedRequests": {},
    "deleteCommitLogHead": {},
    "deleteConsumeQueueHead": _QUEUE,
    "replicate": _QUEUE,
    "sendBack": {"group": _TEXT, "originTopic": _TEXT, "queueId": _INT, "delayLevel": _INT},
    "findLast": {"topics": _LIST, "body": _TEXT},
}
# optional fields of any step
_OPTIONAL: Mapping[str, type] = {
    "client": _TEXT,
    "id": _TEXT,
    "oneway": _BOOL,
    "noResponseMs": _INT,
    "body": _TEXT,
    "last": _INT,
    "version": _INT,
    "maxReconsumeTimes": _INT,
    "physicalOffset": _INT,
    "queueOffset": _INT,
    "consumeType": _TEXT,
    "messageModel": _TEXT,
    "consumeFromWhere": _TEXT,
}
# properties that make a message of 5.x a timer message: HookUtils.checkIfTimerMessage
_TIMER_PROPERTIES = ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")
_NAMES = {_TEXT: "a text", _INT: "a whole number", _BOOL: "true or false", _OBJECT: "an object", _LIST: "a list"}
_MESSAGE = {
    "tags": _TEXT,
    "keys": _TEXT,
    "body": _TEXT,
    "bodySize": _INT,
    "props": _OBJECT,
    "flag": _INT,
    "reconsumeTimes": _INT,
    "maxReconsumeTimes": _INT,
}
# numbers that are longs in the broker; the others are ints
_LONGS = {"offset", "queueOffset", "physicalOffset", "ms", "noResponseMs", "brokerId", "whichBrokerWhenConsumeSlowly"}
# greatest values; above them a scenario would take too long
_MOST = {"ms": 7 * 86_400_000, "noResponseMs": 86_400_000, "count": 10_000_000, "readQueueNums": 2**31 - 1, "writeQueueNums": 2**31 - 1}
# settings with which a broker dispatches no message, or only those that its group has confirmed
_OTHER_DISPATCH = frozenset({"duplicationEnable", "enableDLegerCommitLog"})
_GROUP_FIELDS = frozenset(SubscriptionGroupConfig.__dataclass_fields__) - {"groupName", "extra"}
GROUP_FIELDS_OF_5 = frozenset({"groupSysFlag"})  # numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario: the number of its line, its JSON object, and the settings that its broker starts with."""

    line: int
    content: dict[str, Any]
    base: Mapping[str, Value]

    @property
    def name(self) -> str:
        """Name of the scenario, or the number of its line if it has none."""
        return str(self.content.get("name", self.line))

    @property
    def steps(self) -> list[Step]:
        """Steps of the scenario."""
        steps: list[Step] = self.content["steps"]
        return steps


@dataclass(frozen=True, slots=True)
class _Line:
    path: str
    number: int
    version: BrokerVersion = DEFAULT_VERSION

    def refuse(self, expected: str, found: object) -> NoReturn:
        text = found if isinstance(found, str) else json.dumps(found)
        raise RequestError(self.path, self.number, expected, printable(text[:_SHOWN]))


def read_chunk(path: str, chunk: Chunk) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines of a chunk that are not blank.

    Raises:
        RequestError: the file cannot be opened, or has changed since the scan, or a line is not UTF-8.
    """
    for number, line in enumerate(bytes_of_chunk(path, chunk).split(b"\n"), chunk.first_line):
        if line.strip():
            try:
                yield number, line.decode()
            except UnicodeDecodeError as error:
                raise RequestError(path, number, "text in UTF-8", str(error)) from None


def scenario_of(path: str, number: int, text: str, rules: BrokerVersion | None = None) -> Scenario:
    """Return the scenario of a line; `rules` is the version whose rules hold; None for rulesVersion of its brokerBase, or else 4.9.3.

    Raises:
        RequestError: the line is not a valid scenario.
    """
    line = _Line(path, number)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        line.refuse("a JSON object", f"{shown(text)} ({error})")
    if not isinstance(content, dict):
        line.refuse("a JSON object", shown(text))
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        line.refuse("text without lone surrogates", ascii(error.object[error.start]))
    if not isinstance(content.get("steps"), list):
        line.refuse('a list in "steps"', content.get("steps"))
    base = content.get("brokerBase") or {}
    if not isinstance(base, dict):
        line.refuse('an object in "brokerBase"', base)
    if rules is not None:
        base = base | {RULES_VERSION: rules.value}
    versions = {one.value: one for one in BrokerVersion}
    version = base.get(RULES_VERSION, DEFAULT_VERSION.value)
    if version not in versions:
        line.refuse(f'one of {", ".join(versions)} in "{RULES_VERSION}" of "brokerBase"', version)
    line = _Line(path, number, versions[version])
    ids: set[str] = set()
    for at, step in enumerate(content["steps"], 1):
        _check_step(line, at, step, ids)
    scenario = Scenario(line=number, content=content, base=values_of(line, "brokerBase", base))
    try:
        MemoryBroker(settings=memory_settings(scenario.base), note=lambda *_: None)
    except ValueError as error:
        line.refuse('settings in "brokerBase" with which a broker starts', str(error))
    return scenario


def _check_step(line: _Line, at: int, step: Any, ids: set[str]) -> None:
    if not isinstance(step, dict) or not isinstance(step.get("op"), str) or step["op"] not in FIELDS:
        line.refuse(f'step {at} to be an object with a known "op"', step)
    op = step["op"]
    for name, kind in FIELDS[op].items():
        if not _is(step.get(name), kind, _bits(name)):
            line.refuse(f'{_NAMES[kind]} in "{name}" of step {at}, {op}', step.get(name))
    for name, kind in _OPTIONAL.items():
        if step.get(name) is not None and not _is(step[name], kind, _bits(name)):
            line.refuse(f'{_NAMES[kind]} in "{name}" of step {at}, {op}', step[name])
    for name, most in _MOST.items():
        if _is(step.get(name), int) and not 0 <= step[name] <= most:
            line.refuse(f'0 to {most} in "{name}" of step {at}, {op}', step[name])
    if "id" in step and op in {"pull", "request"}:
        ids.add(str(step["id"]))
    if op in {"await", "expectNoResponse"} and step["id"] not in ids:
        line.refuse(f'the "id" of an earlier pull in "id" of step {at}, {op}', step["id"])
    if not isinstance(step.get("ext"), dict | None):
        line.refuse(f'an object or null in "ext" of step {at}, {op}', step["ext"])
    if op in _CHECKS:
        _CHECKS[op](line, at, step)


def _check_drain(line: _Line, at: int, step: Step) -> None:
    if not _is(step["ext"].get("queueOffset"), int):
        line.refuse(f'a whole number in "queueOffset" of the ext of step {at}, drain', step["ext"].get("queueOffset"))


def _check_send_back(line: _Line, at: int, step: Step) -> None:
    if not (_is(step.get("queueOffset"), int) or _is(step.get("physicalOffset"), int)):
        line.refuse(f'a whole number in "queueOffset" of step {at}, sendBack', step.get("queueOffset"))


def _check_settings(line: _Line, at: int, step: Step) -> None:
    values_of(line, f"step {at}, {step['op']}", step["set"])


def _is(value: object, kind: type, bits: int = 64) -> bool:
    if kind is not int:
        return isinstance(value, kind)
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _bits(name: str) -> int:
    return 64 if name in _LONGS else 32


def _check_group(line: _Line, at: int, step: Step) -> None:
    config = step.get("config") or {}
    known = _GROUP_FIELDS | GROUP_FIELDS_OF_5
    if not isinstance(config, dict) or not config.keys() <= known:
        line.refuse(f'an object in "config" of step {at}, group, with fields of {sorted(known)}', config)
    for name, value in config.items():
        kind = int if name in GROUP_FIELDS_OF_5 else type(SubscriptionGroupConfig.__dataclass_fields__[name].default)
        if not _is(value, kind, _bits(name)):
            line.refuse(f'{_NAMES[kind]} in "{name}" of step {at}, group', value)


def _check_messages(line: _Line, at: int, step: Step) -> None:
    messages = step.get("messages")
    if messages is None:
        if not _is(step.get("count"), int) or not isinstance(step.get("template"), dict):
            line.refuse(f'"messages", or "count" and "template", in step {at}, send', step)
        messages = [step["template"]]
    if not isinstance(messages, list):
        line.refuse(f'a list in "messages" of step {at}, send', messages)
    for message in messages:
        if isinstance(message, dict) and _is(message.get("bodySize"), int) and not 0 <= message["bodySize"] <= FRAME_MAX_LENGTH:
            line.refuse(f'0 to {FRAME_MAX_LENGTH} in "bodySize" of a message of step {at}, send', message["bodySize"])
        if not isinstance(message, dict):
            line.refuse(f"objects as the messages of step {at}, send", message)
        for name, kind in _MESSAGE.items():
            if message.get(name) is not None and not _is(message[name], kind, 32):
                line.refuse(f'{_NAMES[kind]} in "{name}" of a message of step {at}, send', message[name])
        if not all(isinstance(value, str) for value in (message.get("props") or {}).values()):
            line.refuse(f'texts in "props" of a message of step {at}, send', message["props"])
        properties = sent_properties(message)
        _check_further_queues(line, at, properties)
        _check_timer(line, at, properties)


def sent_properties(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a sent message as they reach the broker."""
    named = {"TAGS": message.get("tags"), "KEYS": message.get("keys")}
    return as_sent({name: value for name, value in named.items() if value is not None} | dict(message.get("props") or {}))


def _check_further_queues(line: _Line, at: int, properties: Mapping[str, str]) -> None:
    """Refuse what makes a broker stop dispatching: offsets that are no numbers, and in 5.5.0 another queue before a light one."""
    names, offsets = (properties.get(name, "") for name in (PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET))
    are_light = [name.startswith(LMQ_PREFIX) for name in split_queues(names)]
    if MULTI_DISPATCH.of(line.version).value.plain_topics_only and are_light != sorted(are_light, reverse=True):
        expected = f"names that begin with {LMQ_PREFIX} before others in {PROPERTY_INNER_MULTI_DISPATCH}"
        line.refuse(f"{expected} of a message of step {at}, send", names)
    if not is_blank(offsets) and not all(re.fullmatch(r"[0-9]{1,9}", one) for one in split_queues(offsets)):
        line.refuse(f"whole numbers below 10^9 in {PROPERTY_INNER_MULTI_QUEUE_OFFSET} of a message of step {at}, send", offsets)


def _check_timer(line: _Line, at: int, properties: Mapping[str, str]) -> None:
    """Refuse messages with properties of 5.5.0's timer, which `answer` does not have; some of them would be no timer messages."""
    found = [name for name in _TIMER_PROPERTIES if name in properties]
    if found and BrokerRules.of(line.version).has_timer:
        line.refuse(f"a message without properties of the timer of 5.x in step {at}, send", found[0])


def _check_subscriptions(line: _Line, at: int, step: Step) -> None:
    for one in step["subscriptions"]:
        if not isinstance(one, dict) or not _is(one.get("topic"), str) or not _is(one.get("subVersion"), int):
            line.refuse(f'a "topic" and a "subVersion" in each subscription of step {at}, heartbeat', one)
        text, kind, codes = one.get("subString"), one.get("expressionType"), one.get("codeSetOverride")
        if not isinstance(text, str | None) or not isinstance(kind, str | None):
            line.refuse(f'texts in "subString" and "expressionType" of a subscription of step {at}, heartbeat', one)
        if codes is not None and not (isinstance(codes, list) and all(_is(code, int, 32) for code in codes)):
            line.refuse(f'whole numbers in "codeSetOverride" of a subscription of step {at}, heartbeat', codes)
        try:
            if (text, kind) != ("", SQL92):  # no client sends this, but the recording harness does
                TopicSubscription.build(one["topic"], text, kind)
        except (SubscriptionError, SubscriptionParseError) as error:
            line.refuse(f"a subscription that a client can make in step {at}, heartbeat", str(error))


def typed_settings(given: Mapping[str, Any], version: BrokerVersion) -> dict[str, Value]:
    """Return the typed settings of a checked step under the rules of a version."""
    return values_of(_Line("", 0, version), "", given)


def values_of(line: _Line, where: str, given: Mapping[str, Any]) -> dict[str, Value]:
    """Return settings by the broker's names with typed values; raise RequestError for an unknown name or a wrong value."""
    catalogue = load_catalogue(line.version)
    found: dict[str, Value] = {}
    for name, value in given.items():
        if name not in catalogue:
            line.refuse(f"{where}: settings that broker {line.version.value} knows", name)
        found[name] = _value(line, catalogue[name], where, value)
        if name in _OTHER_DISPATCH and found[name]:
            line.refuse(f"{where}: {name} false, because with it a broker dispatches messages at other times", value)
    return found


def _value(line: _Line, setting: Setting, where: str, value: Any) -> Value:
    try:
        if isinstance(value, str):
            return setting.from_text(value, where)
        return setting.checked(value, where)
    except SettingsError as error:
        line.refuse(f"{where}, {setting.name}: {error.expected}", value)


_CHECKS: Mapping[str, Callable[[_Line, int, Step], None]] = {
    "brokerConfig": _check_settings,
    "storeConfig": _check_settings,
    "group": _check_group,
    "send": _check_messages,
    "heartbeat": _check_subscriptions,
    "drain": _check_drain,
    "sendBack": _check_send_back,
}
