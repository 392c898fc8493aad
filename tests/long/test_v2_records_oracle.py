"""A real 5.5.0 broker writes V2 records: it and pullsim recover, look up, answer and keep its store alike, also when bytes are damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.main import run
from tests.makers.store_trees import differing, tree
from tests.runs.in_session import pullsim_in
from tests.runs.mutated_recoveries import check_recoveries, recovered
from tests.truth.golden5 import without_own_files
from tests.truth.live_broker import PORT, LiveBroker
from tests.truth.oracle import load, needs_oracle, oracle
from tests.truth.raw_client import CONSUMER_SEND_MSG_BACK, SEND_MESSAGE, UPDATE_AND_CREATE_TOPIC, RawClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_oracle()
V5 = "5.5.0"
STORES = int(os.environ.get("PULLSIM_MUTATED", "40"))
SEED = int(os.environ.get("PULLSIM_SEED", "0")) or random.SystemRandom().randrange(2**31)
SIZES = {"mappedFileSizeCommitLog": 20_000, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 1000, "maxIndexNum": 4000}
CONFIG = ",".join(f"{name}={value}" for name, value in SIZES.items())
# retry topics of 127, 128, 207 and 255 characters; an administrator may create only the first of these groups
GROUPS = ["g" * length for length in (120, 121, 200, 248)]
TOPICS = ["T", *(f"%RETRY%{group}" for group in GROUPS)]
SETTINGS = [word for name, value in SIZES.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the broker wrote and shut down, with a record of each topic in turn."""
    broker = LiveBroker(tmp_path_factory.mktemp("broker"), V5, "".join(f"{name}={value}\n" for name, value in SIZES.items()))
    (broker.store / "config").mkdir()
    groups = {group: {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16} for group in GROUPS}
    (broker.store / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}), "utf-8")
    with broker.broker(), RawClient(PORT) as client:
        topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        topic |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        assert client.code_of(UPDATE_AND_CREATE_TOPIC, topic) == 0
        codes = [client.code_of(SEND_MESSAGE, sent(number), b"x" * (1 + number * 9)) for number in range(60)]
        back = {"offset": 0, "group": GROUPS[-1], "delayLevel": 1, "originMsgId": "x", "originTopic": "T", "unitMode": "false"}
        codes.append(client.code_of(CONSUMER_SEND_MSG_BACK, back | {"maxReconsumeTimes": 16}))
        assert codes == [0] * len(codes)
        time.sleep(4)  # the message of the delay level is due
    broker.store.with_name(f"{broker.store.name}.meta.json").write_text(json.dumps({"config": SIZES, "tags": ["A", "B"]}), "utf-8")
    return broker.store


def sent(number: int) -> dict[str, object]:
    """The fields of a message."""
    uniq_key = f"{number:032X}"
    texts = {"KEYS": f"k{number} k", "TAGS": "AB"[number % 2], "UNIQ_KEY": uniq_key, "WAIT": "true", "price": str(number)}
    return {
        "producerGroup": "P",
        "topic": TOPICS[number % len(TOPICS)],
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 2,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_000,
        "flag": number,
        "properties": "\x02".join(f"{name}\x01{value}" for name, value in texts.items()),
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
        "maxReconsumeTimes": 16,
    }


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_broker_wrote_records_of_both_versions(store: Path) -> None:
    magics = []
    for file in sorted((store / "commitlog").iterdir()):
        raw, at = file.read_bytes(), 0
        while struct.unpack_from(">I", raw, at + 4)[0] in (0xDAA320A7, 0xDAA320AB):
            magics.append(raw[at + 7])
            at += struct.unpack_from(">i", raw, at)[0]
    assert magics[:60] == [0xA7, 0xA7, 0xAB, 0xAB, 0xAB] * 12
    assert magics[60:] == [0xA7, 0xAB]  # the delayed message, and the same in the retry topic


def test_the_store_recovers_as_in_the_broker(store: Path, tmp_path: Path) -> None:
    oracle("recover", "--store", store, "--config", CONFIG, "--out", tmp_path / "recorded.json", version=V5)
    recorded = json.loads((tmp_path / "recorded.json").read_text("utf-8"))
    assert recovered(store, recorded["config"], V5) == without_own_files(recorded)


@pytest.mark.parametrize("way", ["mutated", "killed"])
def test_damaged_stores_recover_as_in_the_broker(store: Path, tmp_path: Path, way: str) -> None:
    """Mutated copies; those of "killed" have no queues and an abort file, so the broker walks the whole log."""
    whole = tmp_path / "whole"
    shutil.copytree(store, whole, copy_function=shutil.copy2)
    shutil.copy2(f"{store}.meta.json", f"{whole}.meta.json")
    if way == "killed":
        (whole / "abort").touch()
        shutil.rmtree(whole / "consumequeue")
    check_recoveries(whole, tmp_path, V5, range(SEED, SEED + STORES))


def test_look_ups_are_those_of_the_broker(store: Path, tmp_path: Path) -> None:
    oracle("lookup", "--store", store, "--config", CONFIG, "--n", "60", "--seed", "1", "--out", tmp_path / "some", version=V5)
    header, *some = lines_of(tmp_path / "some")
    keys = [(topic, key) for topic in TOPICS for key in ("k", *(f"k{number}" for number in range(60)))]
    more = [{"op": "queryMessage", "topic": topic, "key": key, "maxNum": 32, "begin": 0, "end": 2**62} for topic, key in keys]
    asked = tmp_path / "asked"
    asked.write_text("".join(json.dumps(line) + "\n" for line in [header, *some, *more]), "utf-8")
    oracle("lookup", "--store", store, "--like", asked, "--out", tmp_path / "recorded", version=V5)
    assert run(["lookup", str(store), "--requests", str(tmp_path / "recorded"), "--out", str(tmp_path / "ours")]) == 0
    recorded = lines_of(tmp_path / "recorded")
    assert lines_of(tmp_path / "ours") == recorded
    assert sum(len(line.get("phyOffsets", ())) for line in recorded) > 100


@pytest.mark.parametrize("by_spark", [False, True])
def test_pulls_and_files_are_those_of_the_broker(
    by_spark: bool, spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pullsim = pullsim_in(spark, monkeypatch, capsys)
    filters = [None, {"type": "TAG", "expression": "A"}, *({"type": "SQL92", "expression": text} for text in ("price > 30", "TAGS = 'B'"))]
    pull = {"group": "g", "queueId": 0, "offset": 0, "maxMsgNums": 32}
    requests = tmp_path / "requests"
    pulls = [{"request": pull | {"topic": topic, "filter": one}} for topic in TOPICS for one in filters]
    requests.write_text("".join(json.dumps(one) + "\n" for one in pulls), "utf-8")
    asked = ("--requests", requests, "--random", "100", "--drain", "40", "--edges", "--seed", "1")
    oracle("trace", "--store", store, "--config", CONFIG, *asked, "--out", tmp_path / "trace", version=V5)
    lake, options = tmp_path / "lake", ("--conf", "spark.ui.enabled=false") if by_spark else ()
    assert pullsim("import", store, "--lake", lake, "--broker-name", "b", *SETTINGS, *options)[0] == 0
    assert pullsim("replay", "--lake", lake, "--requests", tmp_path / "trace", "--out", tmp_path / "answers", *options)[0] == 0
    assert lines_of(tmp_path / "answers") == lines_of(tmp_path / "trace")[1:]
    assert pullsim("export", "--lake", lake, tmp_path / "out" / "store", *options)[0] == 0
    assert differing(tree(tmp_path / "out" / "store"), tree(store)) == []
    told = load(tmp_path / "out" / "store", SIZES, tmp_path / "load.json", version=V5)
    assert (told["loaded"], told["started"], told["messagesDispatchedAgain"], told["undecodable"]) == (True, "ok", 0, 0)
