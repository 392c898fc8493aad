"""What is simulated: one group on one topic, who consumes when, what comes, and how long it takes.

Times are microseconds since the simulation began. The settings of client and broker carry their own names and meanings.
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
# the producers' group, which each message that is sent in a transaction has as a property
PRODUCER_GROUP = "producers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """One client of the group.

    Attributes:
        client_id: as the group's strategy sorts it.
        joins: when it starts.
        leaves: when it shuts down, None for never.
        crashes: when it dies, None for never.
        silent: it dies with its machine, so that the broker learns of it only as nothing comes any more.
        stalls: (from, to) of each time in which its process stands still.
        strategy: of this client alone, None for that of the group.
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
    """What a listener does with each message.

    Attributes:
        shape: one of the shapes of `service_time`, with its two numbers `first` and `second` (microseconds, but for a deviation).
        failing: share of tries that fail.
        poison: share of messages that always fail.
    """

    shape: int = CONSTANT
    first: float = 0.0
    second: float = 0.0
    failing: float = 0.0
    poison: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Messages that come at rates.

    Attributes:
        steps: (from, messages a second) over all queues; none come before the first one. Ascending.
        ends: when the last one may come.
        shares: of each queue.
        backlog: messages of each queue that are there at the start.
        even: they come at even distances, else at random.
        matching: share that the group's filter takes.
        body: least and greatest size in bytes.
        delay_level: of those that come, 0 for none.
        overhead: bytes of a record beside its body.
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
    """How the producers of a topic end what they send in transactions.

    Attributes:
        commits: share of local transactions that are committed.
        rolls_back: share of those that are rolled back; of the others the producer does not know.
        takes: how long a local transaction takes, from the moment at which its half message is known to be stored.
        decides: how long it takes until a producer that is asked knows of those others; None for never.
        then_commits: share of them that are committed then; the rest is rolled back.
        settings: of the broker's check.
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
        first: index in the arrays at which each queue begins, and their length at the end.
        first_offset: offset of each queue's first message.
        times: when each was stored; below 0 it is there at the start.
        flags: MATCHES_* of `arrivals`.
        sizes: (n, 2) of its record and its body, bytes.
    """

    first: NDArray[np.int64]
    first_offset: NDArray[np.int64]
    times: NDArray[np.int64]
    flags: NDArray[np.uint8]
    sizes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """What of the broker counts.

    Attributes:
        network: microseconds that a request or an answer is under way.
        dispatch: from storing a message to its being visible.
        delays: ms of each delay level.
        retry_queue_nums: of the group.
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
        queues: of the topic, those of one broker together.
        committed: offset of the group on each, -1 where there is none; where it broadcasts that in the file of each client.
        min_offsets: of each queue; all 0 where it is empty.
        transactions: of the producers, None where messages are sent without; `simulate` has them end before the group begins.
        orderly: whether its listener is an orderly one.
        until: when it is cut.
        sample: how often lag is looked at.
        tells: whether each message that is consumed is told.
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
        """The topic."""
        return str(self.queues[0].topic)

    @property
    def broadcasts(self) -> bool:
        """Whether each client gets all messages."""
        return self.consumer.message_model is MessageModel.BROADCASTING

    @property
    def brokers(self) -> tuple[str | None, ...]:
        """The brokers that have queues of the topic, each once."""
        return tuple(dict.fromkeys(queue.brokerName for queue in self.queues))
