"""Scenarios against the broker: every recorded answer, and what the steps refuse."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.requests.request_lines import RequestError
from pipeline.scenarios.scenario_file import FIELDS, scenario_of
from pipeline.scenarios.scenario_steps import take_steps
from tests.runs.scenario_answers import answered, answered_together, compared
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.places import DATA

BESIDE = [json.loads(line) for line in (DATA / "scenarios" / "recorded.jsonl").read_text("utf-8").splitlines()]
TOPIC = {"op": "topic", "topic": "T", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}
PULL = {"op": "pull", "ext": {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4}}


def results(*steps: dict[str, Any]) -> list[Any]:
    scenario = scenario_of("scenarios", 1, json.dumps({"steps": steps}))
    return [step.get("result") for _, step in take_steps(scenario, lambda *_: None)]


@pytest.mark.parametrize("case", BESIDE, ids=lambda case: case["name"])
def test_a_scenario_is_answered_as_the_broker_did(case: dict[str, Any]) -> None:
    assert compared(case, answered(case)) == []


@needs_golden
def test_all_recorded_scenarios_are_answered_as_the_broker_did() -> None:
    cases = list(golden_lines("broker", "pull_codes.jsonl"))
    differing = {old["name"]: found for old, new in zip(cases, answered_together(cases), strict=True) if (found := compared(old, new))}
    assert differing == {}
    assert len(cases) > 200


def test_a_pull_that_nobody_answers_says_so() -> None:
    # the second pass throws for maxMsgNums, and there nobody catches that
    pull = PULL | {"id": "p", "ext": PULL["ext"] | {"sysFlag": 6, "suspendTimeoutMillis": 0, "maxMsgNums": -1}}
    send = {"op": "send", "topic": "T", "queueId": 0, "messages": [{"tags": "a"}]}
    *_, told = results(TOPIC, {"op": "syncHoldTick"}, pull, send, {"op": "await", "id": "p"})
    assert told == {"noResponse": True, "waitedMs": 20_000, "connectionClosed": False}


def test_a_pull_without_its_commit_offset_is_held_and_answered_with_an_error_all_the_same() -> None:
    pull = PULL | {"id": "p", "ext": PULL["ext"] | {"sysFlag": 7, "suspendTimeoutMillis": 15_000}}
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
        ('{"steps": [{"op": "group", "group": "g", "config": {"x": 1}}]}', 'an object in "config" of step 1, group'),
        ('{"steps": [{"op": "send", "topic": "t", "queueId": 0}]}', '"messages", or "count" and "template", in step 1, send'),
        ('{"steps": [{"op": "send", "topic": "t", "queueId": 0, "messages": [{"tags": 1}]}]}', 'a text in "tags"'),
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
    with pytest.raises(RequestError):
        scenario_of("cases.jsonl", 1, json.dumps({"steps": [{"op": op}]}))


VALUES = [None, True, -1, 1, 2**31, 2**63, 10**30, 1.5, "", "x", "a@b", "*", "TAG", "SQL92", "\x00", "ü", "\ud800", [], {}, [1], {"a": 1}]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(one, (*at, key))


@pytest.mark.parametrize("seed", range(120))
def test_a_scenario_with_odd_values_is_refused_or_answered(seed: int) -> None:
    digits = random.Random(seed)
    case = json.loads(json.dumps(digits.choice(BESIDE)))
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
