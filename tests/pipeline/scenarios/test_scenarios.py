"""Scenarios compared with every recorded answer of the broker, and steps that are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pipeline.requests.request_lines import RequestError
from pipeline.scenarios.scenario_file import FIELDS, scenario_of
from pipeline.scenarios.scenario_steps import take_steps
from store_format.broker_version import BrokerVersion
from tests.runs.scenario_answers import answered, answered_together, compared
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.golden5 import VERSIONS, needs_golden5, unpacked
from tests.truth.places import DATA

BESIDE, LIGHT = (
    [json.loads(line) for line in (DATA / "scenarios" / name).read_text("utf-8").splitlines()]
    for name in ("recorded.jsonl", "light_queues.jsonl")
)
TOPIC = {"op": "topic", "topic": "T", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}
ASKED = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4}
PULL: dict[str, Any] = {"op": "pull", "ext": ASKED}


def results(*steps: dict[str, Any]) -> list[Any]:
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": steps}))
    return [step.get("result") for _, step in take_steps(scenario, lambda *_: None)]


@pytest.mark.parametrize("case", BESIDE, ids=lambda case: case["name"])
def test_a_scenario_is_answered_as_the_broker_did(case: dict[str, Any]) -> None:
    assert compared(case, answered(case)) == []


@pytest.mark.parametrize("case", LIGHT, ids=lambda case: case["name"])
def test_light_queues_and_their_groups_are_answered_as_the_broker_did(case: dict[str, Any]) -> None:
    # times were not recorded
    assert compared(case, answered(case), ("timing", "heldSeconds")) == []


@needs_golden
def test_all_recorded_scenarios_are_answered_as_the_broker_did() -> None:
    cases = list(golden_lines("broker", "pull_codes.jsonl"))
    differing = {old["name"]: found for old, new in zip(cases, answered_together(cases), strict=True) if (found := compared(old, new))}
    assert differing == {}
    assert len(cases) > 200


# a sweep 1300 ms after the pull and 700 ms after the last step: the recording called it late in 5.5.0, and not late in 4.9.3
TIES = {"4.9.8": set(), "5.5.0": {"short_polling_arrival_only_at_tick"}}


@needs_golden5
@pytest.mark.parametrize("version", VERSIONS)
def test_all_scenarios_are_answered_as_a_later_version_did(version: str) -> None:
    path = unpacked("on-4.9.3-stores") / "on-4.9.3-stores" / version / "broker" / "pull_codes.jsonl"
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    ours = answered_together(cases, BrokerVersion(version))
    differing = {old["name"] for old, new in zip(cases, ours, strict=True) if compared(old, new)}
    assert differing == TIES[version]
    assert len(cases) > 200


# asked of the broker 5.5.0: four properties more, WAIT kept, what UPDATE_CONSUMER_OFFSET refuses
PROPERTIES = {"CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_broker_5_5_0_adds_properties_and_refuses_commits() -> None:
    sent = [{"tags": "TagA"}, {"tags": "TagB", "props": {"UNIQ_KEY": "abc", "MSG_REGION": "mine", "TRACE_ON": "false"}}]
    steps = [
        TOPIC,
        {"op": "group", "group": "G"},
        {"op": "send", "topic": "T", "queueId": 0, "messages": [*sent, {"keys": "k", "props": {"WAIT": "false"}}]},
        {"op": "readStored", "topic": "T", "queueId": 0},
        *({"op": "request", "code": code} for code in (200050, 200051, 200052)),
        *(
            {"op": "request", "code": 15, "ext": ext}
            for ext in (
                {"consumerGroup": "G", "topic": "none", "queueId": 0, "commitOffset": 5},
                {"consumerGroup": "G", "topic": "T", "queueId": 9, "commitOffset": 5},
                {"consumerGroup": "G", "topic": "T", "commitOffset": 5},
                {"consumerGroup": "G", "topic": "T", "queueId": 0},
                {"consumerGroup": "H", "topic": "T", "queueId": 0, "commitOffset": 5},
                {"consumerGroup": "H", "queueId": 0, "commitOffset": 5},
                {"topic": "T", "queueId": 0, "commitOffset": 5},
            )
        ),
    ]
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": steps}), BrokerVersion.V5_5_0)
    told: list[Any] = [step.get("result") for _, step in take_steps(scenario, lambda *_: None)]
    first, second, third = told[3]
    assert (first["storeSize"], second["storeSize"], third["storeSize"]) == (234, 181, 242)
    assert {name: value for name, value in second["properties"].items() if name != "TAGS"} == PROPERTIES | {"UNIQ_KEY": "abc"}
    assert (len(first["properties"]["UNIQ_KEY"]), third["properties"]["WAIT"]) == (56, "false")
    assert [one["code"] for one in told[4:]] == [1, 1, 1, 17, 0, 29, 29, 26, 1, 26]
    assert [one["version"] for one in told[4:]] == [513] * 10


def results_of(version: str, steps: Sequence[dict[str, Any]]) -> list[Any]:
    """The results of steps in a broker of their own that has the topic T."""
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": [TOPIC, *steps]}), BrokerVersion(version))
    return [step.get("result") for _, step in take_steps(scenario, lambda *_: None)][1:]


def sending(properties: dict[str, str], **message: int) -> dict[str, Any]:
    return {"op": "send", "topic": "T", "queueId": 0, "messages": [{"tags": "a", "props": properties, **message}]}


HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


# asked of the three brokers
@pytest.mark.parametrize("version", ["4.9.3", "4.9.8", "5.5.0"])
def test_a_message_of_a_transaction_is_a_half_message(version: str) -> None:
    sends = [sending({"TRAN_MSG": value}) for value in ("true", "TRUE", " true", "1")]
    forbidden = [{"op": "brokerConfig", "set": {"rejectTransactionMessage": True}}, sending({"TRAN_MSG": "true"})]
    ranges = [{"op": "queueRange", "topic": topic, "queueId": 0} for topic in ("T", HALF)]
    found = results_of(version, [*sends, *forbidden, *ranges, {"op": "readStored", "topic": HALF, "queueId": 0, "last": 1}])
    assert [one["queueOffsets"] for one in found[:4]] == [[0], [1], [0], [1]]
    assert [one["code"] for one in found[5]["errors"]] == [16]
    assert [one["max"] for one in found[6:8]] == [2, 2]
    (half,) = found[8]
    assert {name: half["properties"][name] for name in ("REAL_TOPIC", "REAL_QID", "TRAN_MSG")} == {
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "TRAN_MSG": "TRUE",
    }
    assert half["properties"].get("__transactionId__") == (half["properties"]["UNIQ_KEY"] if version == "5.5.0" else None)


# asked of the three brokers: what is in T and in the half topic when all delays are over
@pytest.mark.parametrize(("version", "maxima"), [("4.9.3", [0, 1]), ("4.9.8", [0, 1]), ("5.5.0", [1, 1])])
def test_a_delayed_half_message_is_discarded(version: str, maxima: list[int]) -> None:
    sends = [
        sending({"TRAN_MSG": "true"} | delay, reconsumeTimes=times) for delay, times in (({"DELAY": "1"}, 0), ({"DELAY": "1"}, 1), ({}, 1))
    ]
    ranges = [{"op": "queueRange", "topic": topic, "queueId": 0} for topic in ("T", HALF)]
    found = results_of(version, [*sends, {"op": "sleep", "ms": 3000}, *ranges])
    assert [one["max"] for one in found[-2:]] == maxima


# asked of the broker 5.5.0
def test_5_5_0_takes_pop_ck_away() -> None:
    sizes = {}
    for version in ("4.9.8", "5.5.0"):
        *_, stored = results_of(version, [sending({"POP_CK": "1 2", "k": "2"}), {"op": "readStored", "topic": "T", "queueId": 0}])
        sizes[version] = {"k", "POP_CK"} & stored[0]["properties"].keys()
    assert sizes == {"4.9.8": {"k", "POP_CK"}, "5.5.0": {"k"}}


def beat(topics: Sequence[str], fingerprint: int, *, without_sub: bool, group: str = "G") -> dict[str, Any]:
    subscriptions = [{"topic": topic, "subString": "*", "subVersion": 5, "tagsSet": [], "codeSet": []} for topic in topics]
    of_group = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "subscriptionDataSet": subscriptions}
    told = {"clientID": "c", "consumerDataSet": [of_group], "heartbeatFingerprint": fingerprint, "withoutSub": without_sub}
    return {"op": "request", "code": 34, "ext": {}, "body": json.dumps(told)}


# asked of the brokers
@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_the_retry_topic_of_a_group_in_unit_mode_has_its_flag(version: str) -> None:
    body = json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "unitMode": True}]})
    steps: list[dict[str, Any]] = [{"op": "request", "code": 34, "ext": {}, "body": body}, {"op": "topicConfig", "topic": "%RETRY%G"}]
    assert results_of(version, steps)[1]["topicSysFlag"] == 2


# asked of the brokers: whether IS_SUB_CHANGE is true, and the topics of the group then
@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("4.9.3", [(None, ["T"]), (None, []), (None, []), (None, ["T", "U"]), (None, [])]),
        ("5.5.0", [("false", ["T"]), ("false", ["T"]), ("true", ["T"]), ("true", ["T", "U"]), ("true", [])]),
    ],
)
def test_a_heartbeat_without_subscriptions_keeps_them_in_5_5_0(version: str, told: list[tuple[str | None, list[str]]]) -> None:
    beats = [
        beat(["T"], 7, without_sub=False),
        beat([], 7, without_sub=True),
        beat([], 8, without_sub=True),
        beat(["T", "U"], 9, without_sub=False),
        beat([], 0, without_sub=True),
    ]
    found = results_of(version, [step for one in beats for step in (one, {"op": "groupState", "group": "G"})])
    changes = [(one["ext"] or {}).get("IS_SUB_CHANGE") for one in found[::2]]
    assert [(change, sorted(state["subscriptions"])) for change, state in zip(changes, found[1::2], strict=True)] == told


# asked of the three brokers: codes of a pull, of a pull after a heartbeat, of what is sent back, of a send to the retry topic (0: taken)
USES = [
    PULL,
    {"op": "heartbeat", "clientId": "c", "group": "G", "subscriptions": [{"topic": "T", "subString": "*", "subVersion": 1}]},
    PULL | {"ext": ASKED | {"sysFlag": 0, "subVersion": 1}},
    {"op": "sendBack", "group": "G", "originTopic": "T", "queueId": 0, "queueOffset": 0, "delayLevel": 3},
    {"op": "send", "topic": "%RETRY%G", "queueId": 0, "messages": [{}]},
]


def codes_of(group: str, version: str, first: Sequence[dict[str, Any]] = ()) -> list[int]:
    """The codes of USES with another group, in a broker of its own."""
    named = json.loads(json.dumps(USES).replace('"G"', f'"{group}"').replace("%RETRY%G", f"%RETRY%{group}"))
    send = {"op": "send", "topic": "T", "queueId": 0, "messages": [{"tags": "a"}]}
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": [TOPIC, send, *first, *named]}), BrokerVersion(version))
    told: list[Any] = [step.get("result") for _, step in take_steps(scenario, lambda *_: None)][2 + len(first) :]
    return [one["code"] if "code" in one else one.get("errors", [{"code": 0}])[0]["code"] for one in told if one is not None]


@pytest.mark.parametrize(
    ("group", "version", "codes"),
    [
        ("ok", "5.5.0", [0, 0, 0, 0, 0]),
        ("a.b", "4.9.3", [0, 0, 0, 0, 1]),
        ("a.b", "4.9.8", [0, 0, 0, 0, 1]),
        ("a.b", "5.5.0", [26, 0, 26, 26, 29]),
        ("g" * 121, "4.9.3", [0, 0, 0, 1, 1]),
        ("g" * 121, "4.9.8", [0, 0, 0, 1, 1]),
        ("g" * 121, "5.5.0", [26, 0, 26, 26, 26]),
    ],
)
def test_5_5_0_knows_no_group_that_it_gives_no_configuration(group: str, version: str, codes: list[int]) -> None:
    assert codes_of(group, version) == codes


def test_5_5_0_takes_messages_to_long_retry_topics_of_groups_with_a_configuration() -> None:
    assert codes_of("g" * 121, "5.5.0", [{"op": "group", "group": "g" * 121}]) == [0, 0, 0, 0, 0]


# asked of the three brokers
@pytest.mark.parametrize(("version", "broker_id", "code"), [("4.9.3", 1, 0), ("4.9.8", 1, 0), ("5.5.0", 0, 0), ("5.5.0", 1, 1)])
def test_5_5_0_takes_messages_back_only_as_a_master(version: str, broker_id: int, code: int) -> None:
    send = {"op": "send", "topic": "T", "queueId": 0, "messages": [{}]}
    settings = {"op": "brokerConfig", "set": {"brokerId": broker_id}}
    assert results_of(version, [send, settings, USES[3]])[2]["code"] == code


def registered(consume_type: str, client: str = "c1") -> dict[str, Any]:
    subscriptions = [{"topic": "T", "subString": "*", "subVersion": 1}]
    beat = {"op": "heartbeat", "client": client, "clientId": client, "group": "G", "subscriptions": subscriptions}
    return beat | {"consumeType": consume_type}


def pulls_of(client: str = "c1", group: str = "G") -> list[dict[str, Any]]:
    """A pull by the registration, one with its own subscription, and a LITE_PULL_MESSAGE."""
    own = ASKED | {"consumerGroup": group, "sysFlag": 4, "subVersion": 1}
    by_registration = {"op": "pull", "client": client, "ext": own | {"sysFlag": 0}}
    return [by_registration, {"op": "pull", "client": client, "ext": own}, {"op": "request", "client": client, "code": 361, "ext": own}]


# asked of 5.5.0
@pytest.mark.parametrize(
    ("first", "pulls", "codes"),
    [
        ([{"op": "brokerConfig", "set": {"litePullMessageEnable": False}}, registered("CONSUME_PASSIVELY")], pulls_of(), [19, 19, 16]),
        ([{"op": "brokerConfig", "set": {"rejectPullConsumerEnable": True}}, registered("CONSUME_PASSIVELY")], pulls_of("c2"), [19] * 3),
        ([{"op": "brokerConfig", "set": {"rejectPullConsumerEnable": True}}, registered("CONSUME_ACTIVELY")], pulls_of(), [24] * 3),
        ([{"op": "brokerConfig", "set": {"rejectPullConsumerEnable": True}}], pulls_of(group="DEFAULT_CONSUMER"), [24, 19, 19]),
        ([{"op": "brokerConfig", "set": {"rejectPullConsumerEnable": True}}], pulls_of(group="CID_RMQ_SYS_x"), [24, 19, 19]),
        ([registered("CONSUME_ACTIVELY"), {"op": "brokerConfig", "set": {"rejectPullConsumerEnable": True}}], pulls_of(), [19] * 3),
        ([registered("CONSUME_ACTIVELY"), {"op": "brokerConfig", "set": {"rejectPullConsumerEnable": True}}], pulls_of("c2"), [24] * 3),
    ],
)
def test_5_5_0_may_refuse_clients_that_pull_of_their_own_accord(first: list[Any], pulls: list[Any], codes: list[int]) -> None:
    assert [one["code"] for one in results_of("5.5.0", [*first, *pulls])[len(first) :]] == codes


# asked of 4.9.3 and 5.5.0
def test_5_5_0_forbids_a_group_to_pull_a_topic() -> None:
    forbid = {"op": "request", "code": 353, "ext": {"group": "G", "topic": "T", "readable": "false"}}
    steps = [
        registered("CONSUME_PASSIVELY"),
        forbid,
        *pulls_of(),
        forbid | {"ext": {"group": "G", "topic": "T", "readable": "true"}},
        *pulls_of(),
    ]
    found = results_of("5.5.0", steps)
    assert found[1]["bodyText"] == '{"group":"G","readable":false,"topic":"T"}'
    assert [one["code"] for one in found[1:]] == [0, 16, 19, 19, 0, 19, 19, 19]
    assert found[2]["ext"] == {"forbiddenType": "5"}
    assert [one["code"] for one in results_of("4.9.3", [forbid, *steps[:1], *pulls_of()])] == [3, 0, 19, 19, 3]


# asked of 4.9.8 and 5.5.0
@pytest.mark.parametrize(
    ("code", "field", "codes"),
    [
        (14, {"setZeroIfNotFound": "false"}, (0, 22)),
        (14, {"setZeroIfNotFound": "x"}, (0, 22)),
        (14, {"setZeroIfNotFound": "TRUE"}, (0, 0)),
        (11, {"maxMsgBytes": "x"}, (0, 1)),
        (11, {"requestSource": "x"}, (0, 1)),
        (11, {"maxMsgBytes": 1}, (0, 0)),
    ],
)
def test_5_5_0_reads_fields_that_4_9_does_not_know(code: int, field: dict[str, Any], codes: tuple[int, int]) -> None:
    asked = {"op": "request", "code": code, "ext": ASKED | {"consumerGroup": "new", "sysFlag": 4, "subVersion": 1} | field}
    assert tuple(results_of(version, [sending({}), asked])[1]["code"] for version in ("4.9.8", "5.5.0")) == codes


# asked of 5.5.0
@pytest.mark.parametrize(("boundary", "offset"), [("UPPER", 2), ("upper", 2), ("LOWER", 3), ("x", 3)])
def test_a_search_of_5_5_0_is_for_a_boundary(boundary: str, offset: int) -> None:
    search = {"op": "request", "code": 29, "ext": {"topic": "T", "queueId": 0, "timestamp": 9_999_999_999_999, "boundaryType": boundary}}
    assert results_of("5.5.0", [*[sending({})] * 3, search])[3]["ext"]["offset"] == str(offset)


def test_the_history_of_a_group_has_its_forbidden_topics() -> None:
    of_group = {"group": "G", "topic": "T"}
    forbid, allow = ({"op": "request", "code": 353, "ext": of_group | {"readable": readable}} for readable in ("false", "true"))
    steps = [{"op": "group", "group": "G"}, forbid, {"op": "group", "group": "G"}, allow]
    noted: list[tuple[str, Any]] = []
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": steps}), BrokerVersion.V5_5_0)
    list(take_steps(scenario, lambda _at, kind, row: noted.append((kind, row.get("forbiddenTopics")))))
    assert [topics for kind, topics in noted if kind == "subscription_group"] == [None, ["T"], ["T"], None]


# asked of 5.5.0
def test_an_answer_of_5_5_0_has_the_groups_flag() -> None:
    steps = [{"op": "group", "group": "G", "config": {"groupSysFlag": 3}}, PULL]
    assert results_of("5.5.0", steps)[1]["ext"]["groupSysFlag"] == "3"


# asked of 5.5.0
def test_messages_of_5_5_0_name_the_brokers_region_and_whether_it_is_traced() -> None:
    settings = {"op": "brokerConfig", "set": {"regionId": "r", "traceOn": False}}
    found = results_of("5.5.0", [settings, sending({}), {"op": "readStored", "topic": "T", "queueId": 0, "last": 1}])
    assert {name: found[2][0]["properties"][name] for name in ("MSG_REGION", "TRACE_ON")} == {"MSG_REGION": "r", "TRACE_ON": "false"}


# asked of the three brokers
@pytest.mark.parametrize(("version", "limit", "code"), [("4.9.3", 200, 0), ("4.9.8", 200, 13), ("5.5.0", 200, 13), ("5.5.0", 9, 0)])
def test_a_change_of_the_greatest_message_counts_from_4_9_8_on(version: str, limit: int, code: int) -> None:
    send = {"op": "send", "topic": "T", "queueId": 0, "messages": [{"bodySize": 320}]}
    found = results_of(version, [send, {"op": "storeConfig", "set": {"maxMessageSize": limit}}, send])
    assert found[2].get("errors", [{"code": 0}])[0]["code"] == code


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(RequestError, match='in "rulesVersion" of "brokerBase"'):
        scenario_of("scenarios", 1, json.dumps({"brokerBase": {"rulesVersion": "5.0"}, "steps": []}))


def test_a_pull_that_nobody_answers_says_so() -> None:
    # the second pass throws for maxMsgNums, and there nobody catches that
    pull = PULL | {"id": "p", "ext": ASKED | {"sysFlag": 6, "suspendTimeoutMillis": 0, "maxMsgNums": -1}}
    send = {"op": "send", "topic": "T", "queueId": 0, "messages": [{"tags": "a"}]}
    *_, told = results(TOPIC, {"op": "syncHoldTick"}, pull, send, {"op": "await", "id": "p"})
    assert told == {"noResponse": True, "waitedMs": 20_000, "connectionClosed": False}


def test_a_pull_without_its_commit_offset_is_held_and_answered_with_an_error_all_the_same() -> None:
    pull = PULL | {"id": "p", "ext": ASKED | {"sysFlag": 7, "suspendTimeoutMillis": 15_000}}
    *_, told, held = results(TOPIC, pull, {"op": "await", "id": "p"}, {"op": "holdCount", "topic": "T", "queueId": 0})
    assert (told["code"], told["ext"], told["timing"], held) == (1, None, "immediate", {"held": 1})


def test_time_goes_on_by_what_the_steps_wait() -> None:
    steps = [{"op": "sleep", "ms": 70}, TOPIC, {"op": "syncHoldTick"}, PULL]
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": steps}))
    times = [at for at, _ in take_steps(scenario, lambda *_: None)]
    assert [at - times[0] for at in times] == [0, 0, 100, 100]


def test_an_administrators_request_that_is_not_known_here_says_so() -> None:
    assert results({"op": "request", "code": 25})[0]["error"] == "UNSUPPORTED"
    assert results({"op": "request", "code": 4711})[0]["code"] == 3


def sent(version: str, **props: str) -> str:
    """A scenario in which a message with some properties is sent to a broker of a version."""
    step = {"op": "send", "topic": "t", "queueId": 0, "messages": [{"props": props}]}
    return json.dumps({"brokerBase": {"rulesVersion": version}, "steps": [step]})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "a JSON object"),
        ("[]", "a JSON object"),
        ("{}", 'a list in "steps"'),
        ('{"steps": [{}]}', 'step 1 to be an object with a known "op"'),
        ('{"steps": [{"op": "fly"}]}', 'step 1 to be an object with a known "op"'),
        ('{"steps": [{"op": "syncHoldTick"}, {"op": "sleep"}]}', 'a whole number in "ms" of step 2, sleep'),
        ('{"steps": [{"op": "sleep", "ms": true}]}', 'a whole number in "ms" of step 1, sleep'),
        ('{"steps": [{"op": "await", "id": "p"}]}', 'the "id" of an earlier pull in "id" of step 1, await'),
        ('{"steps": [{"op": "pull", "ext": 3}]}', 'an object or null in "ext" of step 1, pull'),
        ('{"steps": [{"op": "brokerConfig", "set": {"nope": 1}}]}', "step 1, brokerConfig: settings that broker 4.9.3 knows"),
        ('{"steps": [], "brokerBase": {"brokerPermission": "x"}}', "brokerBase, brokerPermission: an int"),
        ('{"steps": [], "brokerBase": {"duplicationEnable": true}}', "brokerBase: duplicationEnable false"),
        ('{"steps": [{"op": "group", "group": "g", "config": {"x": 1}}]}', 'an object in "config" of step 1, group'),
        ('{"steps": [{"op": "send", "topic": "t", "queueId": 0}]}', '"messages", or "count" and "template", in step 1, send'),
        ('{"steps": [{"op": "send", "topic": "t", "queueId": 0, "messages": [{"tags": 1}]}]}', 'a text in "tags"'),
        (sent("5.5.0", INNER_MULTI_DISPATCH="%LMQ%a,b,%LMQ%c"), "names that begin with %LMQ% before others in INNER_MULTI_DISPATCH"),
        (sent("5.5.0", p="x\x02INNER_MULTI_QUEUE_OFFSET\x01abc"), "whole numbers below 10^9 in INNER_MULTI_QUEUE_OFFSET"),
        (sent("4.9.3", INNER_MULTI_QUEUE_OFFSET="1,x"), "whole numbers below 10^9 in INNER_MULTI_QUEUE_OFFSET"),
        ('{"steps": [{"op": "drain", "ext": {}}]}', 'a whole number in "queueOffset"'),
        (
            '{"steps": [{"op": "heartbeat", "clientId": "c", "group": "g", "subscriptions": [{"topic": "t"}]}]}',
            'a "topic" and a "subVersion"',
        ),
    ],
)
def test_a_line_that_is_no_scenario_is_named(line: str, expected: str) -> None:
    with pytest.raises(RequestError) as raised:
        scenario_of("cases.jsonl", 17, line)
    assert (raised.value.path, raised.value.line) == ("cases.jsonl", 17)
    assert raised.value.expected.startswith(expected)


@pytest.mark.parametrize("op", [op for op, fields in FIELDS.items() if fields])
def test_a_step_without_its_fields_is_refused(op: str) -> None:
    with pytest.raises(RequestError, match=f"of step 1, {op}, found null"):
        scenario_of("cases.jsonl", 1, json.dumps({"steps": [{"op": op}]}))


VALUES = [None, True, -1, 1, 2**31, 2**63, 10**30, 1.5, "", "x", "a@b", "*", "TAG", "SQL92", "\x00", "ü", "\ud800", [], {}, [1], {"a": 1}]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values within a JSON value."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(one, (*at, key))


@pytest.mark.parametrize("seed", range(120))
def test_a_scenario_with_odd_values_is_refused_or_answered(seed: int) -> None:
    digits = random.Random(seed)
    case = json.loads(json.dumps(digits.choice(BESIDE + LIGHT)))
    where = digits.choice([at for at in places(case) if "result" not in at])
    *above, last = where
    holder = case
    for key in above:
        holder = holder[key]
    if digits.random() < 0.2 and isinstance(holder, dict):
        del holder[last]
    else:
        holder[last] = digits.choice(VALUES)
    try:
        scenario = scenario_of("cases.jsonl", 1, json.dumps(case))
    except RequestError:
        return
    assert len(list(take_steps(scenario, lambda *_: None))) == len(case["steps"])
