"""What must hold for any bytes of files that people write: scenarios, workloads, settings, look-ups and frames. Targets of fuzzing."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

from pipeline.generate.workload import read_workload
from pipeline.requests.frames import run_frames
from pipeline.requests.request_file import Chunk
from pipeline.requests.request_lines import RequestError
from pipeline.scenarios.scenario_file import Scenario, read_chunk, scenario_of
from pipeline.scenarios.scenario_job import _events_of
from pipeline.settings.settings import BrokerSettings
from pipeline.simulation.plans import plan_of
from pipeline.simulation.scenario import located, read_scenario, scenario_text
from pipeline.store.lookup import run_lookup
from pipeline.stream.request_stream import RequestStreamReader
from tests.runs.fuzz_files import place, small_store
from tests.truth.places import PROJECT
from udfs.broker.memory_store import LogExtent

EXAMPLES = PROJECT / "examples"
# a scenario with greater numbers than these is left out: it may take long
_MOST = {"count": 100, "bodySize": 10_000, "last": 100, "ms": 100_000, "noResponseMs": 100_000, "readQueueNums": 16, "writeQueueNums": 16}
TOML_WORDS = (
    *(b"[[topics]]\n", b"[[groups]]\n", b"[settings]\n", b"[messages]\n", b"[[clients]]\n", b"[listener]\n", b"[transactions]\n"),
    *(b" = ", b"\n", b'"""', b"'''", b"{", b"}", b"[", b"]", b"1979-05-27T07:32:00Z", b"07:32", b"1e308", b"-1", b"nan", b"inf", b"0x10"),
    *(b"true", b"9223372036854775807", b"9223372036854775808", b'"\\ud800"', b'"10 GB"', b'"5m"', b'"99999999d"', b"\xef\xbb\xbf", b"\0"),
)
PROPERTIES_WORDS = (b"=", b":", b"\\u00e9", b"\\ud83d", b"\\u12", b"\\\n", b"#", b"!", b"\r\n", b"9223372036854775808", b"true", b"  ")


def _written(name: str, raw: bytes) -> str:
    path = place(name)
    path.write_bytes(raw)
    return str(path)


# scenarios ----------------------------------------------------------------------------------------------------------------------------


@cache
def scenario_seeds() -> list[bytes]:
    """Scenarios of each kind of step, as recorded of a broker."""
    steps: list[dict[str, Any]] = [
        {"op": "topic", "topic": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6},
        {"op": "group", "group": "G", "config": {"consumeEnable": True, "retryQueueNums": 1}},
        {"op": "send", "topic": "T", "queueId": 0, "messages": [{"tags": "a", "props": {"k": "v"}}, {"bodySize": 5}]},
        {"op": "send", "topic": "T", "queueId": 1, "count": 3, "template": {"tags": "b", "keys": "k"}},
        {"op": "send", "topic": "T", "queueId": 0, "messages": [{"props": {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}}]},
    ]
    ext = {"consumerGroup": "G", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 6, "subVersion": 1}
    heard = {"topic": "T", "subString": "a > 1", "subVersion": 1, "expressionType": "SQL92"}
    pulls: list[dict[str, Any]] = [
        {"op": "heartbeat", "clientId": "c", "group": "G", "subscriptions": [heard]},
        {"op": "pull", "id": "p", "ext": ext | {"queueOffset": 9, "suspendTimeoutMillis": 1000}},
        {"op": "await", "id": "p"},
        {"op": "request", "code": 11, "ext": ext, "noResponseMs": 50},
        {"op": "drain", "ext": ext},
        {"op": "sendBack", "group": "G", "originTopic": "T", "queueId": 0, "queueOffset": 0, "delayLevel": 0},
        {"op": "disconnect", "client": "c1"},
    ]
    changes: list[dict[str, Any]] = [
        {"op": "brokerConfig", "set": {"longPollingEnable": False}},
        {"op": "storeConfig", "set": {"maxTransferCountOnMessageInMemory": 2}},
        {"op": "minOffset", "topic": "T", "queueId": 0, "offset": 1},
        {"op": "consumerOffset", "group": "G", "topic": "T", "queueId": 0},
        {"op": "queueRange", "topic": "T", "queueId": 0},
        {"op": "readStored", "topic": "T", "queueId": 0, "last": 2},
        {"op": "filterState", "group": "G", "topic": "T"},
        {"op": "groupState", "group": "G"},
        {"op": "sleep", "ms": 5000},
        {"op": "deleteCommitLogHead"},
        {"op": "replicate", "topic": "T", "queueId": 0},
    ]
    light = {"enableLmq": True, "enableMultiDispatch": True}
    bases: list[dict[str, Any]] = [{}, light, light | {"rulesVersion": "5.5.0"}]
    whole = [{"name": "one", "brokerBase": base, "steps": steps + more} for base in bases for more in (pulls, changes)]
    return [*(json.dumps(one).encode() for one in whole), (EXAMPLES / "scenarios.jsonl").read_bytes().split(b"\n", 1)[0]]


def use_scenarios(raw: bytes) -> None:
    """Check that a line is refused, or that its broker takes all of its steps."""
    for number, text in read_chunk(_written("x.jsonl", raw), Chunk(start=0, end=len(raw), first_line=1)):
        scenario = scenario_of("x.jsonl", number, text)
        if _is_small(scenario):
            events = _events_of(scenario, LogExtent())
            assert events[-1]["kind"] == "line"


def _is_small(scenario: Scenario) -> bool:
    numbers = ((step.get(name), most) for step in scenario.steps for name, most in _MOST.items())
    return not any(isinstance(number, int) and number > most for number, most in numbers)


# TOML and properties ------------------------------------------------------------------------------------------------------------------


def workload_seeds() -> list[bytes]:
    """Workloads as TOML."""
    small = b'messages = 5\nstore_host = "[::1]:5"\n[[topics]]\nname = "T"\ntransactions = { commit = 1 }\n'
    return [(EXAMPLES / "workload.toml").read_bytes(), small]


def json_workload_seeds() -> list[bytes]:
    """Workloads as JSON."""
    topic = {"name": "T", "rate": 5, "tags": {"a": 1, "": 2}, "keys": {"count": [1, 2]}, "delay_levels": {"0": 1}, "producers": ["[::1]:5"]}
    groups = [{"name": "g", "topics": ["T"], "lag": 5}]
    return [json.dumps({"duration": "5m", "settings": {"maxIndexNum": 50}, "topics": [topic], "groups": groups}).encode()]


def use_workload(name: str) -> Callable[[bytes], None]:
    """Check that a workload, in a file of a name, is refused, or has a number of messages."""

    def use(raw: bytes) -> None:
        assert read_workload(_written(name, raw)).count >= 0

    return use


_OF_A_GROUP = """
group = "g"
topic = "T"
until = "1m"
[messages]
rate = 5
"""
_TRANSACTIONS = """
[transactions]
commits = 0.7
rolls_back = 0.3
takes = "1ms"
[[clients]]
"""
_CLIENTS = """
queues = 2
[listener]
orderly = true
[broker]
maxTransferCountOnMessageInMemory = 5
[[clients]]
count = 2
joins = "5s"
crashes = "9s"
"""


def simulation_seeds() -> list[bytes]:
    """Scenarios of a group: with clients that crash, and with transactions."""
    return [(EXAMPLES / "slow.toml").read_bytes(), (_OF_A_GROUP + _TRANSACTIONS).encode(), (_OF_A_GROUP + _CLIENTS).encode()]


def use_simulation(raw: bytes) -> None:
    """Check that a scenario is refused, or becomes a plan."""
    path = _written("group.toml", raw)
    text = scenario_text(path)
    for variant in read_scenario(text, path):
        with located(path, text):
            plan_of(variant.scenario, 1, path)


def properties_seeds() -> list[bytes]:
    """Settings as a broker.conf has them."""
    text = b"brokerName=broker-a\nbrokerId = 0\n# \xe9\nmessageDelayLevel : 1s 5s\nmaxIndexNum=400\nbrokerRole=ASYNC_MASTER\n"
    other = b"enablePropertyFilter=true\r\ndeleteWhen=04\\\n 05\r\nbrokerName=\\u6807\n"
    return [text, other, b"timerWheelEnable=true\nbrokerIP1=10.0.0.1\n"]


def use_properties(raw: bytes) -> None:
    """Check that settings are refused, or have a version."""
    assert BrokerSettings.from_sources(properties=_written("broker.conf", raw)).told_version.isprintable()


# look-ups and frames ------------------------------------------------------------------------------------------------------------------


def lookup_seeds() -> list[bytes]:
    """Look-ups of each operation, with and without a header."""
    queue, time = {"topic": "TopicTest", "queueId": 0}, 1_600_000_000_000
    lines: list[dict[str, Any]] = [
        {"kind": "lookup", "config": {"maxHashSlotNum": 100}, "consumeQueueFileMtimesMs": {"consumequeue/TopicTest/0/0": time}},
        {"op": "getOffsetInQueueByTime", **queue, "timestamp": time},
        {"op": "getMessageStoreTimeStamp", **queue, "consumeQueueOffset": 3},
        {"op": "getEarliestMessageTime", **queue},
        {"op": "getEarliestMessageTimeOfStore"},
        {"op": "queryMessage", "topic": "TopicTest", "key": "k", "maxNum": 5, "begin": 0, "end": 2 * time},
        {"op": "lookMessageByOffset", "commitLogOffset": 0},
    ]
    texts = [json.dumps(line).encode() for line in lines]
    return [b"\n".join(texts), *texts[1:]]


def use_lookups(raw: bytes) -> None:
    """Check that look-ups are refused, or that each line has an answer."""
    path, out = _written("lookups.jsonl", raw), place("answers.jsonl")
    settings = BrokerSettings.from_sources(options=["maxHashSlotNum=100", "maxIndexNum=600"])
    told = run_lookup(str(small_store()), path, str(out), settings_of=lambda _: settings, progress=lambda _: None)
    answers = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert sum("op" in answer for answer in answers) == told.requests


def frame_file_seeds() -> list[bytes]:
    """Frames of pulls, and lines of a stream of other kinds."""
    frames = (EXAMPLES / "frames.jsonl").read_bytes().splitlines()
    request = b'{"request": {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "maxMsgNums": 32, "filter": null}}'
    return [*frames[:6], b'{"kind": "heartbeat", "timestamp": 5}', request + b"\n" + frames[0] + b"\n"]


def use_frame_file(raw: bytes) -> None:
    """Check that frames are refused, or that each line is decoded; the same bytes as a file of a stream have rows."""
    _use_stream(raw)
    out = place("frames-out.jsonl")
    done = run_frames(_written("frames.jsonl", raw), str(out))
    assert len(out.read_bytes().splitlines()) == done.frames


def _use_stream(raw: bytes) -> None:
    folder, log = place("incoming"), place("log")
    for one in (folder, log):
        shutil.rmtree(one, ignore_errors=True)
    folder.mkdir()
    (folder / "x.jsonl").write_bytes(raw)
    reader = RequestStreamReader(str(folder), str(log), 5)
    end = reader.latestOffset({"entry": 0}, reader.getDefaultReadLimit())
    for part in reader.partitions({"entry": 0}, end):
        with contextlib.suppress(RequestError):
            list(reader.read(part))
