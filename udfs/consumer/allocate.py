"""Which queues of a topic a client of a group consumes: the six strategies.

Broker source (4.9.3): client.consumer.rebalance (AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle,
AllocateMessageQueueByConfig, AllocateMessageQueueByMachineRoom, AllocateMessageQueueConsistentHash, AllocateMachineRoomNearby);
AllocateMessageQueueStrategy.
Rule: each client works out its own share from the same two lists, so that nobody has to agree; a client that is not in its list gets
nothing.
Surprises: no strategy sorts the lists: RebalanceImpl does. A client is where its id stands first, so that a second one with its id leaves
queues to nobody. A broker's machine room is what stands before `@` in its name, and only in names of two parts. The strategy by
configuration looks at nothing, not even for whether there are queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from store_format.store.lookup import ILLEGAL_ARGUMENT, NULL_POINTER, ThrownError
from udfs.broker.message_queue import MessageQueue, text_order
from udfs.consumer.consistent_hash import ConsistentHashRouter

VIRTUAL_NODES: Final = 10
_ROOM_SEPARATOR: Final = "@"
_ROOM_PARTS: Final = 2
_NO_BLANKS_IN_JAVA: Final = "\x85\xa0\u2007\u202f"  # which Python takes for blanks

Queues = Sequence[MessageQueue]


class AllocateMessageQueueStrategy(Protocol):
    """What a strategy can do."""

    @property
    def name(self) -> str:
        """Its name in logs and in recorded answers."""

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue] | None:
        """The queues of the client `current_cid`.

        Args:
            current_cid: the client that asks.
            mq_all: the queues of the topic, in the order in which all clients list them.
            cid_all: the clients of the group, likewise.

        Raises:
            ThrownError: no client, no queues or no clients; rebalancing then leaves the client's queues as they are.
        """


def _position(current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> tuple[Queues, Sequence[str], int]:
    """The lists, once they are checked, and where the client stands in its list: -1 where it does not."""
    if not current_cid or not mq_all or not cid_all:
        raise ThrownError(ILLEGAL_ARGUMENT)
    return mq_all, cid_all, cid_all.index(current_cid) if current_cid in cid_all else -1


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely:
    """Even shares, each of neighbours in the list; the first clients have one queue more where it does not come out."""

    name: ClassVar[str] = "AVG"

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """As the protocol says."""
        queues, clients, index = _position(current_cid, mq_all, cid_all)
        if index < 0:
            return []
        share, rest = divmod(len(queues), len(clients))
        start = index * share + min(index, rest)
        return list(queues[start : start + share + (index < rest)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle:
    """Even shares, dealt round like cards."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """As the protocol says."""
        queues, clients, index = _position(current_cid, mq_all, cid_all)
        return list(queues[index :: len(clients)]) if index >= 0 else []


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """The queues that are configured, whatever there is; None where none are."""

    name: ClassVar[str] = "CONFIG"
    message_queue_list: tuple[MessageQueue, ...] | None = None

    def allocate(
        self,
        current_cid: str | None,
        mq_all: Queues | None,
        cid_all: Sequence[str] | None,
    ) -> list[MessageQueue] | None:
        """As the protocol says."""
        return None if self.message_queue_list is None else list(self.message_queue_list)


def _is_blank(text: str | None) -> bool:
    """StringUtils.isBlank."""
    return not text or all(char.isspace() and char not in _NO_BLANKS_IN_JAVA for char in text)


def _room_of_name(broker_name: str | None) -> str | None:
    """The machine room in a broker's name, None where the name has not two parts (String.split drops empty ones at the end)."""
    if broker_name is None:
        raise ThrownError(NULL_POINTER)
    parts = broker_name.rstrip(_ROOM_SEPARATOR).split(_ROOM_SEPARATOR)
    return parts[0] if len(parts) == _ROOM_PARTS else None


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom:
    """Even shares of the queues in the machine rooms that the group consumes, dealt in blocks and the rest one each."""

    name: ClassVar[str] = "MACHINE_ROOM"
    consumeridcs: frozenset[str] | None = None

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """As the protocol says.

        Raises:
            ThrownError: also where no machine rooms are set and a broker's name has one.
        """
        if _is_blank(current_cid):
            raise ThrownError(ILLEGAL_ARGUMENT)
        queues, clients, index = _position(current_cid, mq_all, cid_all)
        if index < 0:
            return []
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
class AllocateMessageQueueConsistentHash:
    """Queues by a ring of clients, so that a client that comes or goes moves few of them.

    Raises:
        ThrownError: fewer than no virtual nodes.
    """

    name: ClassVar[str] = "CONSISTENT_HASH"
    virtual_node_cnt: int = VIRTUAL_NODES

    def __post_init__(self) -> None:
        if self.virtual_node_cnt < 0:
            raise ThrownError(ILLEGAL_ARGUMENT)

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """As the protocol says."""
        queues, clients, index = _position(current_cid, mq_all, cid_all)
        if index < 0:
            return []
        router = ConsistentHashRouter(clients, self.virtual_node_cnt)
        return [queue for queue in queues if router.route(str(queue)) == current_cid]


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Queues to the clients of their own machine room, by another strategy; those of a room without clients to all of them.

    Attributes:
        inner: the strategy within a room.
        broker_deploy_in: the machine room of a queue's broker, None or "" where it is unknown, which is an error.
        consumer_deploy_in: that of a client, likewise.
    """

    inner: AllocateMessageQueueStrategy
    broker_deploy_in: Callable[[MessageQueue], str | None]
    consumer_deploy_in: Callable[[str], str | None]

    @property
    def name(self) -> str:
        """With the name of the strategy within a room."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, current_cid: str | None, mq_all: Queues | None, cid_all: Sequence[str] | None) -> list[MessageQueue]:
        """As the protocol says.

        Raises:
            ThrownError: also where a machine room is unknown.
        """
        queues, clients, index = _position(current_cid, mq_all, cid_all)
        if index < 0:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_known(self.broker_deploy_in(queue)), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for client in clients:
            clients_of.setdefault(_known(self.consumer_deploy_in(client)), []).append(client)
        own_room = _known(self.consumer_deploy_in(clients[index]))
        shares = []
        if own_room in queues_of:
            shares.append(self.inner.allocate(current_cid, queues_of.pop(own_room), clients_of[own_room]))
        for room in sorted(queues_of, key=text_order):
            if room not in clients_of:
                shares.append(self.inner.allocate(current_cid, queues_of[room], clients))
        return [queue for share in shares for queue in _there(share)]


def _known(room: str | None) -> str:
    if not room:
        raise ThrownError(ILLEGAL_ARGUMENT)
    return room


def _there(share: list[MessageQueue] | None) -> list[MessageQueue]:
    if share is None:
        raise ThrownError(NULL_POINTER)
    return share
