"""The broker's checks of captured pulls by the rules of each version; expected codes are those of golden5's findings."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.capture.pull_checks import broker_config, check
from pipeline.settings.settings import BrokerSettings
from store_format.broker_version import BrokerVersion

PULL: dict[str, Any] = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 1,
    "expressionType": "TAG",
    "registration": None,
    "readQueueNums": 4,
    "perm": 6,
    "consumeEnable": True,
    "consumeBroadcastEnable": True,
}
V3, V8, V5 = BrokerVersion.V4_9_3, BrokerVersion.V4_9_8, BrokerVersion.V5_5_0
SLAVE = ("brokerRole=SLAVE", "brokerId=1")


@pytest.mark.parametrize(
    ("changed", "options", "codes"),
    [
        ({}, (), (None, None, None)),
        ({"queueId": 4}, (), (1, 1, 29)),
        ({}, SLAVE, (None, None, 2)),
        ({"perm": 2}, SLAVE, (16, 16, 2)),
        ({}, (*SLAVE, "slaveReadEnable=true"), (None, None, None)),
        # a pull with the suspend bit and no timeout
        ({"sysFlag": 6, "suspendTimeoutMillis": None}, (), (1, 1, None)),
        # a group that the broker does not know, asked of the brokers
        ({"consumerGroup": "a-b", "consumeEnable": None}, (), (None, None, None)),
        ({"consumerGroup": "a.b", "consumeEnable": None}, (), (None, None, 26)),
        ({"consumerGroup": "a.b"}, (), (None, None, None)),
    ],
)
def test_the_checks_are_those_of_the_version(changed: dict[str, Any], options: tuple[str, ...], codes: tuple[int | None, ...]) -> None:
    config = broker_config(BrokerSettings.from_sources(options=options), "b")
    assert tuple(check(config, PULL | changed, version).get("refusedCode") for version in (V3, V8, V5)) == codes


@pytest.mark.parametrize(
    ("changed", "enable_lmq", "codes"),
    [
        # topics.json and subscriptionGroup.json have neither
        ({}, False, (26, 17)),
        ({}, True, (None, None)),
        ({"queueId": 1}, True, (1, 1)),
    ],
)
def test_a_light_message_queue_is_a_topic_of_one_queue(changed: dict[str, Any], enable_lmq: bool, codes: tuple[int | None, ...]) -> None:
    options = [f"enableLmq={str(enable_lmq).lower()}", "autoCreateSubscriptionGroup=false"]
    config = broker_config(BrokerSettings.from_sources(options=options), "b")
    pull = PULL | {"topic": "%LMQ%dev", "readQueueNums": None, "perm": None} | changed
    of_group = pull | {"consumerGroup": "%LMQ%dev", "consumeEnable": None, "consumeBroadcastEnable": None}
    assert [check(config, one).get("refusedCode") for one in (of_group, pull)] == list(codes)


def test_an_expression_is_compiled_by_the_grammar_of_the_version() -> None:
    config = broker_config(BrokerSettings.from_sources(options=["enablePropertyFilter=true"]), "b")
    pull = PULL | {"expressionType": "SQL92", "subscription": "contains = 'x'"}
    told = [check(config, pull, version) for version in (V3, V5)]
    # what does not compile filters nothing
    assert [one["expression"] for one in told] == ["contains = 'x'", None]
