"""Convert a scenario into the plan of a simulation; the caller passes the recorded messages of a lake."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.generate.workload_fields import unknown_name
from pipeline.simulation.scenario import GroupScenario, transactions_of
from pipeline.simulation.scenario_fields import ScenarioError
from store_format.layout import CQ_STORE_UNIT_SIZE
from store_format.log.put_message import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, properties_to_string
from udfs.broker.message_queue import MessageQueue
from udfs.broker.schedule import DelayLevelError, parse_delay_level
from udfs.broker.transactional_message import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from udfs.consumer import allocate
from udfs.filters.tags import split_tags
from udfs.simulation.group_plan import PRODUCER_GROUP, BrokerPlan, ClientPlan, GroupPlan, Listener, Rates, Recorded

_DEFAULT_QUEUES = 4
# bytes of a record without topic and body: its fields, and the properties that client and broker add
_RECORD_OVERHEAD = 200


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """The recorded messages of a topic in a lake, with its queues in order.

    `committed` has the group's committed offset of each queue, -1 for none. The simulation begins at `begins`, ms since 1970.
    """

    queues: tuple[MessageQueue, ...]
    messages: Recorded
    committed: tuple[int, ...]
    begins: int


def plan_of(scenario: GroupScenario, seed: int, where: str, recorded: RecordedTopic | None = None) -> GroupPlan:
    """Return the plan of one run of a scenario.

    Raises:
        ScenarioError: the broker's settings contradict the scenario.
    """
    brokers, numbers = scenario.messages.brokers, range(scenario.messages.queues or _DEFAULT_QUEUES)
    queues = recorded.queues if recorded else tuple(MessageQueue(scenario.topic, name, one) for name in brokers for one in numbers)
    messages = recorded.messages if recorded else _rates(scenario, len(queues))
    first = tuple(recorded.messages.first_offset.tolist()) if recorded else ()
    listener = scenario.listener
    return GroupPlan(
        group=scenario.group,
        queues=queues,
        committed=_committed(scenario, messages, recorded),
        min_offsets=first,
        clients=tuple(client for number in range(len(scenario.clients)) for client in _clients(scenario, number, queues, where)),
        messages=messages,
        transactions=transactions_of(scenario.transactions, scenario.broker) if scenario.transactions else None,
        until=scenario.until,
        seed=seed,
        listener=Listener(
            shape=listener.takes.shape,
            first=listener.takes.first,
            second=listener.takes.second,
            failing=listener.fails,
            poison=listener.poison,
        ),
        consumer=scenario.consumer,
        broker=_broker(scenario, where),
        strategy=_strategy(scenario),
        sample=scenario.sampled_every,
        tells=scenario.consumption,
        orderly=listener.orderly,
    )


def _rates(scenario: GroupScenario, queues: int) -> Rates:
    part = scenario.messages
    weights = [(number + 1) ** -part.skew for number in range(queues)]
    total = sum(weights)
    shares = tuple(weight / total for weight in weights)
    backlog = [int(part.backlog * share) for share in shares]
    for number in range(part.backlog - sum(backlog)):
        backlog[number % queues] += 1
    wanted, total = split_tags(scenario.subscription), sum(weight for _, weight in part.tags)
    matching = 1.0 if wanted is None else sum(weight for tag, weight in part.tags if tag in wanted) / (total or 1)
    ends = scenario.messages_end
    return Rates(
        steps=tuple(step for step in part.rate if step[0] < ends),
        ends=ends,
        shares=shares,
        backlog=tuple(backlog),
        even=part.even,
        matching=matching,
        body=part.body,
        delay_level=part.delay,
        overhead=_overhead(scenario),
    )


def _overhead(scenario: GroupScenario) -> int:
    """Return the bytes of a record without its body; a message keeps the properties of its transaction."""
    overhead = _RECORD_OVERHEAD + len(scenario.topic.encode())
    if scenario.transactions is None:
        return overhead
    kept = {PROPERTY_REAL_TOPIC: scenario.topic, PROPERTY_REAL_QUEUE_ID: "0"}
    kept |= {PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP}
    return overhead + len(properties_to_string(kept).encode()) + 1  # and the separator before the other properties


def _committed(scenario: GroupScenario, messages: Rates | Recorded, recorded: RecordedTopic | None) -> tuple[int, ...]:
    """Return the group's committed offset of each queue at the start."""
    if isinstance(messages, Rates):
        ends, first = messages.backlog, (0,) * len(messages.backlog)
    else:
        first = tuple(messages.first_offset.tolist())
        there = [(messages.times[messages.first[queue] : messages.first[queue + 1]] < 0).sum() for queue in range(len(first))]
        ends = tuple(int(begin + count) for begin, count in zip(first, there, strict=True))
    if scenario.begin == "committed" and recorded:
        most = np.array(first) + np.diff(recorded.messages.first)
        return tuple(np.minimum(recorded.committed, most).tolist())
    return {"first": first, "last": ends, "never": (-1,) * len(first)}[scenario.begin]


def _clients(scenario: GroupScenario, part_number: int, queues: tuple[MessageQueue, ...], where: str) -> list[ClientPlan]:
    part = scenario.clients[part_number]
    strategy: allocate.AllocateMessageQueueStrategy | None = None
    if scenario.strategy == "CONFIG":
        if any(number >= len(queues) for number in part.queues):
            raise ScenarioError(f"{where}, clients[{part_number}], queues", f"numbers below {len(queues)}", repr(part.queues))
        strategy = allocate.AllocateMessageQueueByConfig(tuple(queues[number] for number in part.queues))
    width = len(str(part.count - 1))
    place = f"@{part.room}" if part.room else ""
    return [
        ClientPlan(
            client_id=f"{part.name}-{number:0{width}}{place}",
            joins=part.joins + part.every * number,
            leaves=part.leaves,
            crashes=part.crashes,
            silent=part.silent,
            stalls=part.stalls,
            strategy=strategy,
        )
        for number in range(part.count)
    ]


def _room_of_broker(queue: MessageQueue) -> str:
    return (queue.brokerName or "").partition("@")[0]


def _room_of_client(client_id: str) -> str:
    return client_id.rpartition("@")[2]


def _strategy(scenario: GroupScenario) -> allocate.AllocateMessageQueueStrategy:
    match scenario.strategy:
        case "AVG_BY_CIRCLE":
            return allocate.AllocateMessageQueueAveragelyByCircle()
        case "CONSISTENT_HASH":
            return allocate.AllocateMessageQueueConsistentHash()
        case "MACHINE_ROOM":
            return allocate.AllocateMessageQueueByMachineRoom(frozenset(scenario.rooms))
        case "MACHINE_ROOM_NEARBY":
            return allocate.AllocateMachineRoomNearby(allocate.AllocateMessageQueueAveragely(), _room_of_broker, _room_of_client)
    return allocate.AllocateMessageQueueAveragely()  # the group's; with CONFIG each client has its own


def _broker(scenario: GroupScenario, where: str) -> BrokerPlan:
    value = scenario.broker.value
    try:
        delays = parse_delay_level(value("messageDelayLevel"))
    except DelayLevelError as error:
        raise ScenarioError(f"{where}, broker, messageDelayLevel", "levels that the broker reads", str(error)) from error
    if min(delays, default=0) < 0:
        raise ScenarioError(f"{where}, broker, messageDelayLevel", "delays that are not below 0", repr(value("messageDelayLevel")))
    if not delays or not value("longPollingEnable"):
        raise ScenarioError(f"{where}, broker", "delay levels and longPollingEnable", "a broker without them")
    return BrokerPlan(
        network=scenario.network,
        dispatch=scenario.dispatch,
        delays=delays,
        bytes_in_memory=value("maxTransferBytesOnMessageInMemory"),
        count_in_memory=max(1, value("maxTransferCountOnMessageInMemory")),
        entries_a_file=max(1, value("mappedFileSizeConsumeQueue") // CQ_STORE_UNIT_SIZE),
        notify=value("notifyConsumerIdsChangedEnable"),
    )


def check_tags(subscription: str, tags: set[str], where: str) -> None:
    """Raise ScenarioError unless each tag of a subscription occurs among the tags of recorded messages."""
    for tag in split_tags(subscription) or ():
        if tag not in tags:
            raise unknown_name(f"{where}, subscription", "tags that occur in the recorded messages", tag, sorted(tags) or [""])
