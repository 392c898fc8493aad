"""The plan of a simulation: one group on one topic, with its clients, the messages that arrive, and the listener.

Times are microseconds since the simulation began. The settings of client and broker have their own names and meanings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from udfs.broker.message_queue import MessageQueue
from udfs.broker.schedule import DEFAULT_DELAYS
from udfs.broker.transaction_check import CHECK_INTERVAL, CheckSettings
from udfs.consumer.allocate import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from udfs.consumer.push_consumer import MessageModel, PushConsumer
from udfs.simulation.service_time import CONSTANT, Takes

SECOND = 1_000_000
# the producers' group; each message that is sent in a transaction has it as a property
PRODUCER_GROUP = "producers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """One client of the group.

    Attributes:
        client_id: id of the client, by which the group's strategy sorts.
        joins: when the client starts.
        leaves: when the client shuts down, None for never.
        crashes: when the client dies, None for never.
        silent: whether the client dies with its machine: the broker then notices only that the connection is idle.
        stalls: (from, to) of each period in which the client's process stands still.
        strategy: strategy of this client alone, None for the group's strategy.
    """

    client_id: str
    joins: int = 0
    leaves: int | None = None
    crashes: int | None = None
    silent: bool = False
    stalls: tuple[tuple[int, int], ...] = ()
    strategy: AllocateMessageQueueStrategy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """How long a listener takes for a message, and the shares of tries and of messages (`poison`) that fail.

    `shape` is one of `service_time`; `first` and `second` are its parameters, in microseconds except a deviation.
    """

    shape: int = CONSTANT
    first: float = 0.0
    second: float = 0.0
    failing: float = 0.0
    poison: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Messages that arrive at given rates.

    Attributes:
        steps: (from, messages a second over all queues), ascending; no message comes before the first step.
        ends: time after which no message comes.
        shares: each queue's share of the messages.
        backlog: number of messages in each queue at the start.
        even: whether messages come at equal intervals; if not, at random.
        matching: share of messages that match the group's filter.
        body: least and greatest body size in bytes.
        delay_level: delay level of the messages, 0 for none.
        overhead: bytes of a record without its body.
    """

    steps: tuple[tuple[int, float], ...]
    ends: int
    shares: tuple[float, ...]
    backlog: tuple[int, ...]
    even: bool = False
    matching: float = 1.0
    body: tuple[int, int] = (200, 200)
    overhead: int = 200
    delay_level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """How the producers of a topic end their transactions.

    Attributes:
        commits: share of local transactions that are committed.
        rolls_back: share of local transactions that are rolled back. The rest are unknown to the producer at first.
        takes: duration of a local transaction, from the moment at which the producer knows that its half message is stored.
        decides: time until the producer knows the result of an unknown transaction; None for never.
        then_commits: share of unknown transactions that are then committed; the rest are rolled back.
        settings: settings of the broker's check.
        check_interval: transactionCheckInterval.
    """

    commits: float
    rolls_back: float = 0.0
    takes: Takes = field(default_factory=lambda: Takes(CONSTANT, 0.0))
    decides: Takes | None = None
    then_commits: float = 1.0
    settings: CheckSettings = field(default_factory=CheckSettings)
    check_interval: int = CHECK_INTERVAL * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Messages of a store, queue after queue.

    Attributes:
        first: index in the arrays at which each queue begins; the last element is the arrays' length.
        first_offset: offset of each queue's first message.
        times: when each message was stored; a message with a time below 0 is in its queue at the start.
        flags: MATCHES_* of `arrivals` for each message.
        sizes: (n, 2): bytes of each message's record and of its body.
    """

    first: NDArray[np.int64]
    first_offset: NDArray[np.int64]
    times: NDArray[np.int64]
    flags: NDArray[np.uint8]
    sizes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """The facts and settings of the broker.

    Attributes:
        network: microseconds that a request or an answer takes between client and broker.
        dispatch: microseconds from storing a message until pulls see it.
        delays: delay of each delay level, ms.
        retry_queue_nums: retryQueueNums of the group.
        bytes_in_memory, count_in_memory: maxTransferBytesOnMessageInMemory and maxTransferCountOnMessageInMemory.
        entries_a_file: entries of a consume queue file.
        notify: notifyConsumerIdsChangedEnable.
    """

    network: int = 200
    dispatch: int = 1000
    delays: tuple[int, ...] = DEFAULT_DELAYS
    retry_queue_nums: int = 1
    bytes_in_memory: int = 256 * 1024
    count_in_memory: int = 32
    entries_a_file: int = 300_000
    notify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One simulation.

    Attributes:
        queues: queues of the topic; those of one broker are neighbours.
        committed: the group's committed offset of each queue, -1 for none; in a broadcasting group, the offset in each client's file.
        min_offsets: minOffset of each queue; an empty tuple means 0 for all.
        transactions: transactions of the producers, None if messages are sent without them; `simulate` runs them before the group starts.
        orderly: whether the group's listener is an orderly one.
        until: when the simulation is stopped.
        sample: interval between two samples of lag.
        tells: whether a row is written for each consumed message.
    """

    group: str
    queues: tuple[MessageQueue, ...]
    committed: tuple[int, ...]
    min_offsets: tuple[int, ...] = ()
    clients: tuple[ClientPlan, ...]
    messages: Rates | Recorded
    transactions: Transactions | None = None
    until: int
    seed: int = 0
    listener: Listener = field(default_factory=Listener)
    consumer: PushConsumer = field(default_factory=PushConsumer)
    broker: BrokerPlan = field(default_factory=BrokerPlan)
    strategy: AllocateMessageQueueStrategy = field(default_factory=AllocateMessageQueueAveragely)
    orderly: bool = False
    sample: int = 10 * SECOND
    tells: bool = False

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return str(self.queues[0].topic)

    @property
    def broadcasts(self) -> bool:
        """Whether each client gets all messages (MessageModel.BROADCASTING)."""
        return self.consumer.message_model is MessageModel.BROADCASTING

    @property
    def brokers(self) -> tuple[str | None, ...]:
        """Names of the brokers that have queues of the topic, each once."""
        return tuple(dict.fromkeys(queue.brokerName for queue in self.queues))
