"""`pullsim whatif`: recordings of the same pulls under two settings, and chains of pulls that can be counted by hand."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.questions.what_if import WhatIf, notes_on
from pipeline.questions.what_if_text import show
from tests.makers.made_store import Record, make_store
from tests.runs.in_session import ON_SPARK, Pullsim, pullsim_in
from tests.runs.replaying import Line, all_lines, lake_of, write_lines
from tests.runs.sampling import slow_proof
from tests.truth.golden import golden, needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

# the same pulls, recorded with other caps on bytes
SET, VERSUS = "basic-exact", "basic-exactmem"
FIELDS = (
    "nextBeginOffset",
    "minOffset",
    "maxOffset",
    "messageCount",
    "bufferTotalSize",
    "suggestPullingFromSlave",
    "msgCount4Commercial",
    "diskFallBehind",
    "messages",
)
# the driver answers; Spark answers with the options ON_SPARK
ENGINES = [pytest.param([], id="driver"), pytest.param(ON_SPARK, id="Spark", marks=slow_proof)]


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def options_of(name: str, header: Line) -> list[str]:
    config = header["config"].items()
    return [f"{name}={key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in config if key != "bloom"]


@needs_golden
@pytest.mark.parametrize("engine", ENGINES)
def test_two_recordings_of_the_same_pulls_differ_as_they_did(
    engine: list[str], pullsim: Pullsim, spark: SparkSession, stores: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    first, second = (all_lines(golden("store", "traces", f"{name}.jsonl")) for name in (SET, VERSUS))
    pairs = list(zip(first[1:], second[1:], strict=True))
    assert all(before["request"] == after["request"] for before, after in pairs)
    requests = write_lines(tmp_path / "requests.jsonl", [{"request": line["request"]} for line, _ in pairs])
    lake = lake_of(spark, stores / first[0]["store"], tmp_path_factory)
    asked = ("whatif", "--lake", lake.root, "--requests", requests, *options_of("--set", first[0]), *options_of("--versus", second[0]))

    code, out, err = pullsim(*asked, *engine, "--format", "json")
    assert code == 0, err
    told = json.loads(out)
    answers = [(before["response"], after["response"]) for before, after in pairs]
    changed = [(number, pair) for number, pair in enumerate(answers, 1) if pair[0] != pair[1]]
    assert (told["pulls"], told["changed"]) == (len(pairs), len(changed))
    assert len(changed) > 20
    statuses = Counter((before["status"], after["status"]) for before, after in answers)
    assert {(row["proposed"], row["current"]): row["pulls"] for row in told["outcomes"]} == statuses
    differing = Counter(name for _, (before, after) in changed for name in FIELDS if before[name] != after[name])
    assert told["fields"] == differing
    for side, own in zip(("proposed", "current"), zip(*answers, strict=True), strict=True):
        measured = {name: values[side] for name, values in told["measures"].items()}
        found = [answer for answer in own if answer["status"] == "FOUND"]
        messages, sizes = (sum(answer[name] for answer in own) for name in ("messageCount", "bufferTotalSize"))
        assert (measured["pulls that found messages"], measured["messages"], measured["bytes"]) == (len(found), messages, sizes)
        assert measured["messages a found pull"] == pytest.approx(messages / len(found), abs=0.001)
        assert measured["pulls whose last entry read lies on disk"] == sum(answer["suggestPullingFromSlave"] for answer in own)
    assert told["first"]
    for shown, (number, (before, after)) in zip(told["first"], changed, strict=False):
        assert (shown["line"], shown["request"]) == (number, pairs[number - 1][0]["request"])
        for side, answer in (("proposed", before), ("current", after)):
            offsets = [message["queueOffset"] for message in answer["messages"]]
            assert shown[side] == {name: answer[name] for name in ("status", *FIELDS[:-1])} | {"messages": offsets}


@pytest.fixture(scope="module")
def wide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A queue of 2,100 entries, 2,000 of them in its first file; every seventh has TagA."""
    records = (Record(tag="TagA" if number % 7 == 0 else "TagB", body=b"") for number in range(2100))
    made = make_store(tmp_path_factory.mktemp("made") / "wide", records, log_file=1 << 20, queue_file=40_000)
    return lake_of(spark, made.path, tmp_path_factory)


def pull(offset: int, max_msg_nums: int, expression: str | None = None, **more: Any) -> Line:
    wanted = None if expression is None else {"type": "TAG", "expression": expression}
    request = {"group": "g", "topic": "T", "queueId": 0, "offset": offset, "maxMsgNums": max_msg_nums, "filter": wanted}
    return {"request": request | more}


@slow_proof
def test_draining_takes_the_pulls_that_can_be_counted_by_hand(pullsim: Pullsim, wide: Lake, tmp_path: Path) -> None:
    # all of the queue a batch at a time, a batch ending with its file; and the 286 and 14 messages of TagA that the two files hold
    plain, by_tag = [pull(0, 1000), pull(2090, 1000)], [pull(0, 32, "TagA"), pull(2080, 32, "TagA")]
    # a pull of nothing starts no chain, nor does one that gets nothing
    requests = write_lines(tmp_path / "requests.jsonl", [*plain, *by_tag, pull(2100, 7), pull(0, 3, "TagC")])
    caps = ("--set", "maxTransferCountOnMessageInMemory=8", "--versus", "maxTransferCountOnMessageInMemory=128")
    code, out, err = pullsim("whatif", "--lake", wide.root, "--requests", requests, *caps, "--drain", "--format", "json")
    assert code == 0, err
    drained = json.loads(out)["drained"]
    assert drained["chains of pulls"] == {"current": 2, "proposed": 2}
    assert drained["that get stuck"] == {"current": 0, "proposed": 0}
    assert drained["messages"] == {"current": 2400, "proposed": 2400}
    assert drained["pulls"] == {"current": 16 + 1 + 9 + 1, "proposed": 250 + 13 + 36 + 2}


def test_a_table_and_csv_tell_the_same(pullsim: Pullsim, wide: Lake, tmp_path: Path) -> None:
    requests = write_lines(tmp_path / "requests.jsonl", [pull(0, 32), pull(100, 2), pull(5, -1), pull(2100, 5)])
    asked = (
        "whatif",
        "--lake",
        wide.root,
        "--requests",
        requests,
        "--set",
        "maxTransferCountOnMessageInMemory=8",
        "--versus",
        "slaveReadEnable=true",
    )
    code, table, _ = pullsim(*asked)
    assert code == 0
    assert "note: slaveReadEnable is not looked at by DefaultMessageStore.getMessage" in table
    assert "4 pulls, 1 answered differently (25 %)\neach pull sees all of the store\n" in table
    # the other row that begins so is of the answers' fields
    told = [line.split() for line in table.splitlines() if line.startswith("messages  ")]
    assert [row for row in told if len(row) > 2] == [["messages", "34", "10", "-24", "(-70.6", "%)"]]
    assert "line 1 differs in nextBeginOffset, messageCount, bufferTotalSize, msgCount4Commercial, diskFallBehind, messages" in table
    assert '"messages": "0..7"' in table
    assert '"messages": "0..31"' in table
    _, text, _ = pullsim(*asked, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {"part": "measure", "name": "messages", "current": "34", "proposed": "10", "pulls": ""} in rows
    assert {"part": "setting", "name": "slaveReadEnable", "current": "true", "proposed": "false", "pulls": ""} in rows
    outcomes = {(row["proposed"], row["current"]): int(row["pulls"]) for row in rows if row["part"] == "outcome"}
    thrown = "java.lang.IllegalArgumentException"
    assert outcomes == {("FOUND", "FOUND"): 2, (thrown, thrown): 1, ("OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_ONE"): 1}


def test_pulls_that_are_left_out_are_counted(pullsim: Pullsim, wide: Lake, tmp_path: Path) -> None:
    requests = write_lines(tmp_path / "requests.jsonl", [pull(0, 32), pull(0, 32, "TagA"), pull(5, 3)])
    asked = ("whatif", "--lake", wide.root, "--requests", requests, "--set", "maxTransferCountOnMessageInMemory=8")
    assert "left out" not in pullsim(*asked)[1]
    assert (
        "1 pull, 1 answered differently (100 %)\nleft out: 2 pulls, their filter is none of TAG\n" in pullsim(*asked, "--filters", "TAG")[1]
    )
    [line] = pullsim(*asked, "--filters", "null,SQL92", "--format", "json")[1].splitlines()
    assert json.loads(line)["leftOut"] == {"their filter is none of SQL92, null": 1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "expected a setting to change, found none; give --set NAME=VALUE"),
        (["--versus", "maxTransferCountOnMessageInMemroy=1"], "--versus maxTransferCountOnMessageInMemroy=1: "),
        (["--versus", "maxTransferCountOnMessageInMemroy=1"], "the nearest known name is maxTransferCountOnMessageInMemory"),
        (["--set", "brokerRole=MASTER"], "must be one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
    ],
)
def test_bad_settings_end_with_2_and_say_why(options: list[str], told: str, pullsim: Pullsim, tmp_path: Path) -> None:
    code, out, err = pullsim("whatif", "--lake", tmp_path / "lake", "--requests", tmp_path / "requests", *options)
    assert (code, out) == (2, "")
    assert told in err


def test_a_bad_line_ends_with_2(pullsim: Pullsim, wide: Lake, tmp_path: Path) -> None:
    requests = write_lines(tmp_path / "requests.jsonl", [pull(0, 1), {"request": {}}])
    code, out, err = pullsim("whatif", "--lake", wide.root, "--requests", requests, "--set", "readable=false")
    assert (code, out) == (2, "")
    assert "requests.jsonl, line 2: expected" in err


def test_settings_that_change_no_answer_are_told() -> None:
    given = frozenset({"readable", "mappedFileSizeConsumeQueue", "brokerId", "maxTransferBytesOnMessageInDisk", "listenPort"})
    assert [note.split()[:3] for note in notes_on(given)] == [
        ["brokerId", "is", "not"],
        ["listenPort", "is", "not"],
        ["mappedFileSizeConsumeQueue", "is", "fixed"],
    ]


def test_texts_of_a_request_give_a_terminal_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "g\x9b31m\u202ex\x1b[31m\x07"
    answer = {"status": "FOUND", "messages": [1, 2], "remark": hostile}
    first = {"line": 1, "fields": ["messages"], "request": {"group": hostile}, "current": answer, "proposed": None}
    show(
        WhatIf(
            settings={"a": (hostile, 1)},
            notes=(hostile,),
            at="snapshot",
            pulls=1,
            left_out={hostile: 1},
            changed=1,
            measures={"messages": (2, 0)},
            outcomes=[("FOUND", "null", 1, 1)],
            fields={"messages": 1},
            first=[first],
            drained=None,
        )
    )
    told = capsys.readouterr().out
    assert told.replace("\n", "").isprintable()
    assert told.count("\\x9b31m\\u202ex") == 5
