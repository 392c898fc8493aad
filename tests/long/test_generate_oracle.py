"""Stores that we write, loaded and served by the real broker; and stores that it writes now, written again by us to the byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.generate.generate import run_generate
from pipeline.generate.workload import DEFAULT_WORKLOAD, workload_of
from pipeline.settings.settings import BrokerSettings
from pipeline.simulation.scenario import read_scenario
from pipeline.simulation.written_run import write_run
from store_format.record.message import Message
from tests.makers.appended import messages_of, put_again
from tests.runs.replaying import all_lines
from tests.truth.golden import meta_of
from tests.truth.oracle import generate, load, needs_oracle, oracle
from udfs.broker.schedule import parse_delay_level

pytestmark = needs_oracle()

Entries = dict[tuple[str, int], list[Message]]
HIDDEN = {0x4, 0xC}
SMALL = {"mappedFileSizeCommitLog": 100_003, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100, "maxIndexNum": 700}
MIXED: dict[str, Any] = {
    "messages": 4000,
    "store_host": "[2001:db8::9]:10911",
    "topics": [
        {
            "name": "T1",
            "queues": 3,
            "skew": 1,
            "tags": {"A": 1, "Aa": 2, "": 1, "🚀": 1},
            "keys": {"count": [0, 3], "distinct": 50},
            "delay_levels": {"0": 8, "1": 1, "5": 1, "99": 1},
            "transactions": {"none": 7, "prepared": 1, "commit": 1, "rollback": 1},
            "producers": ["10.1.1.1:4000", "[2001:db8::1]:5000"],
            "properties": {"price": ["1", "2"], "color": {"red": 1, "": 1}, "ключ": ["значение"]},
        },
        {"name": "B", "queues": 2, "rate": 50, "batch": [1, 40], "body": [0, 1000], "tags": ["x"]},
        {"name": "empty", "rate": 1, "body": 0, "unique_keys": False},
    ],
    "groups": [{"name": "g", "topics": ["T1", "B"], "lag": 30}],
}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("small files", MIXED, SMALL),
    ("default workload", DEFAULT_WORKLOAD, {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 1000, "maxIndexNum": 4000}),
    ("extension", MIXED, SMALL | {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1999}),
    ("other delay levels", MIXED, SMALL | {"messageDelayLevel": "2s 7m 1d", "mappedFileSizeConsumeQueue": 1000}),
    ("no index", MIXED, SMALL | {"messageIndexEnable": False, "mappedFileSizeCommitLog": 77_777}),
    # not one entry a file: the broker's load of such a store, which it wrote itself, does not end
    ("two entries a file", MIXED | {"messages": 300}, SMALL | {"mappedFileSizeConsumeQueue": 40, "maxIndexNum": 2, "maxHashSlotNum": 1}),
]


def entries_of(store: Path, delays: int) -> Entries:
    """The messages of each queue, in order."""
    found: Entries = {}
    for one in messages_of(store):
        if one.message.sys_flag & 0xC not in HIDDEN:
            found.setdefault((one.message.topic.decode(), one.message.queue_id), []).append(one.message)
    for queue in range(delays):
        found.setdefault(("SCHEDULE_TOPIC_XXXX", queue), [])
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def sum_of(entries: Entries) -> str:
    total = hashlib.sha256()
    for topic, queue_id in sorted(entries):
        for message in entries[topic, queue_id]:
            head = f"{topic}\n{queue_id}\n{message.queue_offset}\n{message.msg_id}\n{len(message.body)}\n"
            total.update(head.encode() + message.body)
    return total.hexdigest()


@pytest.mark.parametrize(("workload", "config"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_broker_takes_the_store_and_serves_every_message(tmp_path: Path, workload: dict[str, Any], config: dict[str, Any]) -> None:
    store = tmp_path / "store"
    done = run_generate(str(store), workload_of(workload, "here"), settings=BrokerSettings(config))
    assert_served(store, config, done.log_end, tmp_path)


SIMULATED = f"""\
group = "g"
topic = "orders"
until = "1h"
[messages]
rate = 20
lasts = "3m"
queues = 3
backlog = 50
tags = {{ paid = 1, sent = 2 }}
[transactions]
commits = 0.7
rolls_back = 0.1
takes = {{ mean = "15s" }}
decides = "90s"
[broker]
transactionCheckMax = 2
mappedFileSizeConsumeQueue = {SMALL["mappedFileSizeConsumeQueue"]}
[listener]
takes = "30ms"
fails = 0.1
poison = 0.02
[consumer]
maxReconsumeTimes = 3
[[clients]]
count = 2
"""


WITHOUT_TRANSACTIONS = SIMULATED[: SIMULATED.index("[tr")] + SIMULATED[SIMULATED.index("[broker]") :].replace(
    "transactionCheckMax = 2\n", ""
)
SCENARIOS = {"transactions": SIMULATED, "delays": WITHOUT_TRANSACTIONS.replace("[broker]", "delay = 2\n[broker]")}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_broker_takes_the_store_of_a_simulated_run(tmp_path: Path, scenario: str) -> None:
    (variant,) = read_scenario(scenario, "here")
    done = write_run(str(tmp_path / "store"), variant.scenario, "here", BrokerSettings(SMALL))
    assert_served(tmp_path / "store", SMALL, done.log_end, tmp_path)


def assert_served(store: Path, config: dict[str, Any], log_end: int, tmp_path: Path) -> None:
    """Assert that the broker loads the store without a change, and serves every message of every queue."""
    broker = BrokerSettings(config)
    entries = entries_of(store, len(parse_delay_level(broker.value("messageDelayLevel"))))
    told = load(store, {name: value for name, value in config.items() if name != "messageDelayLevel"}, tmp_path / "load.json")
    assert (told["loaded"], told["started"], told["cleanShutdownBefore"]) == (True, "ok", True)
    assert (told["messagesDispatchedAgain"], told["undecodable"], told["maxPhyOffset"]) == (0, 0, log_end)
    assert told["filesChanged"] == {"added": [], "removed": [], "changed": []}
    if broker.value("messageIndexEnable"):
        assert told["index"]["keysFound"] == told["index"]["keysSampled"] > 0
    assert told["messages"] == sum(map(len, entries.values()))
    ours = {key: len(found) for key, found in entries.items() if found}
    assert {(queue["topic"], queue["queueId"]): queue["max"] for queue in told["queues"] if queue["max"]} == ours
    assert told["sha256"] == sum_of({key: found for key, found in entries.items() if found})
    assert_drained(store, config, entries, tmp_path)


def assert_drained(store: Path, config: Mapping[str, Any], entries: Entries, tmp_path: Path) -> None:
    """Pull every queue from its begin to its end, a consume queue file at a time, and compare the messages."""
    a_file = BrokerSettings(dict(config)).value("mappedFileSizeConsumeQueue") // 20
    a_pull = min(a_file, 500)
    asked = [
        {"request": {"group": "g", "topic": topic, "queueId": queue_id, "offset": offset, "maxMsgNums": a_pull, "filter": None}}
        for (topic, queue_id), found in entries.items()
        for start in range(0, len(found), a_file)
        for offset in range(start, min(start + a_file, len(found)), a_pull)
    ]
    requests, out = tmp_path / "requests.jsonl", tmp_path / "trace.jsonl"
    requests.write_text("".join(json.dumps(line) + "\n" for line in asked), encoding="utf-8")
    caps = {f"maxTransfer{what}OnMessageIn{where}": 2**30 for what in ("Bytes", "Count") for where in ("Memory", "Disk")}
    given = {name: _text(value) for name, value in {**config, **caps}.items() if name != "messageDelayLevel"}
    options = ",".join(f"{name}={value}" for name, value in given.items())
    oracle("trace", "--store", store, "--requests", requests, "--out", out, "--config", options)
    served: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for line in all_lines(out)[1:]:
        request, response = line["request"], line["response"]
        key = request["topic"], request["queueId"]
        assert (response["status"], response["minOffset"], response["maxOffset"]) == ("FOUND", 0, len(entries[key]))
        fields = ("queueOffset", "physicOffset", "storeSize", "bodyCrc", "storeTimestamp")
        served.setdefault(key, []).extend(tuple(message[name] for name in fields) for message in response["messages"])
    expected = {
        key: [(one.queue_offset, one.physic_offset, one.store_size, one.body_crc, one.store_timestamp) for one in found]
        for key, found in entries.items()
        if found
    }
    assert served == expected


AGAIN = [
    ("basic", 51, "mappedFileSizeCommitLog=150001,mappedFileSizeConsumeQueue=41,maxHashSlotNum=3,maxIndexNum=700"),
    ("basic", 52, "maxMessageSize=65536,mappedFileSizeCommitLog=90001,mappedFileSizeConsumeQueue=6001"),
    ("small", 53, "mappedFileSizeCommitLog=40003,mappedFileSizeConsumeQueue=333,maxHashSlotNum=1,maxIndexNum=300"),
    ("window", 54, "mappedFileSizeConsumeQueue=15981"),
]


@pytest.mark.parametrize(("profile", "seed", "config"), AGAIN)
def test_what_the_broker_stores_now_is_stored_again_to_the_byte(tmp_path: Path, profile: str, seed: int, config: str) -> None:
    store = generate(tmp_path / "store", profile, seed, config)
    put_again(messages_of(store), tmp_path / "again", meta_of(store)["config"], [400, 1])
    theirs, ours = (
        {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file() and "config" not in path.parts}
        for root in (store, tmp_path / "again")
    )
    assert sorted(theirs) == sorted(ours)
    assert [name for name in theirs if theirs[name] != ours[name] and name != "checkpoint"] == []
    # the second number may be that of an older message: the flush thread writes the value that it read before it flushed
    assert (theirs["checkpoint"][:8], theirs["checkpoint"][16:]) == (ours["checkpoint"][:8], ours["checkpoint"][16:])
