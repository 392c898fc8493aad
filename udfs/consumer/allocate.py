"""Which queues of a topic a client of a group consumes: the six strategies.

Broker source (4.9.3): client.consumer.rebalance (AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle,
AllocateMessageQueueByConfig, AllocateMessageQueueByMachineRoom, AllocateMessageQueueConsistentHash, AllocateMachineRoomNearby);
AllocateMessageQueueStrategy.
Rule: each client calculates its own share from the same two lists, so clients need no coordination. A client that is not in its list gets
no queue.
Surprises: no strategy sorts the lists; RebalanceImpl does. The position of a client is that of the first equal id. If two clients have one
id, some queues are consumed by no client. A broker's machine room is the part of its name before `@`, and only in names of two parts. The
strategy by configuration ignores both lists, even if they are empty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from store_format.java.blanks import is_blank
from store_format.store.lookup import ILLEGAL_ARGUMENT, NULL_POINTER, ThrownError
from udfs.broker.message_queue import MessageQueue, text_order
from udfs.consumer.consistent_hash import ConsistentHashRouter

VIRTUAL_NODES: Final = 10
_ROOM_SEPARATOR: Final = "@"
_ROOM_PARTS: Final = 2

Queues = Sequence[MessageQueue]


class AllocateMessageQueueStrategy(Protocol):
    """A strategy that allocates queues to clients."""

    @property
    def name(self) -> str:
        """Name of the strategy in logs and in recorded answers."""

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue] | None:
        """Return the queues of the client `current_cid`; `mq_all` and `cid_all` are sorted, in the same way by all clients.

        Raises:
            ThrownError: an argument is None or empty; the rebalance then changes nothing.
        """


class _OfPosition(ABC):
    """A strategy whose share depends on a client's position in its list."""

    __slots__ = ()

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """Return the queues of the client `current_cid`, as `AllocateMessageQueueStrategy.allocate`; none if `cid_all` does not have it."""
        if not current_cid or not mq_all or not cid_all:
            raise ThrownError(ILLEGAL_ARGUMENT)
        return self._share(mq_all, cid_all, cid_all.index(current_cid)) if current_cid in cid_all else []

    @abstractmethod
    def _share(self, queues: Queues, clients: Sequence[str], index: int) -> list[MessageQueue]:
        """Return the queues of the client with an index."""


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely(_OfPosition):
    """Even shares of neighbouring queues; if the numbers do not divide, the first clients get one queue more."""

    name: ClassVar[str] = "AVG"

    def _share(self, queues: Queues, clients: Sequence[str], index: int) -> list[MessageQueue]:
        share, rest = divmod(len(queues), len(clients))
        start = index * share + min(index, rest)
        return list(queues[start : start + share + (index < rest)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle(_OfPosition):
    """Even shares, dealt to the clients in turn like cards."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def _share(self, queues: Queues, clients: Sequence[str], index: int) -> list[MessageQueue]:
        return list(queues[index :: len(clients)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """The configured queues, whatever queues and clients exist; None if no queues are configured."""

    name: ClassVar[str] = "CONFIG"
    message_queue_list: tuple[MessageQueue, ...] | None = None

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue] | None:
        """Return the queues of the client `current_cid`, as `AllocateMessageQueueStrategy.allocate`."""
        return None if self.message_queue_list is None else list(self.message_queue_list)


def _room_of_name(broker_name: str | None) -> str | None:
    """Return the machine room in a broker's name, None unless the name has two parts (String.split drops empty parts at the end)."""
    if broker_name is None:
        raise ThrownError(NULL_POINTER)
    parts = broker_name.rstrip(_ROOM_SEPARATOR).split(_ROOM_SEPARATOR)
    return parts[0] if len(parts) == _ROOM_PARTS else None


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom(_OfPosition):
    """Even shares of the queues in the rooms `consumeridcs`: neighbouring queues for each client; the first clients get one of the rest."""

    name: ClassVar[str] = "MACHINE_ROOM"
    consumeridcs: frozenset[str] | None = None

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """Return the queues of the client `current_cid`, as `AllocateMessageQueueStrategy.allocate`.

        Raises:
            ThrownError: also if no machine rooms are set and a broker's name has one.
        """
        if is_blank(current_cid):
            raise ThrownError(ILLEGAL_ARGUMENT)
        return _OfPosition.allocate(self, current_cid, mq_all, cid_all)

    def _share(self, queues: Queues, clients: Sequence[str], index: int) -> list[MessageQueue]:
        ours = [queue for queue in queues if self._is_consumed(_room_of_name(queue.brokerName))]
        share, rest = divmod(len(ours), len(clients))
        taken = ours[index * share : (index + 1) * share]
        return taken + ours[share * len(clients) + index :][: index < rest]

    def _is_consumed(self, room: str | None) -> bool:
        if room is None:
            return False
        if self.consumeridcs is None:
            raise ThrownError(NULL_POINTER)
        return room in self.consumeridcs


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueConsistentHash(_OfPosition):
    """Queues by a hash ring of clients, so that a client that joins or leaves moves few queues.

    Raises:
        ThrownError: the number of virtual nodes is negative.
    """

    name: ClassVar[str] = "CONSISTENT_HASH"
    virtual_node_cnt: int = VIRTUAL_NODES

    def __post_init__(self) -> None:
        if self.virtual_node_cnt < 0:
            raise ThrownError(ILLEGAL_ARGUMENT)

    def _share(self, queues: Queues, clients: Sequence[str], index: int) -> list[MessageQueue]:
        router = ConsistentHashRouter(clients, self.virtual_node_cnt)
        return [queue for queue in queues if router.route(str(queue)) == clients[index]]


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby(_OfPosition):
    """The queues of a machine room to the clients of that room, by another strategy; the queues of a room without clients to all clients.

    The two functions return the machine room of a queue's broker and of a client id; None or "" makes the strategy throw.
    """

    inner: AllocateMessageQueueStrategy
    broker_deploy_in: Callable[[MessageQueue], str | None]
    consumer_deploy_in: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """Name of this strategy with the name of the strategy within a room."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def _share(self, queues: Queues, clients: Sequence[str], index: int) -> list[MessageQueue]:
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_known(self.broker_deploy_in(queue)), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for client in clients:
            clients_of.setdefault(_known(self.consumer_deploy_in(client)), []).append(client)
        own_room = _known(self.consumer_deploy_in(clients[index]))
        shares = []
        if own_room in queues_of:
            shares.append(self.inner.allocate(clients[index], queues_of.pop(own_room), clients_of[own_room]))
        for room in sorted(queues_of, key=text_order):
            if room not in clients_of:
                shares.append(self.inner.allocate(clients[index], queues_of[room], clients))
        if None in shares:
            raise ThrownError(NULL_POINTER)
        return [queue for share in shares for queue in share or ()]


def _known(room: str | None) -> str:
    if not room:
        raise ThrownError(ILLEGAL_ARGUMENT)
    return room
