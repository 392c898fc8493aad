"""`pullsim lookup` compared line by line with the real broker's answers; and what it refuses."""

from __future__ import annotations

import json
import lzma
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.main import run
from pipeline.settings.settings import BrokerSettings
from pipeline.store.lookup import java_host, run_lookup
from store_format.record.message import Host
from tests.truth.golden import golden, names, needs_golden
from tests.truth.places import DATA

Line = dict[str, Any]
SMALL = DATA / "lookup" / "small.jsonl.xz"


def settings_of(header: Line | None) -> BrokerSettings:
    return BrokerSettings.from_sources(header=(header or {}).get("config"))


def looked_up(store: Path, requests: Path, out: Path) -> str:
    run_lookup(str(store), str(requests), str(out), settings_of=settings_of, progress=lambda _: None)
    return out.read_text(encoding="utf-8")


def recorded_small() -> list[Line]:
    return [json.loads(line) for line in lzma.decompress(SMALL.read_bytes()).splitlines()]


def written(path: Path, lines: Sequence[Line | str]) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


@needs_golden
@pytest.mark.parametrize("name", names("lookup", "*.jsonl"))
def test_every_recorded_look_up_is_answered_as_the_broker_answered_it(stores: Path, tmp_path: Path, name: str) -> None:
    recorded = golden("store", "lookup", f"{name}.jsonl")
    first = json.loads(recorded.read_text(encoding="utf-8").partition("\n")[0])
    assert looked_up(stores / first["store"], recorded, tmp_path / "out").splitlines() == recorded.read_text(encoding="utf-8").splitlines()


def test_the_store_beside_the_tests_is_looked_up_as_the_broker_did(small_store: Path, tmp_path: Path) -> None:
    recorded = recorded_small()
    lines = looked_up(small_store, written(tmp_path / "in", recorded), tmp_path / "out").splitlines()
    assert [json.loads(line) for line in lines] == recorded
    assert len({line.get("op") for line in recorded}) == 7


def test_without_a_header_settings_and_times_are_those_of_the_files(small_store: Path, tmp_path: Path) -> None:
    recorded = recorded_small()[1:]
    lines = looked_up(small_store, written(tmp_path / "in", recorded), tmp_path / "out").splitlines()
    assert [json.loads(line) for line in lines] == recorded


def test_answers_that_a_line_has_are_replaced_and_other_fields_are_kept(small_store: Path, tmp_path: Path) -> None:
    recorded = recorded_small()
    stale = [
        {name: 7 if name in {"result", "phyOffsets", "selectOneMessageByOffset"} else value for name, value in line.items()}
        for line in recorded
    ]
    asked = [{"mine": number, **line, "exception": "x", "error": "y"} for number, line in enumerate(stale[1:])]
    lines = looked_up(small_store, written(tmp_path / "in", [stale[0], *asked]), tmp_path / "out").splitlines()
    assert [json.loads(line) for line in lines[1:]] == [{"mine": number, **line} for number, line in enumerate(recorded[1:])]


def test_times_of_the_header_count_before_those_of_the_files(small_store: Path, tmp_path: Path) -> None:
    recorded = recorded_small()
    store = shutil.copytree(small_store, tmp_path / "store")
    for path in store.rglob("0*"):
        os.utime(path, ns=(0, 0))
    by_time = [line for line in recorded if line.get("op") == "getOffsetInQueueByTime"]
    with_times = looked_up(store, written(tmp_path / "in", [recorded[0], *by_time]), tmp_path / "out")
    assert [json.loads(line) for line in with_times.splitlines()[1:]] == by_time
    without = looked_up(store, written(tmp_path / "in", by_time), tmp_path / "out")
    assert [json.loads(line) for line in without.splitlines()] != by_time


def test_options_count_before_the_header(small_store: Path, tmp_path: Path) -> None:
    line = {"op": "getEarliestMessageTimeOfStore"}
    asked = written(tmp_path / "in", [{"kind": "lookup", "config": {"maxMessageSize": 10_000}}, line])

    def answer(*options: str) -> Any:
        assert run(["lookup", str(small_store), "--requests", str(asked), "--out", str(tmp_path / "out"), *options]) == 0
        return json.loads((tmp_path / "out").read_text(encoding="utf-8").splitlines()[1])["result"]

    assert answer() == 1651363764987
    assert answer("--set", "maxMessageSize=32769") == -1
    assert answer("--set", "maxMessageSize=32768") == 1651363764987


EDGES: list[tuple[Line, Line]] = [
    (
        {"op": "queryMessage", "topic": "T", "key": "k", "maxNum": -1, "begin": 0, "end": 1},
        {"exception": "java.lang.IllegalArgumentException"},
    ),
    (
        {"op": "queryMessage", "topic": "T", "key": "k", "maxNum": 0, "begin": 0, "end": 2**63 - 1},
        {"indexLastUpdateTimestamp": 0, "indexLastUpdatePhyoffset": 0, "bufferTotalSize": 0, "phyOffsets": []},
    ),
    ({"op": "lookMessageByOffset", "commitLogOffset": -(2**63)}, {"result": None, "selectOneMessageByOffset": None}),
    ({"op": "lookMessageByOffset", "commitLogOffset": 2**63 - 1}, {"result": None, "selectOneMessageByOffset": None}),
    ({"op": "getOffsetInQueueByTime", "topic": "../x", "queueId": -1, "timestamp": -(2**63)}, {"result": 0}),
    (
        {"op": "getMessageStoreTimeStamp", "topic": "BatchTopic", "queueId": 0, "consumeQueueOffset": 2**63 - 1},
        {"result": -1, "commitLogOffsetInQueue": 0},
    ),
    (
        {"op": "getEarliestMessageTime", "topic": "", "queueId": 0},
        {"result": -1, "minOffsetInQueue": 0, "maxOffsetInQueue": 0, "messageTotalInQueue": 0},
    ),
]


def test_half_of_a_surrogate_pair_stays_an_escape(small_store: Path, tmp_path: Path) -> None:
    line = '{"op":"getEarliestMessageTime","topic":"\\ud83d","queueId":0,"note":"\u6807"}'
    answered = looked_up(small_store, written(tmp_path / "in", [line]), tmp_path / "out")
    assert json.loads(answered)["result"] == -1
    assert '"topic":"\\ud83d"' in answered


@pytest.mark.parametrize(("asked", "answer"), EDGES)
def test_numbers_and_names_at_the_edges_are_answered(small_store: Path, tmp_path: Path, asked: Line, answer: Line) -> None:
    assert json.loads(looked_up(small_store, written(tmp_path / "in", [asked]), tmp_path / "out")) == asked | answer


def test_a_chain_that_goes_round_is_an_error_of_its_look_up_alone(
    small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = shutil.copytree(small_store, tmp_path / "store")
    slots, header = 100, recorded_small()[0]
    for path in (store / "index").iterdir():
        raw = bytearray(path.read_bytes())
        for entry in (597, 598, 599):  # each of a file's last entries follows the next one
            at = 40 + 4 * slots + 20 * entry
            raw[at + 16 : at + 20] = (596 + (entry - 596) % 3 + 1).to_bytes(4, "big")
        for slot in range(slots):
            raw[40 + 4 * slot : 44 + 4 * slot] = (597).to_bytes(4, "big")
        path.write_bytes(raw)
    query = {"op": "queryMessage", "topic": "T", "key": "no-such-key", "maxNum": 5, "begin": 0, "end": 2**63 - 1}
    asked = written(tmp_path / "in", [header, query, {"op": "lookMessageByOffset", "commitLogOffset": -1}])
    out = tmp_path / "out"
    assert run(["lookup", str(store), "--requests", str(asked), "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert (lines[1]["error"], "goes round" in lines[1]["message"]) == ("CORRUPT_STORE", True)
    assert lines[2]["result"] is None
    assert "1 of 2 look-ups could not be answered: CORRUPT_STORE" in capsys.readouterr().err


GOOD = {"op": "getOffsetInQueueByTime", "topic": "T", "queueId": 0, "timestamp": 0}
BAD_LINES: list[tuple[Line | str, str]] = [
    ("", "line 1: expected at least one look-up, found an empty file"),
    ("{", "line 1: expected a JSON object"),
    ("[1]", "line 1: expected a JSON object, found '[1]'"),
    ('{"op":"queryMessage","maxNum":NaN}', "NaN is no number of JSON"),
    ("[" * 100_000, "line 1: expected a JSON object"),
    ('{"op": 1}', "expected one of getOffsetInQueueByTime, getMessageStoreTimeStamp"),
    ({"op": "getMessage"}, "in \"op\", found 'getMessage'"),
    ({"kind": "trace"}, 'in "op", found None'),
    (GOOD | {"topic": None}, 'line 1: expected a text in "topic", found None'),
    (GOOD | {"queueId": 2**31}, 'line 1: expected a whole number of 32 bits in "queueId", found 2147483648'),
    (GOOD | {"timestamp": 1.0}, 'a whole number of 64 bits in "timestamp", found 1.0'),
    (GOOD | {"timestamp": True}, 'in "timestamp", found True'),
    ({"op": "lookMessageByOffset"}, 'in "commitLogOffset", found None'),
    ({"kind": "lookup", "consumeQueueFileMtimesMs": [1]}, 'expected an object of times in ms in "consumeQueueFileMtimesMs"'),
    ({"kind": "lookup", "consumeQueueFileMtimesMs": {"a": "b"}}, "line 1: expected an object of times"),
    ({"kind": "lookup", "config": {"maxIndexNum": "many"}}, "maxIndexNum must be"),
    ({"kind": "lookup", "config": {"maxIndexNumber": 5}}, "the nearest known name is maxIndexNum"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_a_line_that_is_no_look_up_ends_with_2_and_nothing_is_written(
    small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: Line | str, message: str
) -> None:
    out = tmp_path / "out"
    asked = tmp_path / "in"
    if line:
        written(asked, [line])
    else:
        asked.write_bytes(b"")
    assert run(["lookup", str(small_store), "--requests", str(asked), "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert str(asked) in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_the_line_that_is_wrong_is_named(small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = written(tmp_path / "in", [{"kind": "lookup"}, GOOD, "", GOOD, "no", GOOD])
    assert run(["lookup", str(small_store), "--requests", str(asked), "--out", str(tmp_path / "out")]) == 2
    assert f"{asked}, line 5: expected a JSON object, found 'no'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def of_another_length(store: Path) -> str:
    path = store / "consumequeue" / "BatchTopic" / "0" / ("0" * 20)
    path.write_bytes(bytes(20))
    return f"{path}: expected a mapped file of 1000 bytes, found 20 bytes"


def no_log_nor_queues(store: Path) -> str:
    for name in ("commitlog", "consumequeue"):
        shutil.rmtree(store / name)
    return f"{store}: expected a store with files under commitlog"


def no_store(store: Path) -> str:
    shutil.rmtree(store)
    return f"{store}: expected the store directory of a broker, found no such directory"


def a_log_with_a_hole_and_no_queues(store: Path) -> str:
    shutil.rmtree(store / "consumequeue")
    (store / "commitlog" / f"{65536:020d}").unlink()
    return f"{store}: expected a store that the broker starts on, found one on which its start never ends"


def damaged_index(store: Path) -> str:
    for path in (store / "index").iterdir():
        path.write_bytes(path.read_bytes()[:60] + bytes(100) + path.read_bytes()[160:])
    return "give it with --set maxHashSlotNum=N"


@pytest.mark.parametrize("damage", [of_another_length, no_log_nor_queues, no_store, a_log_with_a_hole_and_no_queues, damaged_index])
def test_a_store_that_the_broker_would_not_use_ends_with_2(
    small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any
) -> None:
    store = shutil.copytree(small_store, tmp_path / "store")
    message = damage(store)
    asked = written(tmp_path / "in", [GOOD])
    assert run(["lookup", str(store), "--requests", str(asked), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_files_that_are_not_there_end_with_2(small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = written(tmp_path / "in", [GOOD])
    out = tmp_path / "no" / "folder" / "out"
    assert run(["lookup", str(small_store), "--requests", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
    assert "expected a file of look-ups" in capsys.readouterr().err
    assert run(["lookup", str(small_store), "--requests", str(asked), "--out", str(out)]) == 2
    assert f"--out {out}: expected a folder that holds the file" in capsys.readouterr().err
    assert run(["lookup", str(small_store), "--requests", str(asked), "--out", str(small_store / "checkpoint")]) == 2
    assert f"expected a file outside of {small_store}" in capsys.readouterr().err


def test_the_store_is_only_read(small_store: Path, tmp_path: Path) -> None:
    def state() -> dict[str, tuple[int, int, bytes]]:
        files = (path for path in small_store.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes()) for path in files}

    before = state()
    looked_up(small_store, written(tmp_path / "in", recorded_small()), tmp_path / "out")
    assert state() == before


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("0a141efa", "/10.20.30.250:10911"),
        ("20010db8000000000000000000000076", "/[2001:db8:0:0:0:0:0:76]:10911"),
        ("00000000000000000000000000000001", "/[0:0:0:0:0:0:0:1]:10911"),
        ("00000000000000000000ffff01020304", "/1.2.3.4:10911"),
    ],
)
def test_hosts_are_written_as_java_writes_them(address: str, text: str) -> None:
    assert java_host(Host(address=bytes.fromhex(address), port=10911)) == text
