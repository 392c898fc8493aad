"""Causes of findings: each torn store of the real broker has the causes that its damage names, and its start does what the real one did."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.work import DriverTasks
from pipeline.verify.causes import what_start_does
from pipeline.verify.finding_codes import CODES, SEVERITIES, root_of
from tests.runs.in_session import Pullsim, pullsim_in
from tests.truth import golden5
from tests.truth.golden import needs_golden, recovery
from tests.truth.golden5 import needs_golden5
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# store -> cause -> what follows from it, by what was done to the store; stores with an abort file were not shut down
TORN: dict[str, dict[str, set[str]]] = {
    "torn-bad-size": {"LOG_BAD_RECORD": {"CQ_BEYOND_LOG", "CHECKPOINT_AHEAD", "INDEX_BEYOND_LOG"}, "NOT_SHUT_DOWN": set()},
    "torn-cq-ahead": {"CQ_BEYOND_LOG": {"CHECKPOINT_AHEAD", "INDEX_BEYOND_LOG"}},
    "torn-cq-behind": {"CQ_MISSING": set()},
    "torn-cq-file-missing": {"FILES_MISSING": {"CQ_MISSING"}},
    "torn-cq-wrong-size": {"MAPPED_FILE": {"CQ_MISSING"}},
    "torn-zero-middle-old": {"LOG_NO_RECORD": {"CQ_NO_RECORD", "CQ_TWICE", "INDEX_NO_MESSAGE"}},
}
MESSAGE_MAGIC = 0xDAA320A7
Objects = list[dict[str, Any]]


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def objects(out: str, row: str) -> Objects:
    return [one for line in out.splitlines() if (one := json.loads(line))["row"] == row]


@needs_golden
@pytest.mark.parametrize("name", TORN)
def test_a_torn_store_has_the_causes_of_its_damage(pullsim: Pullsim, stores: Path, name: str) -> None:
    code, out, err = pullsim("verify", stores / name, "--format", "json")
    assert code == 1, err
    causes = objects(out, "cause")
    assert {one["code"]: {group["code"] for group in one["folded"]} for one in causes} == TORN[name]
    severities = [[severity.name for severity in SEVERITIES].index(one["severity"]) for one in causes]
    assert severities == sorted(severities)
    findings, [summary] = objects(out, "finding"), objects(out, "summary")
    grouped = sum(one["findings"] + sum(group["findings"] for group in one["folded"]) for one in causes)
    assert len(findings) == summary["findings"] == grouped
    assert summary["files"] == len(objects(out, "file"))
    [start] = objects(out, "start")
    told, real = "\n".join(start["does"]), recovery(name)
    if not real["load"]:
        assert re.fullmatch("the broker would not start: .*found 980 bytes.*", told)
        return
    for when in ("load", "start"):
        count, first = (real[f"redispatchedIn{when.capitalize()}{what}"] for what in ("", "From"))
        line = f"the broker's {when} would dispatch {count:,} messages again, from commit log offset {first} on"
        assert (line in told) == (count > 0)


@needs_golden
def test_people_are_told_causes_between_the_findings_and_the_last_line(pullsim: Pullsim, stores: Path) -> None:
    code, out, _ = pullsim("verify", stores / "torn-bad-size")
    assert code == 1
    findings, _, rest = out.partition("\ncauses, the worst first")
    assert len(re.findall(r"^[A-Z_]+ [\w/%]+: ", findings, re.MULTILINE)) == 10
    assert out.splitlines()[-1] == "55 files, 10 findings"
    assert re.search(r"^LOST   LOG_BAD_RECORD commitlog/0+393216: ", rest, re.MULTILINE)
    assert "follows from it: CQ_BEYOND_LOG: 6 findings, 7 messages or entries; the first consumequeue/BatchTopic/0/" in rest
    assert rest.index("LOST   LOG_BAD_RECORD") < rest.index("MENDED NOT_SHUT_DOWN") < rest.index("what the broker's start would do")


@needs_golden
@pytest.mark.parametrize("name", ["torn-bad-crc", "torn-bad-size", "basic"])
def test_the_cut_of_the_log_is_told_where_a_message_begins(stores: Path, name: str) -> None:
    start = what_start_does(DriverTasks(), str(stores / name), BrokerSettings.from_sources())
    cuts = [note for note in start.notes if "would cut the log there" in note]
    if name == "basic":
        assert (cuts, start.lost) == ([], 0)
        return
    [cut] = cuts
    end = recovery(name)["afterStart"]["maxPhyOffset"]  # as the real broker left it
    file, byte = re.findall(r"commitlog/(\d{20}), byte (\d+):", cut)[0]
    assert int(file) + int(byte) == end
    # the messages from there on, by the sizes that lead from one to the next
    rest, lost = (stores / name / "commitlog" / file).read_bytes()[int(byte) :], 0
    while int.from_bytes(rest[4:8], "big") == MESSAGE_MAGIC and len(rest) >= (size := int.from_bytes(rest[:4], "big")):
        rest, lost = rest[size:], lost + 1
    said = {"torn-bad-crc": f"lose {lost} messages", "torn-bad-size": "lose a damaged message and what follows it"}
    assert cut.endswith(f"would cut the log there, and {said[name]}")
    assert start.lost == (lost if name == "torn-bad-crc" else 0)


@needs_golden
def test_the_last_line_tells_of_messages_that_the_start_would_lose(pullsim: Pullsim, stores: Path) -> None:
    code, out, _ = pullsim("verify", stores / "torn-bad-crc")
    assert code == 1
    assert re.search(r"^WRONG  LOG_BAD_CRC ", out, re.MULTILINE)
    lost = re.findall(r"would cut the log there, and lose (\d+) messages", out)[0]
    assert f"\nthe worst of it: LOST: messages are gone, or no consumer gets them: the start would cut {lost} messages off the log\n" in out
    _, told, _ = pullsim("verify", stores / "torn-bad-crc", "--format", "json")
    assert [json.loads(line)["lost"] for line in told.splitlines() if '"row": "start"' in line] == [int(lost)]


@needs_golden
@pytest.mark.parametrize(
    ("left", "options", "told"),
    [
        ((), (), True),
        (("consumerOffset.json",), (), False),
        (("consumerOffset.json.bak",), (), False),
        (("consumerOffset.json",), ("enableLmq=true",), True),
        (("lmqConsumerOffset.json",), ("enableLmq=true",), False),
    ],
)
def test_offsets_that_are_not_there_are_told(
    stores: Path, tmp_path: Path, left: tuple[str, ...], options: tuple[str, ...], told: bool
) -> None:
    store = shutil.copytree(stores / "small", tmp_path / "store")
    shutil.rmtree(store / "config", ignore_errors=True)
    for name in left:
        (store / "config").mkdir(exist_ok=True)
        (store / "config" / name).write_text('{"offsetTable":{}}', "utf-8")
    notes = what_start_does(DriverTasks(), str(store), BrokerSettings.from_sources(options=options)).notes
    assert any("without the offsets of its groups" in note for note in notes) == told


def test_every_code_that_verify_gives_is_explained() -> None:
    sources = (path.read_text("utf-8") for path in (PROJECT / "pipeline" / "verify").glob("verify_*.py"))
    given = {code for text in sources for code in re.findall(r"[\"']([A-Z]+(?:_[A-Z]+)+)[\"']", text)}
    assert given - {"COMMIT_LOG", "CONSUME_QUEUE"} == CODES.keys()
    named = {one for code in CODES.values() for one in (*code.from_queue, *code.from_store)}
    assert named <= CODES.keys()


def test_a_code_names_only_causes_that_are_as_bad() -> None:
    worse = {
        (code.code, cause)
        for code in CODES.values()
        for cause in (*code.from_queue, *code.from_store)
        if SEVERITIES.index(CODES[cause].severity) > SEVERITIES.index(code.severity)
    }
    assert worse == set()


@needs_golden
@needs_golden5
def test_the_advice_on_queues_is_what_the_real_brokers_did() -> None:
    """A missing folder of one queue stays missing; without any queue all is dispatched again, by 5.5.0 up to the first bad record."""

    def of_both(name: str) -> list[dict[str, Any]]:
        return [recovery(name), golden5.recovery("on-4.9.3-stores", name)]

    def queues(store: dict[str, Any]) -> set[tuple[str, int]]:
        return {(one["topic"], one["queueId"]) for one in store["afterStart"]["queues"]}

    whole = recovery("small")
    for lost in of_both("torn-cq-topic-missing"):
        assert {topic for topic, _ in queues(whole) - queues(lost)} == {"BatchTopic"}
    for built in of_both("torn-cq-all-missing"):
        assert (built["redispatchedInLoad"] + built["redispatchedInStart"], queues(built)) == (801, queues(whole))
    kept, cut = (one["afterStart"]["maxPhyOffset"] for one in of_both("torn-bad-magic-old-cq-missing"))
    assert kept == whole["afterStart"]["maxPhyOffset"] > cut
    assert [one["start"] for one in of_both("torn-hole-cq-missing")] == ["timeout", "ok"]
    rebuild = CODES["CQ_MISSING"].do
    assert "the whole folder consumequeue" in rebuild
    assert "5.5.0 deletes the log from the first bad record on" in rebuild


@pytest.mark.parametrize(
    ("code", "of_log", "of_queue", "of_store", "root"),
    [
        ("CQ_NO_RECORD", ["LOG_BAD_RECORD"], (), (), "LOG_BAD_RECORD"),
        ("CQ_NO_RECORD", [], ("CQ_MISSING", "CQ_NO_RECORD"), ("LOG_BAD_RECORD",), "CQ_NO_RECORD"),  # it points elsewhere
        ("CQ_MISSING", [], ("CQ_MISSING", "CQ_NOT_FULL", "FILES_MISSING"), (), "FILES_MISSING"),
        ("CQ_TAIL", [], ("CQ_NOT_FULL", "CQ_MISSING", "CQ_TAIL"), (), "CQ_NOT_FULL"),
        # lost messages are never shown as a part of what the broker mends
        ("CQ_MISSING", [], ("CQ_MISSING",), ("NOT_SHUT_DOWN", "CQ_MISSING"), "CQ_MISSING"),
        ("CQ_BEYOND_LOG", [], (), ("CQ_BEYOND_LOG", "LOG_TAIL"), "CQ_BEYOND_LOG"),
        ("CQ_NO_RECORD", ["LOG_TAIL"], (), ("LOG_TAIL", "CQ_NO_RECORD"), "CQ_NO_RECORD"),
        ("CQ_NO_RECORD", ["LOG_TAIL", "LOG_BAD_RECORD"], (), (), "LOG_BAD_RECORD"),
        ("OFFSET_BEYOND_QUEUE", [], (), ("OFFSET_BEYOND_QUEUE",), "OFFSET_BEYOND_QUEUE"),
        ("LOG_BAD_CRC", ["LOG_BAD_CRC"], (), ("LOG_BAD_CRC", "NOT_SHUT_DOWN"), "LOG_BAD_CRC"),
    ],
)
def test_a_finding_follows_from_what_lies_at_its_place(code: str, of_log: list[str], of_queue: Any, of_store: Any, root: str) -> None:
    assert root_of(code, of_log=of_log, of_queue=of_queue, of_store=of_store) == root
