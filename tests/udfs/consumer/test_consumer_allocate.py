"""The queues that clients get: compared with every recorded allocation, and what must hold for any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_format.store.lookup import ILLEGAL_ARGUMENT, NULL_POINTER, ThrownError
from tests.truth.golden import golden_lines, needs_golden
from udfs.broker.message_queue import MessageQueue, queue_order
from udfs.consumer.allocate import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from udfs.consumer.consistent_hash import ConsistentHashRouter, hash_of

Row = dict[str, Any]
NEARBY = "MACHINE_ROOM_NEARBY-"


def queues_of(listed: list[Row] | None) -> list[MessageQueue] | None:
    return None if listed is None else [MessageQueue(**one) for one in listed]


def room(name: str) -> str | None:
    """The resolver with which the rows were recorded."""
    return None if name == "noroom" else name.partition("-")[0]


def room_of_broker(queue: MessageQueue) -> str | None:
    assert queue.brokerName is not None
    return "" if queue.brokerName == "empty" else room(queue.brokerName)


def strategy_of(name: str, params: Row) -> AllocateMessageQueueStrategy:
    if name.startswith(NEARBY):
        return AllocateMachineRoomNearby(strategy_of(params["inner"], {}), room_of_broker, room)
    if name == "CONFIG":
        listed = queues_of(params["messageQueueList"])
        return AllocateMessageQueueByConfig(None if listed is None else tuple(listed))
    if name == "MACHINE_ROOM":
        rooms = params["consumeridcs"]
        return AllocateMessageQueueByMachineRoom(None if rooms is None else frozenset(rooms))
    if name == "CONSISTENT_HASH":
        return AllocateMessageQueueConsistentHash(**({"virtual_node_cnt": params["virtualNodeCnt"]} if params else {}))
    return AllocateMessageQueueAveragely() if name == "AVG" else AllocateMessageQueueAveragelyByCircle()


def answered(row: Row) -> Row:
    """The recorded fields of a row, computed by our rules."""
    if row["strategy"] == "MessageQueue.compareTo":
        ordered = sorted(queues_of(row["mqAll"]) or [], key=queue_order)
        return {"result": [queue._asdict() for queue in ordered], "toString": str(ordered[0])}
    try:
        strategy = strategy_of(row["strategy"], row["params"])
        found = strategy.allocate(row["currentCID"], queues_of(row["mqAll"]), row["cidAll"])
    except ThrownError as thrown:
        return {"error": thrown.java_class.rpartition(".")[2]} | ({"result": None} if "result" in row else {})
    assert strategy.name == row["strategy"]
    return {"result": None if found is None else [queue._asdict() for queue in found]}


@needs_golden
def test_every_recorded_allocation_comes_out_the_same() -> None:
    # a constructor without an argument: types refuse that here
    rows = [row for row in golden_lines("broker", "allocate.jsonl") if not row.get("note", "").startswith("constructor null")]
    differing = [row for row in rows if any(row.get(name) != value for name, value in answered(row).items())]
    assert differing == []
    assert len(rows) == 390
    assert {row["error"] for row in rows if "error" in row} == {"IllegalArgumentException", "NullPointerException"}
    assert not any("error" in row and "error" not in answered(row) for row in rows)


CLIENTS = st.lists(st.text("ab01", min_size=1, max_size=4), min_size=1, max_size=12, unique=True).map(sorted)
QUEUES = st.lists(
    st.builds(MessageQueue, st.just("T"), st.sampled_from(["r1@a", "r2@b", "r2@c"]), st.integers(0, 9)),
    min_size=1,
    max_size=40,
    unique=True,
).map(lambda queues: sorted(queues, key=queue_order))
SHARING: list[AllocateMessageQueueStrategy] = [
    AllocateMessageQueueAveragely(),
    AllocateMessageQueueAveragelyByCircle(),
    AllocateMessageQueueByMachineRoom(frozenset({"r1", "r2"})),
    AllocateMessageQueueConsistentHash(),
    AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), lambda queue: str(queue.brokerName)[:2], lambda cid: f"r{len(cid)}"),
]


@pytest.mark.parametrize("strategy", SHARING, ids=lambda strategy: strategy.name)
@given(clients=CLIENTS, queues=QUEUES)
def test_each_queue_belongs_to_exactly_one_of_the_clients(
    strategy: AllocateMessageQueueStrategy, clients: list[str], queues: list[MessageQueue]
) -> None:
    shares = [strategy.allocate(client, queues, clients) or [] for client in clients]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)


@pytest.mark.parametrize("strategy", SHARING[:3], ids=lambda strategy: strategy.name)
@given(clients=CLIENTS, queues=QUEUES)
def test_even_shares_differ_by_one_at_most(strategy: AllocateMessageQueueStrategy, clients: list[str], queues: list[MessageQueue]) -> None:
    sizes = [len(strategy.allocate(client, queues, clients) or []) for client in clients]
    assert sum(sizes) == len(queues)
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(clients=CLIENTS, queues=QUEUES, gone=st.data())
def test_a_client_that_leaves_a_ring_moves_only_its_own_queues(clients: list[str], queues: list[MessageQueue], gone: st.DataObject) -> None:
    leaving = gone.draw(st.sampled_from(clients))
    before, after = ConsistentHashRouter(clients, 10), ConsistentHashRouter([client for client in clients if client != leaving], 10)
    moved = [queue for queue in queues if before.route(str(queue)) != after.route(str(queue))]
    assert all(before.route(str(queue)) == leaving for queue in moved)


def test_the_place_of_a_name_is_the_first_four_bytes_of_its_md5() -> None:
    # RFC 1321: MD5 ("a") = 0cc175b9c0f1b6a831c399e269772661
    assert hash_of("a") == 0x0CC175B9


def test_a_ring_without_places_has_no_clients() -> None:
    assert ConsistentHashRouter(["a"], 0).route("x") is None


@pytest.mark.parametrize(("broker_name", "given_out"), [("r@b", 1), ("r@b@@", 1), ("r@", 0), ("r", 0), ("r@b@c", 0), ("@b", 0)])
def test_a_machine_room_is_the_first_of_two_parts_of_a_brokers_name(broker_name: str, given_out: int) -> None:
    strategy = AllocateMessageQueueByMachineRoom(frozenset({"r"}))
    assert len(strategy.allocate("c", [MessageQueue("T", broker_name, 0)], ["c"])) == given_out


def test_a_queue_without_a_broker_and_a_room_without_queues_are_thrown_over() -> None:
    with pytest.raises(ThrownError) as raised:
        AllocateMessageQueueByMachineRoom(frozenset()).allocate("c", [MessageQueue("T", None, 0)], ["c"])
    assert raised.value.java_class == NULL_POINTER
    nearby = AllocateMachineRoomNearby(AllocateMessageQueueByConfig(), lambda _: "r", lambda _: "r")
    with pytest.raises(ThrownError) as raised:
        nearby.allocate("c", [MessageQueue("T", "b", 0)], ["c"])
    assert raised.value.java_class == NULL_POINTER


@pytest.mark.parametrize(("client", "blank"), [(" ", True), ("\u2003\t", True), ("\xa0", False), ("\x85", False)])
def test_a_blank_client_is_none(client: str, blank: bool) -> None:
    strategy = AllocateMessageQueueByMachineRoom(frozenset())
    if blank:
        with pytest.raises(ThrownError) as raised:
            strategy.allocate(client, [MessageQueue("T", "b", 0)], [client])
        assert raised.value.java_class == ILLEGAL_ARGUMENT
    else:
        assert strategy.allocate(client, [MessageQueue("T", "b", 0)], [client]) == []
