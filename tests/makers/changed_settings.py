"""Scenarios that change one setting of a running broker each, and then do what its answers may depend on."""

from __future__ import annotations

from typing import Any

from pipeline.settings.settings import load_catalogue, section_of
from store_format.broker_version import BrokerVersion

Step = dict[str, Any]
_SECTIONS = ("MessageStoreConfig", "BrokerConfig")
# changes that a running broker does not survive, or answers by the state of its threads and buffers
_BREAKING = (
    *("maxMessageSize", "mappedFile", "mapperFile", "waitTimeMills", "transientStorePool", "duplicationEnable", "DLeger", "brokerRole"),
    *("OffsetUpdateVersionStep", "enableControllerMode", "enableSlaveActingMaster", "aclEnable"),
)
# changes after which a broker asks a name server, and there is none
_ASKING = ("enableSingleTopicRegister", "ListenPort", "listenPort", "cleanOfflineBrokerInterval")


def changes(version: BrokerVersion) -> list[tuple[str, Any, Any]]:
    """(name, new value, default) of each setting of a version that has a default: the other boolean, 0 and 1."""
    known = load_catalogue(version).values()
    ours = {name for name in load_catalogue(BrokerVersion.V4_9_3) if section_of(name) not in _SECTIONS}
    asked = [one for one in known if one.name not in ours and not any(part in one.name for part in _BREAKING + _ASKING)]
    values: dict[str, list[Any]] = {"boolean": [True, False], "int": [0, 1], "long": [0, 1]}
    pairs = [(one, value) for one in asked if one.default is not None for value in values.get(one.type, [])]
    return [(one.name, value, one.default) for one, value in pairs if value != one.default]


def changed_setting(number: int, op: str, name: str, value: Any, default: Any) -> dict[str, Any]:
    """The scenario that changes a setting by the step `op`, asks, and changes it back; `number` makes its topic and group unique."""
    topic, group, client = f"Changed{number}", f"changed{number}", f"c{number}"
    own = {"topic": topic, "consumerGroup": group, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0}
    own |= {"suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1, "expressionType": "TAG"}
    subscription = {"topic": topic, "subString": "a", "expressionType": "TAG", "subVersion": 1, "tagsSet": ["a"], "codeSet": [97]}
    asked: list[dict[str, Any]] = [{}, {"subscription": "b"}, {"sysFlag": 0}, {"sysFlag": 5, "commitOffset": 3}, {"maxMsgNums": 1}]
    asked += [{"queueOffset": offset} for offset in (5, 7, 99, -1)] + [{"queueId": queue} for queue in (1, 2)]
    asked += [{"expressionType": "SQL92", "subscription": "k = '1'"}, {"topic": f"no{topic}"}, {"consumerGroup": f"no{group}"}]
    back = {"op": "sendBack", "group": group, "originTopic": topic, "queueId": 0}
    messages = [{"tags": tag, "props": {"k": "1"}} for tag in ("a", "b", None, "a", "b")]
    steps: list[Step] = [
        {"op": "topic", "topic": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6},
        {"op": "group", "group": group},
        {"op": op, "set": {name: value}},
        {"op": "send", "topic": topic, "queueId": 0, "messages": messages},
        {"op": "heartbeat", "client": client, "clientId": client, "group": group, "subscriptions": [subscription]},
        *({"op": "pull", "client": client, "ext": own | one} for one in asked),
        {"op": "request", "client": client, "code": 361, "ext": own},
        {"op": "pull", "id": "held", "client": client, "ext": own | {"sysFlag": 6, "queueOffset": 5, "suspendTimeoutMillis": 400}},
        {"op": "send", "topic": topic, "queueId": 0, "messages": [{"tags": "a"}]},
        {"op": "await", "id": "held"},
        *({"op": "request", "client": client, "code": code, "ext": own | {"timestamp": 0}} for code in (14, 29, 30, 31, 38)),
        *(back | {"queueOffset": offset, "delayLevel": level} for offset, level in ((0, 0), (1, -1))),
        {"op": "queueRange", "topic": f"%DLQ%{group}", "queueId": 0},
        {"op": "topicConfig", "topic": f"%RETRY%{group}"},
        {"op": "filterState", "group": group, "topic": topic},
        {"op": op, "set": {name: default}},
    ]
    return {"name": f"{name}={value}", "steps": steps}
