"""Stores with V2 records by the rules of 5.5.0: recovery, import, export, look-ups, checks; those of 4.9 end the log at one."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.main import run
from pipeline.schema.tables import COMMIT_LOG, COMMIT_LOG_SEGMENT, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, QUEUE
from tests.makers.lakes import LOG_FILE, MESSAGES, QUEUE_FILE, import_as, rows, tiny_store
from tests.makers.living_store import LivingStore, stages
from tests.makers.store_trees import differing, tree
from tests.runs.following import assert_as_imported
from tests.runs.in_session import pullsim_in
from tests.runs.replaying import BROKER, all_lines
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG, LONGEST = "%RETRY%" + "g" * 121, "%RETRY%" + "h" * 200
QUEUES = [("T", 0), (LONG, 0), ("T", 1), (LONGEST, 0)]
# as a broker 5.x writes it
OFFSETS = '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":1\n\t},\n\t"offsetTable":{}\n}'
DONE = (0, "")
COMPARED = (COMMIT_LOG, COMMIT_LOG_SEGMENT, CONSUME_QUEUE, CONSUME_QUEUE_SEGMENT, QUEUE)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose files show that a broker 5.x wrote it."""
    store = tiny_store(tmp_path / "store", QUEUES)
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(OFFSETS, "utf-8")
    return store


def pullsim(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit code of a command, and the last line of its standard error if it failed."""
    code = run([str(word) for word in words])
    err = capsys.readouterr().err
    return code, err.splitlines()[-1] if code else ""


def recovered(store: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    out = store.parent / "recovery.json"
    assert pullsim(capsys, "recover", store, "--out", out, *options) == DONE
    found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return found


def log_of(store: Path) -> Path:
    (log,) = (store / "commitlog").iterdir()
    return log


def places(store: Path) -> list[tuple[int, int, int]]:
    """Position, size and magic code of each record."""
    raw, at, found = log_of(store).read_bytes(), 0, []
    while struct.unpack_from(">i", raw, at)[0]:
        found.append((at, *struct.unpack_from(">iI", raw, at)))
        at += found[-1][1]
    return found


def queue_ends(recovery: dict[str, Any]) -> dict[tuple[str, int], int]:
    return {(one["topic"], one["queueId"]): one["maxOffsetInQueue"] for one in recovery["afterStart"]["queues"]}


def test_the_store_has_records_of_both_versions(store: Path) -> None:
    assert [magic & 0xFF for *_, magic in places(store)] == [0xA7, 0xAB, 0xA7, 0xAB] * MESSAGES


def test_5_5_0_recovers_all_messages(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = recovered(store, capsys)
    assert found["version"] == "5.5.0"
    assert queue_ends(found) == dict.fromkeys(QUEUES, MESSAGES)


@pytest.mark.parametrize("rules", ["4.9.3", "4.9.8"])
def test_4_9_cuts_the_log_at_the_first_v2_record(rules: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recovered(store, capsys, "--rules", rules)["afterStart"]["maxPhyOffset"] == places(store)[1][0]


@pytest.mark.parametrize("killed", [False, True])
def test_queues_are_rebuilt_from_the_log(killed: bool, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = tree(store)
    shutil.rmtree(store / "consumequeue")
    if killed:
        (store / "abort").touch()
    size = f"mappedFileSizeConsumeQueue={QUEUE_FILE}"
    assert pullsim(capsys, "import", store, "--lake", tmp_path / "lake", "--broker-name", "b", "--set", size) == DONE
    assert pullsim(capsys, "export", tmp_path / "out", "--lake", tmp_path / "lake") == DONE
    rebuilt = tree(tmp_path / "out")
    queues = [path for path in whole if path.startswith("consumequeue/")]
    assert [path for path in queues if (rebuilt[path] or ())[1:] != (whole[path] or ())[1:]] == []


@pytest.mark.parametrize("position", [4, 8, 87, 89, 200])
def test_a_damaged_v2_record_ends_the_log_after_a_kill(position: int, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start, size, _ = places(store)[3]
    assert size > position
    raw = bytearray(log_of(store).read_bytes())
    raw[start + position] ^= 0x60
    log_of(store).write_bytes(raw)
    (store / "abort").touch()
    shutil.rmtree(store / "consumequeue")
    end = recovered(store, capsys)["afterStart"]["maxPhyOffset"]
    assert end == (places(store)[-1][0] + places(store)[-1][1] if position == 200 else start)  # a topic may be any text


def test_the_store_comes_back_to_the_byte(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pullsim(capsys, "import", store, "--lake", tmp_path / "lake", "--broker-name", "b") == DONE
    assert pullsim(capsys, "export", tmp_path / "out", "--lake", tmp_path / "lake") == DONE
    assert differing(tree(tmp_path / "out"), tree(store)) == []


def test_a_v2_record_with_a_short_topic_is_an_odd_one(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start, size, _ = places(store)[-1]
    raw = bytearray(log_of(store).read_bytes())
    topic = raw.index(LONGEST.encode(), start)
    odd = raw[start : topic - 2] + b"\0\1T" + raw[topic + len(LONGEST) : start + size]
    odd[:4] = len(odd).to_bytes(4, "big")
    log_of(store).write_bytes((raw[:start] + odd).ljust(LOG_FILE, b"\0"))
    shutil.rmtree(store / "consumequeue")
    assert queue_ends(recovered(store, capsys)) == dict.fromkeys(QUEUES, MESSAGES) | {(LONGEST, 0): MESSAGES - 1, ("T", 0): MESSAGES}
    assert pullsim(capsys, "import", store, "--lake", tmp_path / "lake", "--broker-name", "b") == DONE
    code, err = pullsim(capsys, "export", tmp_path / "out", "--lake", tmp_path / "lake")
    assert (code, "expected 12 records, as commit_log_segment says, found 11" in err) == (2, True)
    assert run(["verify", str(store)]) == 1
    assert f"LOG_ODD_RECORD commitlog/{log_of(store).name}: byte {start}" in capsys.readouterr().out


def test_pulls_get_v2_records(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = tmp_path / "pulls.jsonl"
    pull = {"group": "g", "topic": LONG, "queueId": 0, "offset": 1, "maxMsgNums": 32}
    filters = [None, {"type": "SQL92", "expression": "KEYS = 'k'"}, {"type": "SQL92", "expression": "KEYS = 'other'"}]
    requests.write_text("".join(json.dumps({"request": pull | {"filter": one}}) + "\n" for one in filters), "utf-8")
    assert pullsim(capsys, "import", store, "--lake", tmp_path / "lake", "--broker-name", "b") == DONE
    assert pullsim(capsys, "replay", "--lake", tmp_path / "lake", "--requests", requests, "--out", tmp_path / "answers") == DONE
    answers = [line["response"] for line in all_lines(tmp_path / "answers")]
    expected = [at for at, *_ in places(store)[1::4]][1:]
    found = [[one["physicOffset"] for one in answer["messages"] or ()] for answer in answers]
    assert found == [expected, expected, []]
    assert [one["startOffset"] for one in answers[0]["messages"]] == expected


def test_look_ups_find_v2_records(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(store / "consumequeue")  # load builds the index, too
    requests = tmp_path / "lookups.jsonl"
    offset = places(store)[1][0]
    ops = [
        {"op": "lookMessageByOffset", "commitLogOffset": offset},
        {"op": "queryMessage", "topic": LONG, "key": "k", "maxNum": 32, "begin": 0, "end": 2**62},
        {"op": "getOffsetInQueueByTime", "topic": LONG, "queueId": 0, "timestamp": 0},
    ]
    requests.write_text("".join(json.dumps(one) + "\n" for one in ops), "utf-8")
    assert pullsim(capsys, "lookup", store, "--requests", requests, "--out", tmp_path / "found") == DONE
    message, by_key, by_time = (json.loads(line) for line in (tmp_path / "found").read_text("utf-8").splitlines())
    assert (message["result"]["topic"], message["result"]["commitLogOffset"]) == (LONG, offset)
    assert sorted(by_key["phyOffsets"]) == [at for at, *_ in places(store)[1::4]]
    assert by_time["result"] == 0


def test_verify_finds_nothing_wrong_and_what_was_changed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told() -> tuple[int, str]:
        code = run(["verify", str(store)])
        return code, capsys.readouterr().out

    code, text = told()
    assert code == 0, text
    assert f"consumequeue/{LONG}/0/{0:020d}\tconsumequeue\t200\tok" in text
    raw = bytearray(log_of(store).read_bytes())
    raw[raw.index(LONG.encode()) + 9] ^= 1
    log_of(store).write_bytes(raw)
    assert "CQ_OTHER_MESSAGE" in told()[1]


@slow_proof
def test_spark_imports_the_same_rows(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    found = []
    for by_spark in (False, True):
        import_as(spark, tmp_path / f"lake-{by_spark}", store, by_spark=by_spark)
        found.append({table.name: sorted(map(repr, rows(spark, tmp_path / f"lake-{by_spark}", table))) for table in COMPARED})
    assert found[0] == found[1]
    assert [table.name for table in COMPARED if not found[0][table.name]] == []


@slow_proof
def test_what_was_followed_is_what_an_import_gives(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    follow, lake = pullsim_in(spark, monkeypatch, capsys), tmp_path / "lake"
    living = LivingStore(store, tmp_path / "living")
    offsets = living.record_offsets()
    assert len(offsets) == len(QUEUES) * MESSAGES + 1
    for end in stages(offsets, 2):
        living.cut_at(end)
        code, out, err = follow("import", living.path, "--lake", lake, "--broker-name", BROKER, "--follow", "--once")
        assert code == 0, err
        assert "imported again" not in out + err
    assert_as_imported(spark, follow, lake, living.path, tmp_path / "other")
