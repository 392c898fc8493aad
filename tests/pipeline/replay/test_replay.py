"""`pullsim replay` on a real store: order and form of the answers, the effects of options, and the error of a bad line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.makers.made_store import MadeStore, Record, make_store
from tests.runs.replaying import (
    BROKER,
    DEMO_TRACE,
    Line,
    all_lines,
    answers_of,
    demo_data,
    differences,
    lake_of,
    read_lines,
    run,
    write_lines,
)
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.truth.golden import golden, needs_golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.lake.lake import Lake

ILLEGAL_ARGUMENT = {"exception": "java.lang.IllegalArgumentException"}
OUT_OF_MEMORY = {"exception": "java.lang.OutOfMemoryError"}
# caps that no pull of a test reaches
NO_CAPS = [f"maxTransfer{what}OnMessageIn{where}={2**31 - 1}" for what in ("Bytes", "Count") for where in ("Memory", "Disk")]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_data(tmp_path_factory) / DEMO_TRACE


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The store of the trace."""
    return lake_of(spark, demo_data(tmp_path_factory) / "cleaned", tmp_path_factory)


@pytest.fixture(scope="module")
def lines(trace: Path) -> list[Line]:
    return read_lines(trace)


def pull(line: Line, **changes: Any) -> Line:
    """The request of a line without the recorded answer, with some fields changed."""
    return {"request": line["request"] | changes}


def found(lines: list[Line]) -> Line:
    """A pull without a filter that got several messages."""
    return next(line for line in lines if line["request"]["filter"] is None and line["response"].get("messageCount", 0) > 3)


def test_answers_come_in_the_order_of_the_requests(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    shuffled = [*lines, *lines]
    random.Random(1).shuffle(shuffled)
    assert differences(shuffled, answers_of(lake, shuffled, tmp_path)) == []


def test_requests_come_back_as_they_were(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    texts = ["\u0000\u2028\x85 \U0001f680", '"\\/', "ü", " "]
    odd = [pull(lines[0], group=text, topic=text, note={"of": [text, None, 1, True]}) for text in texts]
    answers = answers_of(lake, odd, tmp_path)
    assert [line["request"] for line in answers] == [line["request"] for line in odd]
    assert {line["response"]["status"] for line in answers} == {"NO_MESSAGE_IN_QUEUE"}
    assert all(list(line) == ["request", "response"] for line in answers)


def test_messages_can_be_left_out(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    expected = [line | {"response": {name: value for name, value in line["response"].items() if name != "messages"}} for line in lines]
    requests = write_lines(tmp_path / "requests.jsonl", lines)
    done = run(lake, requests, out=str(tmp_path / "out"), messages=False, compare=True)
    assert differences(expected, read_lines(tmp_path / "out")) == []
    assert done.comparison is not None
    assert (done.comparison.compared, done.comparison.differ) == (len(lines), 0)


@slow_proof
@pytest.mark.parametrize("kinds", sampled([{"TAG"}, {"SQL92"}, {"null", "TAG"}], 1))
def test_only_the_chosen_filters_are_answered(kinds: set[str], lake: Lake, lines: list[Line], trace: Path, tmp_path: Path) -> None:
    chosen = [line for line in lines if ("null" if line["request"]["filter"] is None else line["request"]["filter"]["type"]) in kinds]
    answers = answers_of(lake, trace, tmp_path, filters=frozenset(kinds))
    assert [line["request"] for line in answers] == [line["request"] for line in chosen]
    assert differences(chosen, answers) == []


def test_the_settings_of_the_header_hold_unless_others_are_given(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    # one message a pull: nextBeginOffset of a pull without filter is the next one
    capped = {"maxTransferCountOnMessageInMemory": 1, "maxTransferCountOnMessageInDisk": 1}
    header = {"kind": "trace", "config": capped}
    several = pull(found(lines))
    requests = write_lines(tmp_path / "requests.jsonl", [header, several])
    [by_header] = answers_of(lake, requests, tmp_path)
    assert by_header["response"]["messageCount"] == 1
    assert by_header["response"]["nextBeginOffset"] == several["request"]["offset"] + 1
    [by_option] = answers_of(lake, requests, tmp_path, settings=[f"{name}=3" for name in capped])
    assert by_option["response"]["messageCount"] == 3
    assert by_option["response"]["messages"] == found(lines)["response"]["messages"][:3]


NEVER, ALWAYS = 2.0, 0.0


@pytest.mark.parametrize(
    ("few_ranges", "some_segments", "least_part"),
    [
        (0, 10_000, ALWAYS),
        pytest.param(10_000, 10_000, NEVER, marks=slow_proof),
        pytest.param(0, 10_000, NEVER, marks=slow_proof),
        pytest.param(0, 0, NEVER, marks=slow_proof),
    ],
    ids=["by the tasks", "each segment by name", "by a join", "by topics and a range"],
)
def test_of_a_large_store_only_what_is_asked_for_is_read(
    few_ranges: int, some_segments: int, least_part: float, lake: Lake, lines: list[Line], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.replay import replay, segment_files, touched_segments
    from pipeline.rows.queue_batches import SCAN_ENTRIES

    monkeypatch.setattr(replay, "_MANY_ENTRIES", 0)
    monkeypatch.setattr(replay, "_ENTRIES_A_REQUEST", 0)
    monkeypatch.setattr(touched_segments, "_FEW_RANGES", few_ranges)
    monkeypatch.setattr(touched_segments, "SOME_SEGMENTS", some_segments)
    monkeypatch.setattr(segment_files, "_LEAST_PART", least_part)
    by_tasks = []

    def noted(*of: Any) -> segment_files.SegmentTasks | None:
        by_tasks.append(segment_files.segment_tasks(*of))
        return by_tasks[-1]

    monkeypatch.setattr(replay, "segment_tasks", noted)
    near = [line for line in lines if line["request"]["maxMsgNums"] <= SCAN_ENTRIES]  # others need all entries of a file
    for some in (lines, near) if ALL else (near,):
        assert differences(some, answers_of(lake, some, tmp_path, by_spark=True)) == []
    assert len(near) < len(lines)
    assert [bool(one) for one in by_tasks] == [*([False] if ALL else []), least_part == ALWAYS]


@slow_proof
@needs_golden
def test_settings_that_are_given_make_the_answers_of_a_slave(lake: Lake, tmp_path: Path) -> None:
    recorded = read_lines(golden("store", "traces", "cleaned-slave.jsonl"))
    assert differences(recorded, answers_of(lake, recorded, tmp_path, settings=["brokerRole=SLAVE", "brokerId=1"])) == []


def test_a_store_that_cannot_be_read_answers_null(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    asked = [pull(line) for line in lines]
    answers = answers_of(lake, asked, tmp_path, settings=["readable=false"])
    assert [line["response"] for line in answers] == [None] * len(asked)


def test_maxMsgNums_out_of_range_throws_where_the_scan_would_start(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    inside = found(lines)
    beyond = pull(inside, offset=inside["response"]["maxOffset"])
    asked = [
        pull(inside, maxMsgNums=-1),
        pull(inside, maxMsgNums=-(2**31)),
        pull(inside, maxMsgNums=2**31 - 1),
        pull(beyond, maxMsgNums=-1),
        pull(beyond, maxMsgNums=2**31 - 1),
        pull(inside, maxMsgNums=0),
    ]
    answers = [line["response"] for line in answers_of(lake, asked, tmp_path)]
    assert answers[:3] == [ILLEGAL_ARGUMENT, ILLEGAL_ARGUMENT, OUT_OF_MEMORY]
    assert [answer["status"] for answer in answers[3:]] == ["OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_ONE", "FOUND"]
    assert answers[5]["messages"] == inside["response"]["messages"][:1]


UNKNOWN = [("NoSuchTopic", 0), ("NoSuchTopic", -1), ("", 0), ("../commitlog", 0), ("%LMQ%x", 2**31 - 1)]


@slow_proof
def test_an_unknown_queue_is_an_empty_one(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    known = lines[0]["request"]["topic"]
    asked = [
        pull(lines[0], topic=topic, queueId=queue_id, offset=offset, filter=None)
        for topic, queue_id in [*UNKNOWN, (known, -1), (known, 2**31 - 1)]
        for offset in (0, -1, 5, 2**63 - 1)
    ]
    empty = {"status": "NO_MESSAGE_IN_QUEUE", "minOffset": 0, "maxOffset": 0, "messageCount": 0, "messages": []}
    for settings, expected in (([], [0] * len(asked)), (["brokerRole=SLAVE"], [line["request"]["offset"] for line in asked])):
        answers = [line["response"] for line in answers_of(lake, asked, tmp_path, settings=settings)]
        assert all(answer | empty == answer for answer in answers)
        assert [answer["nextBeginOffset"] for answer in answers] == expected


def test_an_expression_of_separators_only_is_an_error_of_its_own(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    asked = [pull(found(lines), filter={"type": "TAG", "expression": expression}) for expression in ("||", "||||", " || ")]
    requests = write_lines(tmp_path / "requests.jsonl", asked)
    done = run(lake, requests, out=str(tmp_path / "out"))
    broken, broken_too, nothing = (line["response"] for line in read_lines(tmp_path / "out"))
    assert broken["error"] == broken_too["error"] == "SUBSCRIPTION_PARSE_FAILED"
    assert nothing["status"] == "NO_MATCHED_MESSAGE"
    assert done.unanswered == {"SUBSCRIPTION_PARSE_FAILED": 2}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> MadeStore:
    """A queue of 21,000 entries, 20,000 of them in its first file."""
    records = (Record(tag="TagA" if number % 7 == 0 else "TagB", body=b"") for number in range(21_000))
    return make_store(tmp_path_factory.mktemp("made") / "wide", records, log_file=1 << 20, queue_file=400_000)


@slow_proof
def test_a_wide_pull_reaches_over_segments_to_the_end_of_its_file(
    wide: MadeStore, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spans = [(0, 800), (0, 801), (1, 8192), (8191, 2), (8000, 8500), (100, 107_374_182), (19_999, 5000), (20_000, 5000), (7, 107_374_183)]
    request = {"group": "g", "topic": "T", "queueId": 0, "filter": None}
    plain = [{"request": request | {"offset": offset, "maxMsgNums": wanted}} for offset, wanted in spans]
    by_tag = [
        pull(line, filter={"type": "TAG", "expression": "TagA"}, maxMsgNums=max(wanted, 800))
        for line, (_, wanted) in zip(plain, spans, strict=True)
    ]
    lake = lake_of(spark, wide.path, tmp_path_factory)
    answers = [line["response"] for line in answers_of(lake, [*plain, *by_tag], tmp_path, settings=NO_CAPS)]
    # of 107,374,183 entries the window in bytes passes an int, and comes to less than its least, 800 entries
    ends = [800, 801, 8193, 8193, 16_500, 20_000, 20_000, 21_000, 807]
    assert [answer["nextBeginOffset"] for answer in answers[: len(spans)]] == ends
    for (offset, _), end, answer in zip(spans, ends, answers, strict=False):
        assert [message["queueOffset"] for message in answer["messages"]] == list(range(offset, end))
    # not all entries in the window match, so that it is looked through to its end
    ends[3] = 8191 + 800
    for (offset, _), end, answer in zip(spans, ends, answers[len(spans) :], strict=True):
        assert answer["nextBeginOffset"] == end
        assert [message["queueOffset"] for message in answer["messages"]] == [at for at in range(offset, end) if at % 7 == 0]


@slow_proof
def test_a_cap_of_the_least_int_is_none(
    wide: MadeStore, spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # less 1, as isTheBatchFull has it, it is the greatest int
    least = [f"maxTransferCountOnMessageIn{where}={-(2**31)}" for where in ("Memory", "Disk")]
    asked = [{"request": {"group": "g", "topic": "T", "queueId": 0, "offset": 0, "maxMsgNums": 700, "filter": None}}] * 3
    lake = lake_of(spark, wide.path, tmp_path_factory)
    answers = answers_of(lake, asked, tmp_path, settings=[*NO_CAPS, *least])
    assert [line["response"]["messageCount"] for line in answers] == [700] * 3


def lmq_trace() -> tuple[Line, list[Line]]:
    """A header that allows light queues, and pulls of queues that no store has."""
    header = {"kind": "trace", "config": {"enableLmq": True, "enableMultiDispatch": True, "maxLmqConsumeQueueNum": 1}}
    queues = [("%LMQ%a", 0, None), ("T", 5, None), ("%LMQ%a", 0, None), ("%LMQ%b", 0, "SQL92"), ("%LMQ%a", 0, None), ("T", 5, None)]
    asked = [
        {
            "request": {
                "group": "g",
                "topic": topic,
                "queueId": queue_id,
                "offset": 0,
                "maxMsgNums": 1,
                "filter": kind and {"type": kind, "expression": "a > 1"},
            }
        }
        for topic, queue_id, kind in queues
    ]
    return header, asked


@pytest.mark.parametrize("filters", sampled([None, frozenset({"null"})], 1))
def test_pulls_of_unknown_light_queues_count_against_their_limit(filters: frozenset[str] | None, lake: Lake, tmp_path: Path) -> None:
    header, asked = lmq_trace()
    requests = write_lines(tmp_path / "requests.jsonl", [header, *asked])
    # the second queue passes the limit of one; from then on the store answers null, also for the queue that it knows
    expected = [*["NO_MESSAGE_IN_QUEUE"] * 4, None, "NO_MESSAGE_IN_QUEUE"]
    answers = answers_of(lake, requests, tmp_path, filters=filters)
    seen = [line["response"] and line["response"]["status"] for line in answers]
    kinds = [line["request"]["filter"] is None for line in asked]
    assert seen == [status for status, is_null in zip(expected, kinds, strict=True) if filters is None or is_null]


def test_a_broker_5_5_0_answers_pulls_of_light_queues_however_many_there_are(lake: Lake, tmp_path: Path) -> None:
    # the real one does (tests/long/test_versions_oracle.py)
    header, asked = lmq_trace()
    config = header["config"] | {"rulesVersion": "5.5.0", "maxLmqConsumeQueueNum": 0}
    requests = write_lines(tmp_path / "requests.jsonl", [header | {"config": config}, *asked])
    answers = answers_of(lake, requests, tmp_path)
    assert [line["response"]["status"] for line in answers] == ["NO_MESSAGE_IN_QUEUE"] * len(asked)


def test_a_recorded_answer_that_differs_is_shown_in_full(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    asked = lines[:40]
    wrong = asked[7] | {"response": {"status": "FOUND", "nextBeginOffset": -5}}
    unrecorded = pull(asked[8])
    requests = write_lines(tmp_path / "requests.jsonl", [*asked[:7], wrong, unrecorded, *asked[9:]])
    compared = run(lake, requests, out=str(tmp_path / "out"), compare=True).comparison
    assert compared is not None
    assert (compared.compared, compared.differ, compared.unrecorded) == (39, 1, 1)
    [(line, recorded, ours, fields)] = compared.first
    assert line == 8
    assert json.loads(recorded) == wrong["response"]
    assert json.loads(ours) == read_lines(tmp_path / "out")[7]["response"]
    assert "nextBeginOffset" in fields


@pytest.mark.parametrize("compare", [True, False])
def test_without_a_file_the_answers_go_to_the_table(
    compare: bool, lake: Lake, trace: Path, lines: list[Line], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.lake.lake import Lake
    from pipeline.replay import driver_answers
    from pipeline.requests import request_file
    from pipeline.schema import tables as t

    # without a comparison the driver answers one chunk after the other
    monkeypatch.setattr(request_file, "_LEAST_CHUNK_BYTES", 1000)
    monkeypatch.setattr(driver_answers, "_CHUNKS_AT_ONCE", 1)
    before, run_id = lake.newest().version, f"to-table-{compare}"
    done = run(Lake(spark, lake.root), trace, run_id=run_id, compare=compare)
    after = Lake(spark, lake.root)
    assert after.at.version == before + 1
    assert (done.requests, done.unanswered) == (len(lines), {})
    assert (done.comparison.differ if done.comparison else None) == (0 if compare else None)
    rows = {row["requestId"].rpartition("-")[2]: row for row in after.table(t.PULL_RESPONSE).where(f"runId = '{run_id}'").collect()}
    assert len(rows) == len(lines)
    for number, line in enumerate(lines, 2):
        row, response = rows[str(number)], line["response"]
        if "exception" in response:
            assert row["exception"] == response["exception"]
        else:
            assert (row["brokerName"], row["status"], row["nextBeginOffset"]) == (BROKER, response["status"], response["nextBeginOffset"])
            assert [entry["size"] for entry in row["entries"]] == [message["storeSize"] for message in response["messages"]]
    [run_row] = after.table(t.REPLAY_RUN).where(f"runId = '{run_id}'").collect()
    assert run_row["lakeVersion"] == before


BAD_LINES = {
    "no JSON": "pull me",
    "no offset": '{"request": {"group": "g", "topic": "T", "queueId": 0, "maxMsgNums": 1, "filter": null}}',
    "a byte order mark": '\ufeff{"request": {}}',
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_ends_the_replay_before_anything_is_written(kind: str, lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    from pipeline.main import judged

    requests = tmp_path / "requests.jsonl"
    good = json.dumps(pull(lines[0]))
    requests.write_text("\n".join([good, good, BAD_LINES[kind], good]), encoding="utf-8")
    before = lake.newest().version
    for out in (str(tmp_path / "out"), None):
        with pytest.raises(Exception, match="expected") as error:
            run(lake, requests, out=out)
        assert "RequestError" in repr(error.value)
        code, text = judged(error.value)
        assert code == 2
        assert f"{requests}, line 3: expected " in text
        assert ", found " in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["requests.jsonl"]
    assert lake.newest().version == before


def test_a_pull_without_a_time_cannot_be_answered_as_of_it(lake: Lake, lines: list[Line], tmp_path: Path) -> None:
    from pipeline.main import judged

    requests = write_lines(tmp_path / "requests.jsonl", [pull(lines[0], timestamp=5), pull(lines[0]), pull(lines[0])])
    expected = f'error: {requests}, line 2: expected a "timestamp" in ms in the request, for --at request-time, found none'
    both: tuple[dict[str, Any], ...] = ({}, {"filters": frozenset({"null", "TAG"})})
    for more in both:
        with pytest.raises(Exception, match="in ms in the request") as error:
            run(lake, requests, out=str(tmp_path / "out"), at="request-time", **more)
        assert judged(error.value) == (2, expected)
    assert not (tmp_path / "out").exists()


def test_a_file_of_no_requests_gives_no_answers(lake: Lake, trace: Path, tmp_path: Path) -> None:
    requests = write_lines(tmp_path / "requests.jsonl", all_lines(trace)[:1])
    done = run(lake, requests, out=str(tmp_path / "out"), compare=True)
    assert (tmp_path / "out").read_bytes() == b""
    assert done.comparison is not None
    assert (done.requests, done.comparison.compared) == (0, 0)
