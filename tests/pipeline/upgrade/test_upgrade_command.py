"""`pullsim upgrade` and `pullsim explain --versus` on a golden store, compared with answers and recoveries of the real 4.9.3 and 5.5.0."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.main import run
from store_format.remoting.command import SerializeType
from tests.makers.captured_runs import store_with_topics
from tests.makers.recorded_pulls import capture_of, conversation, recorded
from tests.models.without_spark import NUMBERS
from tests.runs.in_session import ON_SPARK, NotHeard, Pullsim, pullsim_in
from tests.runs.replaying import NOON, Line, all_lines, write_lines
from tests.runs.sampling import slow_proof
from tests.truth import golden, golden5
from tests.truth.golden5 import needs_golden5
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_golden5, pytest.mark.spark]
STORE, TRACE = "cleaned", "cleaned-default"
# group -> queue of a topic whose queues differ, with the offset that the group committed: past the end, and of a deleted message
TOPIC = "SCHEDULE_TOPIC_XXXX"
COMMITTED = {"g-past": (12, 7), "g-gone": (5, 0), "g-fine": (0, 20)}
# slaveReadEnable is not set, so that no client sees the suggestion
UNSEEN = ("suggestPullingFromSlave", "exceptionClass", "diskFallBehind", "msgCount4Commercial")
BETWEEN = ("--from", "4.9.3", "--to", "5.5.0")


def queues_of(recorded: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """(minOffset, maxOffset) of each queue after the start of a real broker."""
    queues = recorded["afterStart"]["queues"]
    return {(one["topic"], one["queueId"]): (one["minOffsetInQueue"], one["maxOffsetInQueue"]) for one in queues}


@pytest.fixture(scope="module")
def answered() -> list[tuple[Line, Line]]:
    """The recorded pulls of the store with the answers of 4.9.3 and of 5.5.0."""
    earlier = list(golden.golden_lines("store", "traces", f"{TRACE}.jsonl"))[1:]
    return list(zip(earlier, all_lines(golden5.trace("5.5.0", TRACE))[1:], strict=True))


@pytest.fixture(scope="module")
def place(spark: SparkSession, stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store, with committed offsets, as `store`, and the lake into which it was imported as `lake`."""
    folder = tmp_path_factory.mktemp("upgrade")
    shutil.copytree(stores / STORE, folder / "store")
    (folder / "store" / "config").mkdir()
    offsets = {f"{TOPIC}@{group}": {queue: offset} for group, (queue, offset) in COMMITTED.items()}
    (folder / "store" / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        code, _, _ = pullsim_in(spark, patch, NotHeard())("import", folder / "store", "--lake", folder / "lake", "--broker-name", "b")
    assert code == 0
    return folder


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def differ(pair: tuple[Line, Line], *left_out: str) -> bool:
    """Whether two recorded answers differ, without some fields."""
    fields = [
        response if "exception" in response else [response[name] for name in NUMBERS if name not in left_out]
        for response in (line["response"] for line in pair)
    ]
    return fields[0] != fields[1]


def entries(text: str) -> list[str]:
    """The lines of a text, each with the indented ones that continue it."""
    return [" ".join(line.split()) for line in re.sub(r"\n    (?=\S)", " ", text).splitlines()]


@slow_proof
def test_recorded_pulls_differ_as_they_did(pullsim: Pullsim, place: Path, answered: list[tuple[Line, Line]]) -> None:
    requests = golden.golden("store", "traces", f"{TRACE}.jsonl")
    asked = ("upgrade", "--lake", place / "lake", *BETWEEN, "--requests", requests, "--store", place / "store")
    code, out, err = pullsim(*asked, "--format", "json")
    assert code == 1, err
    told = json.loads(out)
    pulls = told["pulls"]
    counts = [len(answered), sum(differ(pair) for pair in answered), sum(differ(pair, *UNSEEN) for pair in answered)]
    assert [pulls["pulls"], pulls["differ"], pulls["seen"]] == counts
    assert pulls["source"] == "file"
    for rule in pulls["rules"]:
        for example in rule["examples"]:
            before, after = answered[example["seq"] - 2]  # the first line is the header
            assert (example["request"]["offset"], example["request"]["topic"]) == (before["request"]["offset"], before["request"]["topic"])
            for side, line in (("before", before), ("after", after)):
                shared = {name: line["response"][name] for name in example[side] if name in line["response"] and name != "messages"}
                assert {name: example[side][name] for name in shared} == shared
    bounds = [queues_of(golden.recovery(STORE)), queues_of(golden5.recovery("on-4.9.3-stores", STORE))]
    assert told["files"]["queuesDiffer"] == sum(bounds[0][queue] != bounds[1][queue] for queue in bounds[0])

    code, out, err = pullsim(*asked)
    assert code == 1, err
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"Pulls: 5.5.0 answers {counts[2]:,} of {counts[0]:,} pulls of the file otherwise than 4.9.3.")
    assert " ".join(told["verdict"]).split() == out.partition("\nPULLS BY RULE")[0].split()
    example = (PROJECT / "docs" / "upgrading.md").read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    # its store had no groups: test_upgrade_text.py has the sentence on these
    shown = [line for line in entries(example) if not line.startswith(("...", "Groups:"))]
    assert len(shown) > 40
    printed = iter(entries(out))
    assert [line for line in shown if line not in printed] == [], "not printed, or in another order"


@pytest.fixture(scope="module")
def compared(place: Path) -> dict[str, Any]:
    """What an upgrade would change for the pulls that pullsim makes because none were recorded."""
    with redirect_stdout(StringIO()) as out:
        assert run(["upgrade", "--lake", str(place / "lake"), *BETWEEN, "--format", "json"]) == 1
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


def pulls_made() -> set[tuple[str, int, int]]:
    """The group, queue and offset of each pull that is made."""
    return {
        (group, queue, offset)
        for group, (own, committed) in COMMITTED.items()
        for (topic, queue), (least, end) in queues_of(golden.recovery(STORE)).items()
        if topic == TOPIC
        for offset in (*([committed] if queue == own else []), 0, least - 1, end, end + 1)
        if offset >= 0
    }


def badly_asked() -> list[tuple[str, int, int]]:
    """The pulls past the end of a queue that begins at 0: 4.9.3 goes to 0 there."""
    before = queues_of(golden.recovery(STORE))
    return [one for one in pulls_made() if one[2] > before[TOPIC, one[1]][1] and before[TOPIC, one[1]][0] == 0]


def test_pulls_are_made_for_each_group_and_queue_where_none_were_recorded(compared: dict[str, Any]) -> None:
    told, asked = compared, pulls_made()
    before, after = queues_of(golden.recovery(STORE)), queues_of(golden5.recovery("on-4.9.3-stores", STORE))
    assert (told["pulls"]["source"], told["pulls"]["pulls"]) == ("made", len(asked))
    # the queues whose min differs, at every offset
    counts = {rule["rule"]: rule["seen"] for rule in told["pulls"]["rules"]}
    assert counts["overflow_badly_goes_to_max"] == len(badly_asked())
    assert counts["min_by_search"] == sum(before[TOPIC, queue][0] != after[TOPIC, queue][0] for _, queue, _ in asked)
    queue, committed = COMMITTED["g-past"]
    end = before[TOPIC, queue][1]
    assert told["groups"]["committed"] == len(COMMITTED)
    assert (told["groups"]["skipped"], told["groups"]["skipped_messages"], told["groups"]["again"]) == (1, end, 0)
    (moved,) = told["groups"]["most"]
    assert (moved["consumerGroup"], moved["committed"], moved["goesOnBefore"], moved["goesOnAfter"]) == ("g-past", committed, 0, end)


@slow_proof  # test_upgrade_text.py has the section of the report, and tests/pipeline/embedded the questions of both engines
def test_a_report_tells_the_upgrade_and_else_what_the_embedded_engine_tells(
    pullsim: Pullsim, place: Path, compared: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, asked = compared, pulls_made()
    monkeypatch.setattr("pipeline.commands.report_commands.now", lambda: NOON)  # each report tells when it was made
    reports = {}
    for engine, more in (("spark", ("--upgrade-to", "5.5.0")), ("duckdb", ())):
        asked_for = ("report", "--lake", place / "lake", "--out", tmp_path / "report.json", "--format", "json", "--engine", engine)
        code, _, err = pullsim(*asked_for, *more)
        assert code == 0, err
        reports[engine] = json.loads((tmp_path / "report.json").read_text("utf-8"))
    section = reports["spark"]["questions"].pop()
    assert reports["spark"] == reports["duckdb"]
    assert (section["id"], section["note"]) == ("upgrade", " ".join(told["verdict"]))
    assert section["finding"].startswith(f"{told['pulls']['seen']} of {len(asked)} pulls end otherwise in 5.5.0 than in 4.9.3")
    outcomes = {
        (rule["rule"], one["before"], one["after"], one["pulls"])
        for rule in told["pulls"]["rules"]
        for one in rule["outcomes"]
        if rule["rule"]
    }
    shown = {tuple(row.values()) for row in section["rows"] if row["rule"] == "overflow_badly_goes_to_max" and row["after"]}
    assert shown <= outcomes
    assert sum(row[-1] for row in shown) == len(badly_asked())


def test_pulls_by_rule_are_given_as_csv(pullsim: Pullsim, place: Path, tmp_path: Path) -> None:
    pull = {
        "group": "g",
        "topic": TOPIC,
        "queueId": COMMITTED["g-past"][0],
        "offset": COMMITTED["g-past"][1],
        "maxMsgNums": 1,
        "filter": None,
    }
    asked = ("upgrade", "--lake", place / "lake", "--from", "4.9.3", "--to", "4.9.8", "--format", "csv", "--requests")
    code, out, err = pullsim(*asked, write_lines(tmp_path / "past.jsonl", [{"request": pull}]))
    assert code == 1, err
    assert out.splitlines() == ["rule,4.9.3,4.9.8,pulls", "overflow_badly_goes_to_max,OFFSET_OVERFLOW_BADLY,OFFSET_OVERFLOW_BADLY,1"]
    code, out, err = pullsim(*asked, write_lines(tmp_path / "zero.jsonl", [{"request": pull | {"offset": 0}}]))
    assert code == 0, err
    assert out.splitlines() == ["rule,4.9.3,4.9.8,pulls"]


@pytest.mark.parametrize("engine", [(), pytest.param(ON_SPARK, marks=slow_proof)], ids=["driver", "spark"])
def test_an_explanation_names_the_rule_that_differs(pullsim: Pullsim, place: Path, engine: tuple[str, ...]) -> None:
    queue, offset = COMMITTED["g-past"]
    pull = ("explain", "--lake", place / "lake", "--group", "g", "--topic", TOPIC, "--queue", queue, *engine, "--offset", offset)
    code, out, err = pullsim(*pull, "--versus", "4.9.8", "--format", "json")
    assert code == 0, err
    told = json.loads(out)["versus"]
    assert [rule["rule"] for rule in told["rules"]] == ["overflow_badly_goes_to_max"]
    answers = told["rules"][0]["answers"]
    assert (answers["4.9.3"]["nextBeginOffset"], answers["4.9.8"]["nextBeginOffset"]) == (0, 2)
    _, out, _ = pullsim(*pull[:-1], 0, "--versus", "4.9.8")
    assert out.rstrip().endswith("broker 4.9.8 gives the same answer")


@slow_proof
@pytest.mark.parametrize("asked", ["made", "snapshot", "request-time", "recorded-max"])
def test_spark_tells_what_the_driver_tells(
    pullsim: Pullsim, place: Path, answered: list[tuple[Line, Line]], tmp_path: Path, asked: str
) -> None:
    words = ["upgrade", "--lake", place / "lake", *BETWEEN, "--format", "json"]
    if asked != "made":
        lines = [line | {"request": line["request"] | {"timestamp": number}} for number, (line, _) in enumerate(answered)]
        words += ["--requests", write_lines(tmp_path / "asked.jsonl", lines), "--at", asked]
    by_driver, by_spark = pullsim(*words), pullsim(*words, *ON_SPARK)
    assert "pulls" in json.loads(by_driver[1])
    assert by_spark == by_driver


@slow_proof
def test_spark_compares_captured_pulls_as_the_driver_does(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, trace = store_with_topics(tmp_path_factory)
    (tmp_path / "traffic.pcap").write_bytes(capture_of(conversation(recorded(trace), store, SerializeType.ROCKETMQ)))
    for words in (("import", store, "--broker-name", "b"), ("capture", tmp_path / "traffic.pcap")):
        code, _, err = pullsim(*words, "--lake", tmp_path / "lake")
        assert code == 0, err
    upgrade = ("upgrade", "--lake", tmp_path / "lake", *BETWEEN, "--format", "json")
    by_driver, by_spark = pullsim(*upgrade), pullsim(*upgrade, *ON_SPARK)
    assert json.loads(by_driver[1])["pulls"]["source"] == "captured"
    assert by_spark == by_driver


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--from", "5.5.0", "--to", "4.9.3"), "--to: expected a later version than --from 5.5.0, found 4.9.3"),
        ((*BETWEEN, "--at", "request-time"), "expected pulls with times, found no captured pulls of broker 'b'"),
        (("--from", "4.9.3", "--to", "6.0"), "'6.0' is not one of"),
    ],
)
def test_what_cannot_be_compared_is_refused(pullsim: Pullsim, place: Path, options: tuple[str, ...], found: str) -> None:
    code, _, err = pullsim("upgrade", "--lake", place / "lake", *options)
    assert code == 2
    assert found in err
