"""Simulated groups compared with captured ones: on the messages of the captured run, with clients that start and stop as they did.

The broker's process and the clients logged which messages came, which clients were there when, and what each listener got. Times of
simulated and real threads differ, and the real listeners failed on other messages. That does not change what is compared: which client
got which messages, which client had which queue, and where the offsets ended.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.captured_groups import BROADCAST, MAIN, ORDER, CapturedGroups, Group, unpack_told
from tests.runs.sampling import slow_proof
from tests.truth.captured import committed
from tests.truth.golden import needs_golden
from tests.truth.oracle import harness, needs_oracle
from udfs.simulation import world as at
from udfs.simulation.group_engine import GroupEngine, WrittenRows
from udfs.simulation.group_plan import SECOND, GroupPlan
from udfs.simulation.group_run import GroupRun, Rebalanced

pytestmark = needs_golden
Message = tuple[int, int]  # queue and offset
NOW = "now"  # a run that is captured now, of another seed than the recorded ones
_CAN_CAPTURE = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "ip", "tcpdump")))
_TO_CAPTURE = [*needs_oracle(), slow_proof, pytest.mark.skipif(not _CAN_CAPTURE, reason="capturing needs root, unshare, ip and tcpdump")]


def given(capture: CapturedGroups, group: Group) -> dict[str, set[Message]]:
    """The messages of the group's topic that the listener of each client got."""
    found: dict[str, set[Message]] = defaultdict(set)
    for client, queue, offset, _ in capture.given(group):
        found[client].add((queue, offset))
    return found


def pulled(capture: CapturedGroups, group: Group, begins: int, ends: int) -> dict[str, set[int]]:
    """The queues of the topic that each client pulled in a time."""
    found: dict[str, set[int]] = defaultdict(set)
    for one in capture.pulled(group):
        if begins <= one.asked < ends and one.peer in capture.client_of_peer:
            found[capture.client_of_peer[one.peer]].add(one.queue)
    return found


def captured_now(folder: Path) -> Path:
    """Run the oracle's example of a capture in a folder, with a random seed; returns the folder."""
    shutil.copytree(harness().parent / "example" / "capture", folder)
    scenario = folder / "scenario.properties"
    scenario.write_text(re.sub("seed=.*", f"seed={random.randrange(2, 10**6)}", scenario.read_text("utf-8"), count=1), "utf-8")
    subprocess.run([harness(), "capture", folder], check=True, capture_output=True, timeout=600)
    return folder


@pytest.fixture(scope="module", params=["json", "rocketmq", pytest.param(NOW, marks=_TO_CAPTURE)])
def capture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CapturedGroups:
    folder = tmp_path_factory.mktemp("simulated")
    return CapturedGroups(captured_now(folder / NOW) if request.param == NOW else unpack_told(request.param, folder))


@dataclass(frozen=True)
class Simulated:
    """A simulated run: the messages that each client got of the topic, rebalances, and the committed offsets of the topic's queues."""

    given: dict[str, set[Message]]
    rebalances: list[Rebalanced]
    committed: list[int]


def simulated(plan: GroupPlan) -> Simulated:
    given: dict[str, set[Message]] = defaultdict(set)
    engine = GroupEngine(plan)
    run = GroupRun(plan, engine)

    def tell(told: WrittenRows) -> None:
        names = {client: plan.clients[number].client_id for number, client in run.clients()}
        for row in told.consumed.tolist():
            if row[at.C_QUEUE] < len(plan.queues):
                given[names[row[at.C_CLIENT]]].add((row[at.C_QUEUE], row[at.C_OFFSET]))

    run.run(sample=lambda _: False, tell=tell)
    engine.tell_rest(tell)
    return Simulated(given, run.rebalances, [engine.committed(queue) for queue in range(len(plan.queues))])


@pytest.mark.parametrize("group", [MAIN, ORDER], ids=lambda group: group.role)
def test_a_group_gets_the_messages_that_the_real_one_got_and_ends_where_it_ended(capture: CapturedGroups, group: Group) -> None:
    found, real = simulated(capture.plan(group)), given(capture, group)
    kept = capture.kept(capture.topic(group))
    ours, theirs = (
        {(queue, offset) for queue, offset in set().union(*one.values()) if offset >= kept[queue]} for one in (found.given, real)
    )
    assert ours == theirs
    assert len(theirs) > 300
    assert dict(enumerate(found.committed)) == committed(capture.folder, capture.topic(group), capture.name(group))


def test_each_client_that_broadcasts_gets_what_the_real_one_got(capture: CapturedGroups) -> None:
    found, real = simulated(capture.plan(BROADCAST)).given, given(capture, BROADCAST)
    assert found.keys() == real.keys()
    for client in found:
        # a message that comes while a client starts may be before or after the queue's end that the client gets
        assert len(found[client] ^ real[client]) <= 2, client
        assert len(real[client]) > 150


@pytest.mark.parametrize("group", [MAIN, ORDER], ids=lambda group: group.role)
def test_each_client_has_the_queues_that_the_real_one_had_between_two_rebalances(capture: CapturedGroups, group: Group) -> None:
    plan = capture.plan(group)
    events = simulated(plan).rebalances
    changes = sorted({moment for client in plan.clients for moment in (client.joins, client.leaves) if moment is not None})
    held: dict[str, set[int]] = defaultdict(set)
    compared = 0
    for begins, ends in pairwise(changes):
        for event in events:
            if begins <= event.time < ends and event.topic == plan.topic:
                held[event.client_id] -= {queue.queueId or 0 for queue in event.dropped}
                held[event.client_id] |= {queue.queueId or 0 for queue in event.taken}
        there = {client.client_id for client in plan.clients if client.joins <= begins and (client.leaves or 0) > begins}
        if ends - begins > 10 * SECOND:
            # from the second look of a client at its group on
            real = pulled(capture, group, begins + 2 * SECOND, ends)
            assert all(real[name] <= held[name] for name in there), (begins, real, held)
            compared += sum(len(real[name]) for name in there)
    assert compared
