"""What an operator reads of a captured broker alarms only if something is wrong, and says that all is well only if that is known.

The expected values are computed from the capture's files and the broker's own log (exchange.jsonl).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.makers.captured_lakes import captured_broker
from tests.models.burrow import Seen, statuses
from tests.models.operator_answers import CORRECTIONS, outcome
from tests.models.store_lag import StoreLag
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.sampling import ALL, sampled, slow_proof
from tests.truth.captured import PULL_MESSAGE, exchanges, unpack
from tests.truth.golden import needs_golden
from tests.truth.places import PROJECT
from udfs.pull.codes import GetMessageStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_golden
HOUR = 3_600_000
BROKER = "broker-a"
QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 14, 15
STATUSES = {status.name for status in GetMessageStatus}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def captured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture with the broker's store, imported and captured into the folder `lake`."""
    return captured_broker(spark, tmp_path_factory)


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def rows(pullsim: Pullsim, captured: Path, *command: str) -> Rows:
    name, *rest = command
    code, out, err = pullsim(name, "--lake", captured / "lake", *rest, "--format", "json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def by_queue(found: Rows) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(row["consumerGroup"], row["topic"], row["queueId"]): row for row in found}


def test_view_and_command_foresee_the_same_deletions_from_the_times_of_the_files(pullsim: Pullsim, captured: Path) -> None:
    store = StoreLag(captured / "store")
    files = sorted((captured / "store" / "commitlog").iterdir())
    assert int(files[0].name) > 0  # a log that begins above 0
    # a file is deleted 72 hours after its last write, or in the next hour 04 after that; the last file, which still grows, is left out
    expires = {int(file.name): int(file.stat().st_mtime * 1000) + 72 * HOUR for file in files[:-1]}
    deleted = {
        first: at if at // HOUR % 24 == 4 else at // HOUR * HOUR + (4 - at // HOUR % 24) % 24 * HOUR for first, at in expires.items()
    }
    view = by_queue(rows(pullsim, captured, "sql", "SELECT * FROM retention_risk"))
    command = by_queue(rows(pullsim, captured, "retention", "--rate", "0"))
    assert view.keys() == command.keys()
    seen = 0
    for queue, row in view.items():
        said = command[queue]
        assert (row["nextFile"], row["deletedAt"]) == (said["nextFile"], said["deletedAt"]), queue
        if row["reason"] is None:
            assert row["basis"] == "FILE_RESERVED_TIME"
            assert (row["deletedAt"], row["timeToLossMillis"] + store.as_of) == (said["lossAt"], said["lossAt"])
        if row["nextFile"] in deleted:
            assert row["deletedAt"] == deleted[row["nextFile"]]
            entry = store.queues[queue[1:]].entries[max(row["consumerOffset"], row["minOffset"])]
            assert row["nextFile"] <= entry[0] < row["nextFile"] + files[0].stat().st_size
            seen += 1
    assert seen > 0


def skipped_offsets(folder: Path) -> dict[str, set[tuple[str, int, int]]]:
    """Group -> (topic, queueId, offset) that a pull skipped.

    Left out are offsets that were deleted when the group started without an offset, and those below an offset that it had passed.
    """
    stated: set[tuple[str, str, int]] = set()
    found: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
    gone: dict[tuple[str, str, int], set[tuple[str, int, int]]] = defaultdict(set)
    passed: dict[tuple[str, str, int], int] = {}
    ends = {name: queue.maximum for name, queue in StoreLag(folder / "store").queues.items()}
    for one in sorted(exchanges(folder), key=lambda one: one["t_arrive_us"]):
        code, asked, answer = one["request"]["code"], one["request"]["ext"], one["response"]
        if answer is None and code != UPDATE_CONSUMER_OFFSET:
            continue
        if code not in {QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, PULL_MESSAGE}:
            continue
        queue = asked["topic"], int(asked["queueId"])
        key = asked["consumerGroup"], *queue
        if code != PULL_MESSAGE:
            offset = asked.get("commitOffset") or (answer["ext"] or {}).get("offset")
            if offset is not None and int(offset) <= 0:
                stated.add(key)
        else:
            commits = int(asked["sysFlag"]) & 1 and answer["code"] in {0, 19, 20, 21}
            offset = asked["commitOffset"] if commits else None
        if offset is not None and int(offset) <= ends.get(queue, -1):
            passed[key] = max(passed.get(key, 0), int(offset))
        if code == PULL_MESSAGE and outcome(one) in CORRECTIONS:
            asked_for, given = int(asked["queueOffset"]), int(answer["ext"]["nextBeginOffset"])
            skipped = {(*queue, offset) for offset in range(max(asked_for, 0), given)}
            if asked_for > 0 or key in stated or passed.get(key, 0) > 0:
                found[asked["consumerGroup"]] |= {one for one in skipped - gone[key] if one[-1] >= passed.get(key, 0)}
            else:
                gone[key] |= skipped
            if asked_for <= int(answer["ext"]["maxOffset"]):  # the group has passed all offsets below
                passed[key] = max(passed.get(key, 0), asked_for)
    return found


def test_an_offset_that_two_pulls_skip_counts_once_and_a_first_start_is_no_loss(pullsim: Pullsim, captured: Path) -> None:
    wanted = skipped_offsets(captured)
    query = "SELECT consumerGroup, sum(lostOffsets) AS lost, sum(skipped) AS skipped FROM offset_correction GROUP BY consumerGroup"
    found = {row["consumerGroup"]: row for row in rows(pullsim, captured, "sql", query)}
    assert {group: row["lost"] for group, row in found.items()} == {group: len(wanted.get(group, ())) for group in found}
    assert found["g-first"]["skipped"] > found["g-first"]["lost"] == 0  # new, and the queues begin above 0
    assert 0 < found["g-probe"]["lost"] < found["g-probe"]["skipped"]
    ends = {name: queue.maximum for name, queue in StoreLag(captured / "store").queues.items()}
    per_queue = "SELECT topic, queueId, sum(lostOffsets) AS lost FROM offset_correction GROUP BY topic, queueId, consumerGroup"
    assert all(row["lost"] <= ends[row["topic"], row["queueId"]] for row in rows(pullsim, captured, "sql", per_queue) if row["lost"])
    # lost offsets are below the groups' offsets, so the lag does not show them
    lost = len(wanted["g-probe"])
    _, out, _ = pullsim("groups", "--lake", captured / "lake", "--group", "g-probe")
    assert f"it was sent past {lost:,} deleted messages" in " ".join(out.split())
    most = max(wanted, key=lambda group: len(wanted[group]))
    everywhere, losers = sum(map(len, wanted.values())), sum(map(bool, wanted.values()))
    told = f"{losers} groups were sent past {everywhere:,} deleted messages, {most} the most"
    assert told in " ".join(pullsim("groups", "--lake", captured / "lake")[1].split())
    _, out, _ = pullsim("retention", "--lake", captured / "lake", "--group", "g-probe")
    assert f"captured pulls were sent past {lost:,} deleted messages" in " ".join(out.split())


@slow_proof
def test_pulls_of_files_that_are_deleted_now_are_told(pullsim: Pullsim, tmp_path: Path) -> None:
    captured = unpack("rocketmq", tmp_path, store=True)
    lake = ("--lake", tmp_path / "lake")
    assert pullsim("import", captured / "store", *lake, "--properties", captured / "broker.conf")[0] == 0
    assert pullsim("capture", captured / "traffic.pcap", *lake)[0] == 0
    queues, gone = StoreLag(captured / "store").queues, []
    for one in exchanges(captured):
        asked, answer = one["request"]["ext"], one["response"]
        if one["request"]["code"] == PULL_MESSAGE and answer is not None and "minOffset" in (answer["ext"] or {}):
            queue = queues.get((asked["topic"], int(asked["queueId"])))
            if queue is not None and int(answer["ext"]["minOffset"]) <= int(asked["queueOffset"]) < queue.minimum:
                gone.append(one)
    assert gone
    code, out, err = pullsim("whatif", *lake, "--set", "maxTransferCountOnMessageInMemory=8", "--format", "json")
    assert code == 0, err
    assert any(
        note.startswith(f"files from which {len(gone)} captured pulls got an answer are deleted") for note in json.loads(out)["notes"]
    )
    code, out, err = pullsim("upgrade", *lake, "--from", "4.9.3", "--to", "5.5.0", "--format", "json")
    assert json.loads(out)["pulls"]["fromDeletedFiles"] == len(gone), err
    asked, answer = gone[0]["request"]["ext"], gone[0]["response"]["ext"]
    words = ("--topic", asked["topic"], "--group", asked["consumerGroup"], "--limit", "0", "--format", "json")
    pulls = map(json.loads, pullsim("pulls", *lake, *words)[1].splitlines())
    place = int(asked["queueId"]), int(asked["queueOffset"]), int(answer["minOffset"])
    first = next(one for one in pulls if (one["queueId"], one["queueOffset"], one["minOffset"]) == place)
    _, out, _ = pullsim("explain", *lake, "--request", first["requestId"])
    assert f"they differ: minOffset was {answer['minOffset']} then, and the file of offset" in out.splitlines()[-1]


def at_looks(captured: Path, looks: list[int], shift: int) -> dict[tuple[str, str, int], str]:
    """The statuses by the model of Burrow, from offsets on the wire and ends of queues as of each look (ms) and `shift` ms later."""
    store = StoreLag(captured / "store")
    told: dict[tuple[str, str, int], list[tuple[float, int]]] = defaultdict(list)
    ends: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for name, queue in store.queues.items():
        for number, entry in queue.entries.items():
            if (stamp := store.stamp(entry)) is not None:
                ends[name].append((stamp, number + 1))
    for one in exchanges(captured):
        asked: dict[str, Any] = one["request"]["ext"] or {}
        answer = one["response"]
        key = asked.get("consumerGroup", ""), asked.get("topic", ""), int(asked.get("queueId", -1))
        code, at = one["request"]["code"], one["t_arrive_us"] / 1000
        if code == UPDATE_CONSUMER_OFFSET:
            told[key].append((at, int(asked["commitOffset"])))
        elif code == QUERY_CONSUMER_OFFSET and answer is not None and answer["code"] == 0:
            told[key].append((one["t_write_us"] / 1000, int(answer["ext"]["offset"])))
        elif code == PULL_MESSAGE:
            if int(asked["sysFlag"]) & 1 and (answer is None or answer["code"] in {0, 19, 20, 21}):
                told[key].append((at, int(asked["commitOffset"])))
            if answer is not None and "maxOffset" in (answer["ext"] or {}):
                ends[key[1:]].append((one["t_write_us"] / 1000, int(answer["ext"]["maxOffset"])))
    seen = [
        Seen(*queue, look, offset if end is not None else None, end or 0)
        for queue, offsets in told.items()
        for look in looks
        for end in [max((end for at, end in ends[queue[1:]] if at <= look + shift), default=None)]
        for offset in [max((one for one in offsets if one[0] <= look + shift), default=(0, None))[1]]
    ]
    return statuses(seen, intervals=10, minimum_complete=1.0, allowed_lag=0)


def test_verdicts_come_from_captured_commits_and_what_is_not_known_is_not_ok(pullsim: Pullsim, captured: Path) -> None:
    found = rows(pullsim, captured, "sql", "SELECT * FROM group_status")
    seen = by_queue([row for row in found if row["seenIn"] == "CAPTURE"])
    [last] = {row["observedAt"] for row in seen.values()}
    looks = [last - 5000 * number for number in range(10)]
    # a commit may come within some ms of a look, and an answer is on the wire a little later than in the broker
    wanted = [at_looks(captured, looks, shift) for shift in (-30, 0, 30)]
    assert seen.keys() == wanted[1].keys()
    assert {queue: row["status"] for queue, row in seen.items() if row["status"] not in {one[queue] for one in wanted}} == {}
    assert {"OK", "UNKNOWN"} < {row["status"] for row in seen.values()}
    stored = {(group, topic, queue) for (group, topic), queues in StoreLag(captured / "store").offsets.items() for queue in queues}
    rest = by_queue([row for row in found if row["seenIn"] is None])
    assert rest.keys() == stored - seen.keys()
    assert {(row["status"], row["why"]) for row in rest.values()} <= {("UNKNOWN", "NOT_OBSERVED")}


@slow_proof
def test_a_captured_pull_is_explained_to_the_code_and_offset_that_the_broker_answered(pullsim: Pullsim, captured: Path) -> None:
    query = (
        "SELECT requestId, recordedCode, recordedNextBeginOffset, registration, sysFlag FROM pull_request WHERE recordedCode IS NOT NULL"
    )
    chosen = {row["recordedCode"]: row for row in rows(pullsim, captured, "sql", f"{query} ORDER BY requestId")}
    assert {0, 16, 17, 19, 21, 24} < chosen.keys()
    for code in sampled((17, 21, 0), 1):
        code_, out, err = pullsim("explain", "--lake", captured / "lake", "--request", chosen[code]["requestId"], "--format", "json")
        assert code_ == 0, err
        told = json.loads(out)
        assert told["brokerAnswer"]["code"] == code
        if code in {0, 21}:
            assert told["answer"]["nextBeginOffset"] == chosen[code]["recordedNextBeginOffset"]
        assert told["recordedAnswer"]["code"] == code
    end = chosen[17]["requestId"].rpartition(":")[2]
    code_, out, _ = pullsim("explain", "--lake", captured / "lake", "--request", end)
    assert (code_, out.splitlines()[-2].startswith("the broker answers 17 TOPIC_NOT_EXIST")) == (0, True)
    assert out.splitlines()[-1].startswith("captured: 17 TOPIC_NOT_EXIST")
    code_, out, err = pullsim("explain", "--lake", captured / "lake", "--request", "nobody")
    assert (code_, out, "expected the requestId of a captured pull" in err) == (2, "", True)
    code_, out, err = pullsim("explain", "--lake", captured / "lake", "--request", end[-1])
    assert (code_, out, "found the end of several; give one in full: " in err) == (2, "", True)


@slow_proof
def test_captured_pulls_see_no_message_that_came_later(pullsim: Pullsim, captured: Path) -> None:
    """As many pulls find messages as in the broker's log, up to 1 %: messages that came at a pull's moment, and answers not captured."""
    recorded = sum(
        1 for one in exchanges(captured) if one["request"]["code"] == PULL_MESSAGE and (one.get("response") or {}).get("code") == 0
    )
    asked = ("whatif", "--lake", captured / "lake", "--set", "maxTransferCountOnMessageInMemory=64", "--format", "json")
    code, out, err = pullsim(*asked)
    assert code == 0, err
    told = json.loads(out)
    assert told["at"] == "request-time"
    assert told["measures"]["pulls that found messages"]["current"] == pytest.approx(recorded, rel=0.01)


@slow_proof
def test_a_filter_that_does_not_compile_is_said_to_let_everything_pass(pullsim: Pullsim, captured: Path) -> None:
    pull = ("--group", "g-main", "--topic", "orders", "--queue", 0, "--offset", 94, "--filter-type", "SQL92")
    code, out, err = pullsim("explain", "--lake", captured / "lake", *pull, "--expression", "a >")
    assert code == 0, err
    assert "the filter does not compile: everything passes" in out
    assert out.splitlines()[-1].startswith("the broker answers 0 SUCCESS, next offset ")
    _, out, _ = pullsim("explain", "--lake", captured / "lake", *pull, "--expression", "a > 1")
    assert "does not compile" not in out


@slow_proof
def test_an_import_says_that_no_file_tells_the_length_of_queue_files(pullsim: Pullsim, captured: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(captured / "store", store)
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    index = ("--set", "maxHashSlotNum=5000", "--set", "maxIndexNum=20000")
    code, out, err = pullsim("import", store, "--lake", tmp_path / "lake", *index)
    assert code == 0, err
    [note] = [line for line in out.splitlines() if "mappedFileSizeConsumeQueue" in line]
    assert "took its default, mappedFileSizeConsumeQueue=6000000" in note  # 300,000 entries of 20 bytes
    assert "--set mappedFileSizeConsumeQueue=BYTES" in note
    code, out, err = pullsim("import", store, "--lake", tmp_path / "lake", *index, "--set", "mappedFileSizeConsumeQueue=20000")
    assert (code, "mappedFileSizeConsumeQueue" in out) == (0, False), err


def test_the_report_and_the_list_of_queues_begin_with_the_worst(pullsim: Pullsim, captured: Path, tmp_path: Path) -> None:
    worst = ("REWIND", "STALL", "STOP", "WARN")
    listed = [row["status"] for row in rows(pullsim, captured, "groups", "--queues")]
    assert listed == sorted(listed, key=(*worst, "UNKNOWN", "OK").index)
    assert set(worst) & set(listed)
    code, _, err = pullsim("report", "--lake", captured / "lake", "--format", "json", "--out", tmp_path / "report.json")
    assert code == 0, err
    [slow] = [one for one in json.loads((tmp_path / "report.json").read_text("utf-8"))["questions"] if one["id"] == "slow"]
    told = [worst.index(row["status"]) if row["status"] in worst else len(worst) for row in slow["rows"]]
    assert told == sorted(told)
    assert f": {slow['rows'][0]['status']} (" in slow["finding"]


def test_the_report_says_what_is_lost_and_not_that_all_is_well(pullsim: Pullsim, captured: Path, tmp_path: Path) -> None:
    code, _, err = pullsim("report", "--lake", captured / "lake", "--out", tmp_path / "report.html")
    assert code == 0, err
    html = (tmp_path / "report.html").read_text("utf-8")
    lost = sum(len(offsets) for offsets in skipped_offsets(captured).values())
    assert f"skipped <b>{lost:,}</b> deleted offsets" in html
    assert not re.search(r"\b\d+\s?ms</td>", html.partition("First loss in")[2].partition("</table>")[0])


def test_a_store_without_offsets_is_not_called_well(pullsim: Pullsim, captured: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(captured / "store", store)
    for offsets in (store / "config").glob("consumerOffset.json*"):
        offsets.unlink()
    code, _, err = pullsim("import", store, "--lake", tmp_path / "lake", "--properties", captured / "broker.conf")
    assert code == 0, err
    code, _, err = pullsim("report", "--lake", tmp_path / "lake", "--out", tmp_path / "report.html")
    assert code == 0, err
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "No queue has a message that waits" not in html
    assert html.count("config/consumerOffset.json is missing or empty") == 3  # which groups, which queues, what is lost
    assert "--broker-name broker-a" not in html


@slow_proof
def test_captured_pulls_become_a_request_file_that_is_answered_as_the_broker_answered(
    pullsim: Pullsim, captured: Path, tmp_path: Path
) -> None:
    code, out, err = pullsim("requests", "--lake", captured / "lake", "--out", tmp_path / "pulls.jsonl")
    assert code == 0, err
    pulls = [one for one in exchanges(captured) if one["request"]["code"] == PULL_MESSAGE]
    asked = [json.loads(line)["request"] for line in (tmp_path / "pulls.jsonl").read_text("utf-8").splitlines()]
    # an answer of the store has a status in its remark; a pull without an answer may be either
    of_store = sum(one["response"] is not None and outcome(one) in STATUSES for one in pulls)
    unanswered = sum(one["response"] is None for one in pulls)
    assert of_store <= len(asked) <= of_store + unanswered
    assert f"wrote {len(asked):,} requests to {tmp_path / 'pulls.jsonl'}; {len(pulls) - len(asked):,} captured pulls left out" in out
    keys = Counter((one["group"], one["topic"], one["queueId"], one["offset"], one["maxMsgNums"]) for one in asked)
    fields = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums")
    logged = Counter(tuple(int(v) if v.lstrip("-").isdigit() else v for v in map(one["request"]["ext"].get, fields)) for one in pulls)
    assert keys <= logged
    code, out, err = pullsim("replay", "--lake", captured / "lake", "--requests", tmp_path / "pulls.jsonl", "--out", tmp_path / "out.jsonl")
    assert code == 0, err
    assert len((tmp_path / "out.jsonl").read_text("utf-8").splitlines()) == len(asked)


@slow_proof
def test_what_if_takes_captured_pulls_and_says_where_a_setting_cannot_matter(pullsim: Pullsim, captured: Path) -> None:
    told = whatif(pullsim, captured, "--set", "maxTransferCountOnMessageInMemory=1")
    assert told["settings"] == {"maxTransferCountOnMessageInMemory": {"current": 32, "proposed": 1}}
    assert told["measures"]["messages"]["proposed"] == told["measures"]["pulls that found messages"]["proposed"]
    assert told["measures"]["messages"]["current"] > told["measures"]["messages"]["proposed"]
    assert told["changed"] > 0
    assert told["notes"] == []
    if ALL:  # the test above explains a captured pull
        explained = told["first"][0]["requestId"]
        code, out, err = pullsim("explain", "--lake", captured / "lake", "--request", explained)
        assert (code, "the broker answers 0 SUCCESS" in out) == (0, True), err
    told = whatif(pullsim, captured, "--set", "maxTransferCountOnMessageInDisk=1")
    assert told["changed"] == 0
    assert [note for note in told["notes"] if note.startswith("maxTransferCountOnMessageInDisk cannot matter here: every message")]


def whatif(pullsim: Pullsim, captured: Path, *options: str) -> dict[str, Any]:
    [told] = rows(pullsim, captured, "whatif", *options)
    return told


def test_the_snippet_for_polars_and_duckdb_runs_as_it_stands_on_the_page(captured: Path) -> None:
    [snippet] = re.findall(r"^```python\n(.*?)^```", (PROJECT / "docs" / "sql.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    run = subprocess.run([sys.executable, "-c", snippet], cwd=captured, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    store = StoreLag(captured / "store")
    ends: Counter[str] = Counter()
    for (topic, _), queue in store.queues.items():
        ends[topic] += queue.maximum
    found = dict(re.findall(r"│ (\S+)\s+│\s+(\d+) │", run.stdout.partition("sum(maxOffset)")[2]))
    assert {topic: int(end) for topic, end in found.items()} == ends
