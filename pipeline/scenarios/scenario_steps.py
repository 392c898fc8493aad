"""Run the steps of a scenario against its broker; each step gets its result, in the form of the recorded results.

A step takes the time that the recording harness waits in it: `sleep`, a forced sweep (100 ms), the wait for an answer. The broker's own
work takes no time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from pipeline.scenarios import scenario_clients, scenario_messages, scenario_pulls
from pipeline.scenarios.scenario_file import GROUP_FIELDS_OF_5, Scenario, Step, typed_settings
from pipeline.scenarios.scenario_run import Run
from pipeline.scenarios.scenario_settings import memory_settings
from pipeline.settings.settings import RULES_VERSION
from store_format.broker_version import BrokerVersion
from store_format.config.config_rows import SubscriptionGroupConfig, TopicConfig
from udfs.broker.broker_rules import BrokerRules
from udfs.broker.memory_broker import MemoryBroker, Note
from udfs.broker.memory_store import EMPTY_LOG, LogExtent

_CONFIG_TICK_MS = 50
_GROUP_SHOWN = (
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
)
_TOPIC_SHOWN = ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag", "order")


def take_steps(scenario: Scenario, note: Note, log: LogExtent = EMPTY_LOG) -> Iterator[tuple[int, Step]]:
    """Run a scenario; yield (time of its end in ms, step with its result) for each step, which is changed in place.

    `log` is the commit log that the broker starts with; scenarios with the same settings share it.
    """
    run = Run(MemoryBroker(settings=memory_settings(scenario.base), note=note, log=log))
    for step in scenario.steps:
        step.pop("result", None)
        _OPS[step["op"]](run, step)
        _in_the_version(step, run.broker.settings.rules)
        yield run.broker.now, step


def _in_the_version(step: Step, rules: BrokerRules) -> None:
    """If a step's result is an answer, put the broker's version and the form of the answer's header into it."""
    result = step.get("result")
    if isinstance(result, dict) and "serializeType" in result:
        result["version"] = rules.remoting.version
        if rules.remoting.in_the_requests_form and step.get("serializeType") is not None:
            result["serializeType"] = step["serializeType"]


def configure(run: Run, step: Step) -> None:
    """The steps `brokerConfig` and `storeConfig`."""
    run.broker.set(typed_settings(step["set"], BrokerVersion(run.broker.settings.value(RULES_VERSION))))
    if step["op"] == "brokerConfig" and "longPollingEnable" in step["set"]:
        run.broker.sweep()
        run.broker.advance(run.broker.now + _CONFIG_TICK_MS)


def set_topic(run: Run, step: Step) -> None:
    """The step `topic`."""
    config = TopicConfig(
        topicName=step["topic"], readQueueNums=step["readQueueNums"], writeQueueNums=step["writeQueueNums"], perm=step["perm"]
    )
    run.broker.topics.update_topic_config(config)


def set_group(run: Run, step: Step) -> None:
    """The step `group`."""
    given = dict(step.get("config") or {})
    of_5 = {name: given.pop(name) for name in GROUP_FIELDS_OF_5 & given.keys()}
    config = SubscriptionGroupConfig(groupName=step["group"], extra=json.dumps(of_5) if of_5 else "", **given)
    run.broker.groups.update_subscription_group_config(config)


def group_config(run: Run, step: Step) -> None:
    """The step `groupConfig`."""
    found = run.broker.groups.subscription_group_table.get(step["group"])
    step["result"] = None if found is None else {name: getattr(found, name) for name in _GROUP_SHOWN}


def topic_config(run: Run, step: Step) -> None:
    """The step `topicConfig`."""
    found = run.broker.topics.select_topic_config(step["topic"])
    step["result"] = None if found is None else {name: getattr(found, name) for name in _TOPIC_SHOWN}


def store_readable(run: Run, step: Step) -> None:
    """The step `storeReadable`."""
    run.broker.set({"readable": step["value"]})


def consumer_offset(run: Run, step: Step) -> None:
    """The step `consumerOffset`."""
    step["result"] = {"offsetTable": run.broker.offsets.query_offset(step["group"], step["topic"], step["queueId"])}


_OPS: Mapping[str, Callable[[Run, Step], None]] = {
    "brokerConfig": configure,
    "storeConfig": configure,
    "topic": set_topic,
    "group": set_group,
    "groupConfig": group_config,
    "topicConfig": topic_config,
    "send": scenario_messages.send_messages,
    "heartbeat": scenario_clients.send_heartbeat,
    "unregister": scenario_clients.send_unregister,
    "disconnect": scenario_clients.disconnect,
    "pull": scenario_pulls.send_request,
    "request": scenario_pulls.send_request,
    "drain": scenario_pulls.drain,
    "await": scenario_pulls.await_answer,
    "expectNoResponse": scenario_pulls.expect_no_response,
    "sleep": scenario_pulls.sleep,
    "syncHoldTick": scenario_pulls.sync_hold_tick,
    "holdCount": scenario_pulls.hold_count,
    "minOffset": scenario_messages.min_offset,
    "storeReadable": store_readable,
    "consumerOffset": consumer_offset,
    "queueRange": scenario_messages.queue_range,
    "readStored": scenario_messages.read_stored,
    "filterState": scenario_clients.filter_state,
    "groupState": scenario_clients.group_state,
    "pushedRequests": scenario_clients.pushed_requests,
    "deleteCommitLogHead": scenario_messages.delete_log_head,
    "deleteConsumeQueueHead": scenario_messages.delete_queue_head,
    "replicate": scenario_messages.replicate,
    "sendBack": scenario_messages.send_message_back,
    "findLast": scenario_messages.find_last,
}
