"""Parts of stores that the real broker writes now, loaded by it as they are; it serves each of their messages, and finds them by key."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.export.part_plan import Bound, Part
from store_format.record.message import Message
from tests.makers.exported_parts import Files, assert_is_part, export_part
from tests.runs.replaying import all_lines, import_into
from tests.truth.golden import meta_of
from tests.truth.oracle import generate, load, needs_oracle, oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_oracle()

Queue = tuple[str, int]
SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")


def at(value: int) -> Bound:
    return Bound(value, is_time=False)


CASES = [
    ("basic", 61, "", Part(topics=("OrderEvents",))),
    ("basic", 62, "mappedFileSizeCommitLog=150001,mappedFileSizeConsumeQueue=41", Part(first=at(5), after=at(60))),
    ("small", 63, "mappedFileSizeCommitLog=40003,mappedFileSizeConsumeQueue=333,maxHashSlotNum=7,maxIndexNum=300", Part(first=at(17))),
    ("small", 64, "maxHashSlotNum=1,maxIndexNum=90", Part(first=at(1), after=at(2))),
    ("window", 65, "mappedFileSizeConsumeQueue=15981", Part(first=at(799), after=at(2500))),
    ("cleaned", 66, "mappedFileSizeConsumeQueue=777", Part(after=at(10**9))),
    ("preblank1", 67, "mappedFileSizeConsumeQueue=333", Part(first=at(0))),
    ("lmq", 68, "", Part(first=at(2))),
]


def messages_of(store: Path) -> dict[Queue, dict[int, Message]]:
    return {queue: {offset: message for offset, (message, _) in found.items()} for queue, found in Files(store).messages().items()}


def sum_of(found: dict[Queue, dict[int, Message]]) -> str:
    """The checksum of messages as the harness computes it: topics are in Java's order."""
    total = hashlib.sha256()
    for topic, queue_id in sorted(found, key=lambda queue: (queue[0].encode("utf-16-be"), queue[1])):
        for _, one in sorted(found[topic, queue_id].items()):
            total.update(f"{topic}\n{queue_id}\n{one.queue_offset}\n{one.msg_id}\n{len(one.body)}\n".encode() + one.body)
    return total.hexdigest()


@pytest.mark.parametrize(("profile", "seed", "config", "part"), CASES)
def test_the_broker_takes_a_part_and_serves_every_message(
    spark: SparkSession, tmp_path: Path, profile: str, seed: int, config: str, part: Part
) -> None:
    store, out = generate(tmp_path / "store", profile, seed, config), tmp_path / "exported" / "store"
    known: dict[str, Any] = {name: value for name, value in meta_of(store)["config"].items() if name in SIZES}
    lake = import_into(spark, tmp_path / "lake", store, options=[f"{name}={value}" for name, value in known.items()])
    out.parent.mkdir()
    export_part(lake, out, part)
    assert_is_part(store, out, part)
    told = load(out, known, tmp_path / "load.json")
    assert (told["loaded"], told["started"], told["cleanShutdownBefore"]) == (True, "ok", True)
    assert (told["messagesDispatchedAgain"], told["undecodable"]) == (0, 0)
    assert told["filesChanged"] == {"added": [], "removed": [], "changed": []}
    assert told["index"]["keysFound"] == told["index"]["keysSampled"] > 0
    found = messages_of(out)
    assert told["messages"] == sum(map(len, found.values()))
    bounds = {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in told["queues"] if queue["max"]}
    assert bounds == {queue: (min(offsets), max(offsets) + 1) for queue, offsets in found.items()}
    assert told["sha256"] == sum_of(found)
    assert_served(out, known, found, tmp_path)


def assert_served(store: Path, config: dict[str, Any], found: dict[Queue, dict[int, Message]], tmp_path: Path) -> None:
    """Assert that the broker serves each message, pulled alone from its offset."""
    asked = [
        {"request": {"group": "g", "topic": topic, "queueId": queue_id, "offset": offset, "maxMsgNums": 1, "filter": None}}
        for (topic, queue_id), offsets in found.items()
        for offset in offsets
    ]
    requests, out = tmp_path / "requests.jsonl", tmp_path / "trace.jsonl"
    requests.write_text("".join(json.dumps(line) + "\n" for line in asked), encoding="utf-8")
    options = ",".join(f"{name}={value}" for name, value in (config | {"memory": 2**40}).items())
    oracle("trace", "--store", store, "--requests", requests, "--out", out, "--config", options)
    answered = all_lines(out)[1:]
    assert len(answered) == len(asked)
    for line in answered:
        request, response = line["request"], line["response"]
        expected = found[request["topic"], request["queueId"]][request["offset"]]
        assert response["status"] == "FOUND", line
        told = [(one["physicOffset"], one["storeSize"], one["bodyCrc"], one["storeTimestamp"]) for one in response["messages"]]
        assert told == [(expected.physic_offset, expected.store_size, expected.body_crc, expected.store_timestamp)]
