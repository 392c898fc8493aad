"""`pullsim generate`: the same seed gives the same store, made by the rules of putMessage; a wrong workload is refused with the reason."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.generate import generate
from pipeline.generate.generate import run_generate
from pipeline.generate.workload import DEFAULT_WORKLOAD, workload_of
from pipeline.generate.workload_fields import FileTable, WorkloadError
from pipeline.main import run
from pipeline.settings.settings import BrokerSettings
from pipeline.store.recover import run_recover
from store_format.config.config_files import decode_consumer_offsets, decode_delay_offsets, decode_subscription_groups, decode_topic_configs
from store_format.log.commit_log import walk_checked
from store_format.log.put_message import PutSettings
from store_format.record.message import Message, decode
from tests.makers.appended import as_put
from tests.truth.places import PROJECT

SIZES = {"mappedFileSizeCommitLog": 50_003, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 50, "maxIndexNum": 400}
MIXED: dict[str, Any] = {
    "seed": 3,
    "messages": 2000,
    "settings": SIZES,
    "store_host": "[2001:db8::9]:10911",
    "topics": [
        {
            "name": "T1",
            "queues": 3,
            "skew": 1,
            "tags": {"A": 1, "B": 2, "": 1},
            "keys": {"count": [0, 3], "distinct": 50},
            "delay_levels": {"0": 8, "1": 1, "99": 1},
            "transactions": {"none": 7, "prepared": 1, "commit": 1, "rollback": 1},
            "producers": ["10.1.1.1:4000", "[2001:db8::1]:5000"],
            "properties": {"price": ["1", "2"], "color": {"red": 1, "": 1}, "ключ": ["значение"]},
        },
        {"name": "B", "queues": 2, "rate": 50, "batch": [1, 12], "body": [0, 400], "tags": ["x"]},
    ],
    "groups": [{"name": "g", "topics": ["T1", "B"], "lag": 30}, {"name": "h", "topics": ["B"]}],
}


def made(store: Path, workload: dict[str, Any] = MIXED, **options: Any) -> Path:
    run_generate(str(store), workload_of(workload, "here"), **options)
    return store


def everything(store: Path) -> dict[str, tuple[int, bytes]]:
    """Times and bytes of files, times of folders."""
    return {
        path.relative_to(store).as_posix(): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [store, *sorted(store.rglob("*"))]
    }


def messages_in(store: Path) -> list[Message]:
    found = []
    for path in sorted((store / "commitlog").iterdir()):
        raw = path.read_bytes()
        end, _ = walk_checked(np.frombuffer(raw, np.uint8), len(raw), check_crc=True)
        at = 0
        while at < end:
            message = decode(raw[at:])
            assert message is not None
            found.append(message)
            at += message.store_size
    return found


def test_the_same_seed_gives_the_same_bytes_and_times(tmp_path: Path) -> None:
    first = everything(made(tmp_path / "a"))
    assert everything(made(tmp_path / "b")) == first
    assert everything(made(tmp_path / "c", seed=4)).keys() != first.keys() or everything(tmp_path / "c") != first
    assert len([name for name in first if name.startswith("index/")]) > 2


def test_what_is_made_at_once_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = everything(made(tmp_path / "a"))
    monkeypatch.setattr(generate, "STRETCH", 37)
    assert everything(made(tmp_path / "b")) == first
    monkeypatch.setattr(generate, "STRETCH", 5000)
    monkeypatch.setattr(generate, "STRETCH_BYTES", 1)
    assert everything(made(tmp_path / "c")) == first


def test_records_are_those_that_putting_each_message_gives(tmp_path: Path) -> None:
    found = messages_in(made(tmp_path / "s"))
    assert len(found) == 2000
    put = PutSettings(max_delay_level=18)
    ends: Counter[tuple[bytes, int]] = Counter()
    for message in found:
        if message.topic != b"B":
            again = as_put(message, put)
            assert (again.topic, again.queue_id, again.properties) == (message.topic, message.queue_id, message.properties)
            assert (again.sys_flag, again.body_crc) == (message.sys_flag, message.body_crc)
        hidden = message.sys_flag & 0xC in {0x4, 0xC}
        assert message.queue_offset == (0 if hidden else ends[message.topic, message.queue_id])
        ends[message.topic, message.queue_id] += not hidden


def test_messages_are_as_the_workload_says(tmp_path: Path) -> None:
    found = messages_in(made(tmp_path / "s"))
    properties = [message.properties_map() for message in found]
    assert {one.get("CLUSTER") for one in properties} == {"DefaultCluster"}
    assert len({one["UNIQ_KEY"] for one in properties}) == len(found)
    plain = [(message, one) for message, one in zip(found, properties, strict=True) if message.topic == b"T1"]
    assert {one.get("TAGS") for _, one in plain} == {"A", "B", None}
    assert {len(one.get("KEYS", "").split()) for _, one in plain} == {0, 1, 2, 3}
    assert {one.get("color") for _, one in plain} == {"red", None}
    assert {one["ключ"] for _, one in plain} == {"значение"}
    assert {str(message.born_host) for message, _ in plain} == {"10.1.1.1:4000", "2001:db8::1:5000"}
    queues = Counter(message.queue_id for message, _ in plain)
    assert queues[0] > 1.5 * queues[1] > 1.5 * queues[2]
    delayed = Counter(message.queue_id for message in found if message.topic == b"SCHEDULE_TOPIC_XXXX")
    assert delayed.keys() == {0, 17}
    stamps = [message.store_timestamp for message in found]
    assert stamps == sorted(stamps)
    assert 10_000 < stamps[-1] - stamps[0] < 17_000  # 2000 messages at 150 a second
    batches = Counter((message.store_timestamp, message.queue_id) for message in found if message.topic == b"B")
    assert max(batches.values()) in range(10, 30)


def test_the_files_under_config_are_those_of_a_broker(tmp_path: Path) -> None:
    store = made(tmp_path / "s")
    config = {path.name: path.read_bytes() for path in (store / "config").iterdir()}
    topics = {row.topicName: row for row in decode_topic_configs(config["topics.json"], "t").topicConfigTable}
    assert topics["T1"].readQueueNums == topics["T1"].writeQueueNums == 3
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "%RETRY%g", "%RETRY%h"} < topics.keys()
    groups = {row.groupName for row in decode_subscription_groups(config["subscriptionGroup.json"], "s").subscriptionGroupTable}
    assert {"g", "h", "TOOLS_CONSUMER"} < groups
    offsets = decode_consumer_offsets(config["consumerOffset.json"], "c").offsetTable
    entries = Counter((message.topic, message.queue_id) for message in messages_in(store) if message.sys_flag & 0xC in {0, 8})
    assert offsets["T1@g"] == {queue: entries[b"T1", queue] - 30 for queue in range(3)}
    assert offsets["B@h"] == {queue: entries[b"B", queue] for queue in range(2)}
    assert decode_delay_offsets(config["delayOffset.json"], "d").offsetTable == {1: 0, 18: 0}


def test_the_command_makes_a_small_store_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--set={name}={value}" for name, value in SIZES.items()]
    assert run(["generate", str(tmp_path / "s"), "--messages", "300", "--seed", "9", *sizes]) == 0
    assert re.match(r"generated .*/s: 300 messages in \d+ queues, commit log 0 to \d+", capsys.readouterr().out)
    assert len(messages_in(tmp_path / "s")) == 300
    before = everything(tmp_path / "s")
    assert run(["generate", str(tmp_path / "s")]) == 2
    assert "expected a name for a new directory, or an empty one, found one that is not empty" in capsys.readouterr().err
    assert everything(tmp_path / "s") == before


@pytest.mark.parametrize("below", ["", "s"])
def test_a_file_in_the_place_of_the_store_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], below: str) -> None:
    (tmp_path / "file").write_text("mine", "utf-8")
    assert run(["generate", str(tmp_path / "file" / below), "--messages", "1"]) == 2
    assert "expected a " in (err := capsys.readouterr().err)
    assert ("found a file" in err) or ("Not a directory" in err)
    assert (tmp_path / "file").read_text("utf-8") == "mine"


def test_no_messages_make_an_empty_store(tmp_path: Path) -> None:
    store = made(tmp_path / "s", messages=0)
    assert sorted(path.name for path in store.iterdir()) == ["checkpoint", "commitlog", "config", "consumequeue", "lock"]


def test_a_number_must_come_from_somewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = tmp_path / "w.toml"
    workload.write_text('topics = [{ name = "T" }]\n[settings]\nmappedFileSizeCommitLog = 9999\nmaxIndexNum = 99\nmaxHashSlotNum = 9\n')
    assert run(["generate", str(tmp_path / "s"), "--workload", str(workload)]) == 2
    assert "expected messages or duration, found neither" in capsys.readouterr().err
    assert run(["generate", str(tmp_path / "s"), "--workload", str(workload), "--messages", "3"]) == 0


def test_load_start_and_shutdown_find_nothing_to_do(tmp_path: Path) -> None:
    store = made(tmp_path / "s")
    told = run_recover(str(store), settings=BrokerSettings.from_sources(header=SIZES))
    assert (told["load"], told["start"], told["before"]["abort"]) == (True, "ok", False)
    assert (told["redispatchedInLoad"], told["redispatchedInStart"]) == (0, 0)
    assert told["afterShutdown"]["files"] == told["before"]["files"]


def test_duration_and_rates_give_the_number(tmp_path: Path) -> None:
    timed = {name: value for name, value in MIXED.items() if name != "messages"} | {"duration": "2s"}
    assert len(messages_in(made(tmp_path / "s", timed))) == 300


TOPIC = {"name": "T"}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("an unknown field", {"topcis": []}, "found 'topcis'; the nearest known name is topics"),
    ("an unknown field of a topic", {"topics": [{"name": "T", "qeues": 3}]}, "topics[0]: expected one of .*'qeues'; .* name is queues"),
    ("an unknown field of keys", {"topics": [TOPIC | {"keys": {"distnct": 3}}]}, "'distnct'; the nearest known name is distinct"),
    ("an unknown setting", {"settings": {"maxIndexNumber": 3}}, "the nearest known name is maxIndexNum"),
    ("an unknown topic of a group", {"groups": [{"name": "g", "topics": ["U"]}]}, "'U'; the nearest known name is T"),
    ("a topic of a group twice", {"groups": [{"name": "g", "topics": ["T", "T"]}]}, "groups, g: expected each topic .* once.*'T' twice"),
    ("two lags of a group", {"groups": [{"name": "g", "topics": ["T"], "lag": lag} for lag in (1, 2)]}, "with one lag, found 'T' twice"),
    ("retries of a group", {"topics": [{"name": "%RETRY%g"}], "groups": [{"name": "g", "topics": ["%RETRY%g"]}]}, "topic for retries"),
    ("an unknown transaction", {"topics": [TOPIC | {"transactions": {"comit": 1}}]}, "'comit'; the nearest known name is commit"),
    ("no topic", {"topics": []}, "a list that is not empty"),
    ("a topic twice", {"topics": [TOPIC, TOPIC]}, "each with a name of its own"),
    ("a topic of the broker's", {"topics": [{"name": "SCHEDULE_TOPIC_XXXX"}]}, "not one of the broker's own"),
    ("a name with a slash", {"topics": [{"name": "../T"}]}, r"found '\.\./T'"),
    ("both lengths", {"messages": 1, "duration": 1}, "messages or duration, found both"),
    ("a negative rate", {"topics": [TOPIC | {"rate": -1}]}, "topics[0], rate: expected a number"),
    ("a number that is a text", {"messages": "many"}, "messages: expected a whole number"),
    ("a range the wrong way", {"topics": [TOPIC | {"body": [3, 1]}]}, "the lesser number first"),
    ("weights of nothing", {"topics": [TOPIC | {"tags": {"a": 0}}]}, "a weight above 0"),
    ("a tag with a separator", {"topics": [TOPIC | {"tags": ["a\x01b"]}]}, "without the bytes 0 to 2"),
    ("half a surrogate pair", {"topics": [TOPIC | {"tags": ["\ud800"]}]}, "half surrogate pairs"),
    ("a property of the broker's", {"topics": [TOPIC | {"properties": {"KEYS": ["a"]}}]}, "a name that is none of"),
    ("six properties", {"topics": [TOPIC | {"properties": {str(name): ["a"] for name in range(6)}}]}, "up to 5 properties"),
    ("a host without a port", {"store_host": "10.0.0.1"}, "address:port"),
    ("a time that is none", {"start": "yesterday"}, "a date and time"),
    ("a batch that is delayed", {"topics": [TOPIC | {"batch": 2, "delay_levels": {"1": 1}}]}, "no delay_levels"),
    ("messages that are too long", {"topics": [TOPIC | {"body": 5_000_000}]}, "of up to 4194304 bytes"),
    ("a log file that is too small", {"settings": {"mappedFileSizeCommitLog": 200}}, "of up to 192 bytes"),
    ("a slave", {"settings": {"brokerRole": "SLAVE"}}, "a master"),
    ("delay levels of no broker", {"settings": {"messageDelayLevel": "1x"}}, "messageDelayLevel"),
]


@pytest.mark.parametrize(("change", "told"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_workload_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], told: str
) -> None:
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps({"topics": [TOPIC], "messages": 10} | change), encoding="utf-8")
    assert run(["generate", str(tmp_path / "s"), "--workload", str(workload)]) == 2
    pattern = re.sub(r"\[(\d)\]", r"\\[\1\\]", told)
    error = capsys.readouterr().err
    assert re.search(pattern, error), error
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("w.toml", "messages = = 1"),
        ("w.json", "{"),
        ("missing.toml", None),
        ("w.toml", "\xff"),
        ("w.toml", f"messages = {'[' * 3000}{']' * 3000}"),
        ("w.json", f"{'[' * 3000}{']' * 3000}"),
        ("w.toml", f"messages = 0x{'f' * 4000}"),
        ("w.toml", "messages = 1\ntopics = { a = 1 }"),
    ],
    ids=["TOML", "JSON", "missing", "UTF-8", "deep TOML", "deep JSON", "a long number", "a table for a list"],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="latin-1")
    assert run(["generate", str(tmp_path / "s"), "--workload", str(tmp_path / name)]) == 2
    assert name in capsys.readouterr().err


def test_a_field_of_any_type_of_pydantic_is_told() -> None:
    class Table(FileTable):
        number: int

    with pytest.raises(WorkloadError, match=r"here, number: expected Input should be a valid integer.*, found 'x'"):
        Table.of({"number": "x"}, "here")


def test_the_example_of_the_documentation_is_a_workload(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "workload.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "w.toml").write_text(example, encoding="utf-8")
    assert run(["generate", str(tmp_path / "s"), "--workload", str(tmp_path / "w.toml"), "--messages", "50"]) == 0
    assert len(messages_in(tmp_path / "s")) == 50


def test_a_run_that_is_killed_leaves_no_store(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.main", "generate", str(tmp_path / "s"), "--messages", "50000000"]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".pullsim-*.part/s/commitlog/*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.glob(".pullsim-*.part/s/commitlog/*"))
    assert not (tmp_path / "s").exists()


def test_options_win_over_the_settings_of_the_workload(tmp_path: Path) -> None:
    settings = BrokerSettings.from_sources(options=["mappedFileSizeCommitLog=30000"])
    store = made(tmp_path / "s", settings=settings, messages=300)
    assert {path.stat().st_size for path in (store / "commitlog").iterdir()} == {30_000}
    assert set(DEFAULT_WORKLOAD) == {"messages", "topics", "groups"}
