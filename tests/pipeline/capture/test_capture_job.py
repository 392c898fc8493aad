"""`pullsim capture` and a replay of the captured pulls, from the packets to the line with the counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_format.remoting.command import SerializeType
from tests.makers.captured_runs import ok, store_with_topics
from tests.makers.captures import START, Sent, pcap
from tests.makers.recorded_pulls import capture_of, conversation, recorded
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import demo_data, lake_of
from tests.runs.sampling import slow_proof
from tests.truth.captured import CAPTURES, rows_of, unpack
from tests.truth.golden import needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return store_with_topics(tmp_path_factory)


def rows(pullsim: Pullsim, lake: Path, query: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ok(pullsim("sql", "--lake", lake, "--format", "json", query)).splitlines()]


def lake_with_capture(pullsim: Pullsim, answered: tuple[Path, Path], folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A lake with the store and the captured pulls that have a TAG filter or none, and the recorded lines of these pulls."""
    store, trace = answered
    lines = [line for line in recorded(trace) if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"]
    capture, lake = folder / "traffic.pcap", folder / "lake"
    capture.write_bytes(capture_of(conversation(lines, store, SerializeType.ROCKETMQ)))
    ok(pullsim("import", store, "--lake", lake, "--broker-name", "b"))
    assert f"{len(lines)} pulls, {len(lines)} of them answered" in ok(pullsim("capture", capture, "--lake", lake))
    return lake, lines


@slow_proof
def test_recorded_answers_come_out_of_the_packets_that_carry_them(pullsim: Pullsim, answered: tuple[Path, Path], tmp_path: Path) -> None:
    lake, lines = lake_with_capture(pullsim, answered, tmp_path)
    out = ok(pullsim("replay", "--lake", lake, "--compare", "--out", tmp_path / "answers.jsonl"))
    assert out.splitlines()[-1] == f"{len(lines)} compared, 0 differ"
    told = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text("utf-8").splitlines()]
    assert [one["response"]["status"] for one in told] == [line["response"]["status"] for line in lines]
    assert [one["request"]["offset"] for one in told] == [line["request"]["offset"] for line in lines]
    found = [one["response"] for one in told]
    theirs = [line["response"] for line in lines]
    assert [len(one["messages"]) for one in found] == [len(one["messages"]) for one in theirs]


@slow_proof
def test_captured_pulls_change_by_the_one_rule_of_4_9_8(pullsim: Pullsim, answered: tuple[Path, Path], tmp_path: Path) -> None:
    lake, lines = lake_with_capture(pullsim, answered, tmp_path)
    # the one rule of 4.9.8: past the end of a queue that begins at 0
    badly = [line for line in lines if (line["response"]["status"], line["response"]["minOffset"]) == ("OFFSET_OVERFLOW_BADLY", 0)]
    code, out, err = pullsim("upgrade", "--lake", lake, "--from", "4.9.3", "--to", "4.9.8", "--format", "json")
    assert code == 1, err
    pulls = json.loads(out)["pulls"]
    assert (pulls["source"], pulls["pulls"], pulls["differ"], pulls["seen"]) == ("captured", len(lines), len(badly), len(badly))
    [rule] = pulls["rules"]
    assert rule["examples"]
    for example, line in zip(rule["examples"], badly, strict=False):
        told = line["response"]
        assert example["requestId"]
        assert example["request"].items() <= line["request"].items()
        assert (example["before"]["nextBeginOffset"], example["after"]["nextBeginOffset"]) == (told["nextBeginOffset"], told["maxOffset"])


@slow_proof
def test_the_answers_to_captured_pulls_go_to_the_table(pullsim: Pullsim, answered: tuple[Path, Path], tmp_path: Path) -> None:
    lake, _ = lake_with_capture(pullsim, answered, tmp_path)
    ok(pullsim("replay", "--lake", lake))
    summary = rows(pullsim, lake, "SELECT code, count(*) AS n FROM pull_response GROUP BY code")
    recorded_codes = rows(pullsim, lake, "SELECT recordedCode AS code, count(*) AS n FROM pull_request GROUP BY recordedCode")
    assert sorted(map(str, summary)) == sorted(map(str, recorded_codes))


@slow_proof
def test_an_answer_that_is_not_the_recorded_one_is_told(pullsim: Pullsim, answered: tuple[Path, Path], tmp_path: Path) -> None:
    store, trace = answered
    lines = [line for line in recorded(trace) if line["request"]["filter"] is None][:20]
    wrong = json.loads(json.dumps(lines[3]))
    wrong["response"]["nextBeginOffset"] += 1
    capture, lake = tmp_path / "traffic.pcap", tmp_path / "lake"
    sent = conversation([*lines[:3], wrong, *lines[4:]], store, SerializeType.JSON)
    capture.write_bytes(capture_of(sent[:-1]))  # the last answer is never complete
    ok(pullsim("import", store, "--lake", lake, "--broker-name", "b"))
    ok(pullsim("capture", capture, "--lake", lake))
    code, out, _ = pullsim("replay", "--lake", lake, "--compare")
    assert code == 1
    assert "differs in nextBeginOffset" in out
    assert "1 never got an answer" in out
    assert out.splitlines()[-1] == "19 compared, 1 differ"


def two_pulls() -> list[Sent]:
    from tests.makers.captured_connections import answer, pull

    asked, told = pull(1) + pull(2), answer(1, b"body")
    return [Sent(True, 1, asked, micros=START), Sent(False, 1, told, micros=START + 5)]


@slow_proof
def test_a_capture_that_is_read_again_replaces_its_rows_and_no_others(pullsim: Pullsim, tmp_path: Path) -> None:
    first, second, lake = tmp_path / "a.pcap", tmp_path / "b.pcap", tmp_path / "lake"
    first.write_bytes(pcap([(one.micros, one.packet()) for one in two_pulls()]))
    second.write_bytes(pcap([(one.micros + 1_000_000, one.packet()) for one in two_pulls()]))
    query = "SELECT requestId, source, sequence, recordedCode FROM pull_request"
    ok(pullsim("capture", first, "--lake", lake, "--broker", "b"))
    once = rows(pullsim, lake, query)
    assert len(once) == 2
    ok(pullsim("capture", second, "--lake", lake, "--broker", "b"))
    both = rows(pullsim, lake, query)
    ok(pullsim("capture", first, "--lake", lake, "--broker", "b"))
    assert Counter(map(str, rows(pullsim, lake, query))) == Counter(map(str, both))
    assert len(both) == len({row["requestId"] for row in both}) == 4
    assert {str(row) for row in once} < {str(row) for row in both}


def test_what_cannot_be_read_is_a_row_and_the_rest_goes_on(pullsim: Pullsim, tmp_path: Path) -> None:
    refused = bytearray(two_pulls()[0].payload)
    refused[4] = 7
    sent = [*two_pulls(), Sent(True, 1 + len(refused), bytes(refused), micros=START + 9)]
    raw = pcap([(one.micros, one.packet()) for one in sent])
    capture, lake = tmp_path / "traffic.pcap", tmp_path / "lake"
    capture.write_bytes(raw + b"\x01\x02\x03")
    ok(pullsim("capture", capture, "--lake", lake))
    bad = rows(pullsim, lake, "SELECT source, position, error, raw FROM bad_request ORDER BY position")
    assert [row["position"] for row in bad] == [raw.rindex(sent[2].packet()) - 16, len(raw)]
    assert {row["source"] for row in bad} == {str(capture)}
    assert bad[1]["raw"] == "010203"
    assert rows(pullsim, lake, "SELECT count(*) AS n FROM pull_request") == [{"n": 3}]


@pytest.mark.parametrize(("content", "said"), [(b"no capture", "pcap"), (pcap([]) + b"\xff" * 99, "one packet"), (None, "traffic.pcap")])
def test_a_file_that_is_no_capture_ends_with_2_and_writes_nothing(
    pullsim: Pullsim, tmp_path: Path, content: bytes | None, said: str
) -> None:
    capture, lake = tmp_path / "traffic.pcap", tmp_path / "lake"
    if content is not None:
        capture.write_bytes(content)
    code, _, err = pullsim("capture", capture, "--lake", lake)
    assert (code, said in err, "traffic.pcap" in err) == (2, True, True)
    assert not lake.exists() or not any(lake.rglob("_delta_log"))


@slow_proof
def test_a_replay_without_captured_pulls_says_how_to_get_some(
    spark: SparkSession, pullsim: Pullsim, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = lake_of(spark, demo_data(tmp_path_factory) / "cleaned", tmp_path_factory)
    code, _, err = pullsim("replay", "--lake", lake.root, "--compare")
    assert code == 2
    assert "pullsim capture" in err


@slow_proof
@needs_golden
def test_a_golden_capture_gives_the_same_rows_on_spark_as_without_it(pullsim: Pullsim, tmp_path: Path) -> None:
    folder, lake = unpack(CAPTURES[2], tmp_path), tmp_path / "lake"
    ok(pullsim("capture", folder / "traffic.pcap", "--lake", lake))
    expected = list(rows_of(folder / "traffic.pcap"))
    tables = {"pull": "pull_request", "offset": "offset_history", "subscription": "subscription", "bad": "bad_request"}
    for kind, table in tables.items():
        assert len(rows(pullsim, lake, f"SELECT * FROM {table}")) == sum(one == kind for one, _ in expected)  # noqa: S608
    ours = rows(pullsim, lake, "SELECT sequence, client, queueOffset, recordedCode, recordedBodySha256, held FROM pull_request")
    theirs = [row for kind, row in expected if kind == "pull"]
    names = ("sequence", "client", "queueOffset", "recordedCode", "recordedBodySha256", "held")
    assert Counter(tuple(row[name] for name in names) for row in ours) == Counter(tuple(row.get(name) for name in names) for row in theirs)
