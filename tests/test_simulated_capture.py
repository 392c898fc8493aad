"""Simulated groups against captured ones: groups of a captured run on the messages that it had, started and stopped as they were.

What came, who was there when and what each listener got is what the broker's process and the clients logged. Times of simulated and real
threads differ, and the real listeners failed on messages of their own; which messages came to whom, who had which queue, and where the
offsets ended do not depend on that.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captured import consumer_offsets, exchanges, unpack
from golden import needs_golden

from udfs.consumer.push_consumer import MessageModel, PushConsumer
from udfs.message_queue import MessageQueue
from udfs.simulation import world as at
from udfs.simulation.arrivals import ALL_MATCH
from udfs.simulation.group_engine import GroupEngine, Told
from udfs.simulation.group_plan import SECOND, ClientPlan, GroupPlan, Listener, Recorded
from udfs.simulation.group_run import GroupRun, Rebalanced
from udfs.tags import parse_subscription

pytestmark = needs_golden
HEART_BEAT, PULL_MESSAGE = 34, 11
Message = tuple[int, int]  # queue and offset


@dataclass(frozen=True)
class Group:
    """A captured group: its role and that of its topic in the scenario, and how it consumes."""

    role: str
    topic_role: str
    broadcasts: bool = False
    orderly: bool = False


MAIN = Group("main", "main")
ORDER = Group("order", "order", orderly=True)
BROADCAST = Group("bcast", "main", broadcasts=True)


class Capture:
    """What a captured run had and did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = list(self._lines("events.jsonl"))
        self.began = next(event["t_us"] for event in self.events if event["event"] == "broker_started")
        self.consumed = list(self._lines("consumption.jsonl"))
        lines = (folder / "scenario.properties").read_text("utf-8").splitlines()
        self.scenario = {name: value for name, _, value in (line.partition("=") for line in lines)}

    def name(self, group: Group) -> str:
        """What the group is called."""
        return self.scenario["group.prefix"] + group.role

    def topic(self, group: Group) -> str:
        """What its topic is called."""
        return self.scenario[f"topic.{group.topic_role}"].partition(":")[0]

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        with (self.folder / name).open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def bounds(self, topic: str, event: str = "broker_started") -> list[tuple[int, int]]:
        """(min, max) of each queue of a topic, as an event tells them."""
        told = next(one["bounds"] for one in self.events if one["event"] == event)
        return [(one["min"], one["max"]) for one in sorted((one for one in told if one["topic"] == topic), key=lambda one: one["queueId"])]

    def kept(self, topic: str) -> list[int]:
        """The first offset of each queue that was not deleted while the run went on; simulated brokers delete nothing."""
        deletes = any(event["event"] == "expire_end" for event in self.events)
        return [least for least, _ in self.bounds(topic, "expire_end" if deletes else "broker_started")]

    @cached_property
    def _came(self) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
        """(topic, queueId) -> (queueOffset, storeTimestamp, tagsCode) of what came while it ran."""
        found = defaultdict(list)
        with (self.folder / "dispatch.tsv").open(encoding="utf-8") as lines:
            next(lines)
            for line in lines:
                _, topic, queue, offset, _, _, code, stored = line.split("\t")
                found[topic, int(queue)].append((int(offset), int(stored), int(code)))
        return found

    def messages(self, group: Group) -> Recorded:
        """All messages of a group's topic; those of before were there at the start."""
        topic = self.topic(group)
        wanted = parse_subscription(self.scenario["tagexpr.broadcast"] if group.broadcasts else "*")
        first, offsets, times, flags = [0], [], [], []
        for queue, (least, end) in enumerate(self.bounds(topic)):
            came = self._came[topic, queue]
            assert [offset for offset, _, _ in came] == list(range(end, end + len(came)))
            offsets.append(least)
            times += [-SECOND] * (end - least) + [stored * 1000 - self.began for _, stored, _ in came]
            flags += [0] * (end - least) if group.broadcasts else [ALL_MATCH] * (end - least)
            flags += [ALL_MATCH if wanted is None or code in wanted else 0 for _, _, code in came]
            first.append(len(times))
        return Recorded(
            first=np.array(first, np.int64),
            first_offset=np.array(offsets, np.int64),
            times=np.array(times, np.int64),
            flags=np.array(flags, np.uint8),
            sizes=np.full((len(times), 2), 300, np.int32),
        )

    def clients(self, group: Group) -> tuple[ClientPlan, ...]:
        """The group's clients, from their first to their last moment."""
        moments: dict[str, dict[str, int]] = defaultdict(dict)
        for event in self.events:
            if event.get("group") == self.name(group) and event["event"] in {"consumer_start", "consumer_stop"}:
                moments[event["instance"]][event["event"]] = event["t_us"] - self.began
        return tuple(
            ClientPlan(client_id=f"127.0.0.1@{name}", joins=one["consumer_start"], leaves=one["consumer_stop"])
            for name, one in moments.items()
        )

    def plan(self, group: Group) -> GroupPlan:
        """The simulation of a group."""
        bounds = self.bounds(self.topic(group))
        least = tuple(first for first, _ in bounds)
        return GroupPlan(
            group=self.name(group),
            queues=tuple(MessageQueue(self.topic(group), "broker-a", number) for number in range(len(bounds))),
            committed=(-1,) * len(bounds) if group.broadcasts else least,
            min_offsets=least,
            clients=self.clients(group),
            messages=self.messages(group),
            until=max(client.leaves or 0 for client in self.clients(group)) + 5 * SECOND,
            listener=Listener(first=2000.0),
            consumer=PushConsumer(
                message_model=MessageModel.BROADCASTING if group.broadcasts else MessageModel.CLUSTERING,
                pull_batch_size=12,
            ),
            orderly=group.orderly,
            sample=SECOND,
            tells=True,
        )

    def given(self, group: Group) -> dict[str, set[Message]]:
        """What the listener of each client was given of the group's topic."""
        found: dict[str, set[Message]] = defaultdict(set)
        for row in self.consumed:
            if (row["group"], row["mq_topic"]) == (self.name(group), self.topic(group)):
                found[f"127.0.0.1@{row['instance']}"].add((row["queueId"], row["queueOffset"]))
        return found

    def pulled(self, group: Group, begins: int, ends: int) -> dict[str, set[int]]:
        """The queues of the topic that each client pulled in a time."""
        clients: dict[str, str] = {}
        found: dict[str, set[int]] = defaultdict(set)
        for one in exchanges(self.folder):
            request, ext = one["request"], one["request"]["ext"]
            if request["code"] == HEART_BEAT and request["body_b64"]:
                clients[one["peer"]] = json.loads(base64.b64decode(request["body_b64"]))["clientID"]
            at_time = one["t_arrive_us"] - self.began
            of_group = request["code"] == PULL_MESSAGE and (ext["consumerGroup"], ext["topic"]) == (self.name(group), self.topic(group))
            if of_group and begins <= at_time < ends and one["peer"] in clients:
                found[clients[one["peer"]]].add(int(ext["queueId"]))
        return found


@pytest.fixture(scope="module", params=["json", "rocketmq"])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return Capture(unpack(request.param, tmp_path_factory.mktemp("simulated"), told=True))


@dataclass(frozen=True)
class Simulated:
    """A simulated run: what each client was given of the topic, rebalances, and the committed offsets of the topic's queues."""

    given: dict[str, set[Message]]
    rebalances: list[Rebalanced]
    committed: list[int]


def simulated(plan: GroupPlan) -> Simulated:
    given: dict[str, set[Message]] = defaultdict(set)
    engine = GroupEngine(plan)
    run = GroupRun(plan, engine)

    def tell(told: Told) -> None:
        names = {client: plan.clients[number].client_id for number, client in run.clients()}
        for row in told.consumed.tolist():
            if row[at.C_QUEUE] < len(plan.queues):
                given[names[row[at.C_CLIENT]]].add((row[at.C_QUEUE], row[at.C_OFFSET]))

    run.run(sample=lambda _: False, tell=tell)
    engine.tell_rest(tell)
    return Simulated(given, run.rebalances, [engine.committed(queue) for queue in range(len(plan.queues))])


@pytest.mark.parametrize("group", [MAIN, ORDER], ids=lambda group: group.role)
def test_a_group_gets_the_messages_that_the_real_one_got_and_ends_where_it_ended(capture: Capture, group: Group) -> None:
    found, real = simulated(capture.plan(group)), capture.given(group)
    kept = capture.kept(capture.topic(group))
    ours, theirs = (
        {(queue, offset) for queue, offset in set().union(*one.values()) if offset >= kept[queue]} for one in (found.given, real)
    )
    assert ours == theirs
    assert len(theirs) > 300
    mine = (capture.topic(group), capture.name(group))
    stored = {queue: offset for (*of, queue), offset in consumer_offsets(capture.folder).items() if tuple(of) == mine}
    assert dict(enumerate(found.committed)) == stored


def test_each_client_that_broadcasts_gets_what_the_real_one_got(capture: Capture) -> None:
    found, real = simulated(capture.plan(BROADCAST)).given, capture.given(BROADCAST)
    assert found.keys() == real.keys()
    for client in found:
        # a message that comes while a client starts may be before or behind the end that it is told of
        assert len(found[client] ^ real[client]) <= 2, client
        assert len(real[client]) > 150


@pytest.mark.parametrize("group", [MAIN, ORDER], ids=lambda group: group.role)
def test_each_client_has_the_queues_that_the_real_one_had_between_two_rebalances(capture: Capture, group: Group) -> None:
    plan = capture.plan(group)
    events = simulated(plan).rebalances
    changes = sorted({moment for client in plan.clients for moment in (client.joins, client.leaves) if moment is not None})
    held: dict[str, set[int]] = defaultdict(set)
    for begins, ends in pairwise(changes):
        for event in events:
            if begins <= event.time < ends and event.topic == plan.topic:
                held[event.client_id] -= {queue.queueId or 0 for queue in event.dropped}
                held[event.client_id] |= {queue.queueId or 0 for queue in event.taken}
        there = {client.client_id for client in plan.clients if client.joins <= begins and (client.leaves or 0) > begins}
        if ends - begins > 10 * SECOND:
            # from the second look of a client at its group on
            real = capture.pulled(group, begins + 2 * SECOND, ends)
            assert all(real[name] <= held[name] for name in there), (begins, real, held)
    assert changes
