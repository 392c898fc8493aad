"""The groups of a captured run: messages that came, clients over time, what each listener got and pulled; and their simulation.

All of it is what the broker's process and the clients logged, with no packet between. Times of simulated and real threads differ, and the
real listeners failed on messages of their own.
"""

from __future__ import annotations

import base64
import json
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.files.unpacking import unpack
from udfs.broker.message_queue import MessageQueue
from udfs.consumer.push_consumer import ConsumeFromWhere, MessageModel, PushConsumer
from udfs.filters.tags import parse_subscription
from udfs.simulation.arrivals import ALL_MATCH
from udfs.simulation.group_plan import SECOND, ClientPlan, GroupPlan, Listener, Recorded

GOLDEN: Final = Path(__file__).resolve().parents[2] / "shared" / "golden" / "capture"
TOLD: Final = frozenset(
    {"scenario.properties", "events.jsonl", "consumption.jsonl", "dispatch.tsv", "exchange.jsonl", "store/config/consumerOffset.json"}
)
LISTENER_MICROS: Final = 2000.0
_HEART_BEAT, _PULL_MESSAGE = 34, 11
_MESSAGE_BYTES = 300  # of each: no pull is full by bytes


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


@dataclass(frozen=True)
class Pulled:
    """A pull of a group's topic; times in microseconds since the broker's start.

    Attributes:
        peer: the client's connection.
        asked: when the broker had it.
        answered: when its answer was written, None where there was none.
        offsets: from the one asked for to the next one, where it found messages; else empty.
    """

    peer: str
    queue: int
    max_msg_nums: int
    asked: int
    answered: int | None
    offsets: range


def unpack_told(name: str, folder: Path) -> Path:
    """Unpack what a captured run told of itself into a folder; gives the folder of the run."""
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        unpack(archive, folder, (member for member in archive if member.name.partition("/")[2] in TOLD))
    return folder / name


class CapturedGroups:
    """What a captured run had and did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = list(self._lines("events.jsonl"))
        self.began: int = next(event["t_us"] for event in self.events if event["event"] == "broker_started")
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
            if [offset for offset, _, _ in came] != list(range(end, end + len(came))):
                message = f"{self.folder}/dispatch.tsv: {topic}, queue {queue}: expected the offsets from {end} on, each once"
                raise ValueError(message)
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
            sizes=np.full((len(times), 2), _MESSAGE_BYTES, np.int32),
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
            committed=(-1,) * len(bounds),  # nobody had before the run
            min_offsets=least,
            clients=self.clients(group),
            messages=self.messages(group),
            until=max(client.leaves or 0 for client in self.clients(group)) + 5 * SECOND,
            listener=Listener(first=LISTENER_MICROS),
            consumer=PushConsumer(
                message_model=MessageModel.BROADCASTING if group.broadcasts else MessageModel.CLUSTERING,
                consume_from_where=self.consume_from_where(group),
                pull_batch_size=self.max_msg_nums(group),
            ),
            orderly=group.orderly,
            sample=SECOND,
            tells=True,
        )

    def consume_from_where(self, group: Group) -> ConsumeFromWhere:
        """Where its clients begin without an offset, as their heartbeats told."""
        of_clients = (one for _, beat in self._beats for one in beat["consumerDataSet"])
        (where,) = {one["consumeFromWhere"] for one in of_clients if one["groupName"] == self.name(group)}
        return ConsumeFromWhere(where)

    def max_msg_nums(self, group: Group) -> int:
        """How many messages its clients ask for."""
        return Counter(one.max_msg_nums for one in self.pulled(group)).most_common(1)[0][0]

    def given(self, group: Group) -> list[tuple[str, int, int, int]]:
        """What listeners were given of the group's topic: client, queue, offset, and when."""
        mine = (self.name(group), self.topic(group))
        rows = (row for row in self.consumed if (row["group"], row["mq_topic"]) == mine)
        return [(f"127.0.0.1@{row['instance']}", row["queueId"], row["queueOffset"], row["t_us"] - self.began) for row in rows]

    @cached_property
    def _exchanges(self) -> list[dict[str, Any]]:
        return list(self._lines("exchange.jsonl"))

    @cached_property
    def client_of_peer(self) -> dict[str, str]:
        """The client of each connection, as its last heartbeat told."""
        return {peer: beat["clientID"] for peer, beat in self._beats}

    @cached_property
    def _beats(self) -> list[tuple[str, dict[str, Any]]]:
        beats = [one for one in self._exchanges if one["request"]["code"] == _HEART_BEAT and one["request"]["body_b64"]]
        return [(one["peer"], json.loads(base64.b64decode(one["request"]["body_b64"]))) for one in beats]

    def pulled(self, group: Group) -> Iterator[Pulled]:
        """The pulls of the group's topic, in the order in which the broker had them."""
        mine = (self.name(group), self.topic(group))
        for one in self._exchanges:
            ext, answer = one["request"]["ext"], one["response"]
            if one["request"]["code"] != _PULL_MESSAGE or (ext["consumerGroup"], ext["topic"]) != mine:
                continue
            found = answer is not None and answer["code"] == 0
            yield Pulled(
                peer=one["peer"],
                queue=int(ext["queueId"]),
                max_msg_nums=int(ext["maxMsgNums"]),
                asked=one["t_arrive_us"] - self.began,
                answered=None if answer is None else one["t_write_us"] - self.began,
                offsets=range(int(ext["queueOffset"]), int(answer["ext"]["nextBeginOffset"])) if found else range(0),
            )
