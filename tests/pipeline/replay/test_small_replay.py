"""The replays that the driver leaves to Spark, because they are too large for it. The driver then has written nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay import answer_texts, driver_answers, driver_replay, small_replay
from pipeline.replay.replay_job import run_replay
from pipeline.replay.replay_run import ReplayOptions
from pipeline.schema import tables as t
from tests.runs.replaying import BROKER, DEMO_TRACE, NOON, demo_data, demo_lake, read_lines, write_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.replay.replay import At


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(demo_lake(spark, tmp_path_factory, tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return demo_data(tmp_path_factory) / DEMO_TRACE


def told(lake: str, trace: Path, out: Path, reads: small_replay.Reads = "lines", **options: Any) -> str:
    """The line of a replay to a file that says who answers, and why if it is Spark."""
    given, lines = ReplayOptions(out=str(out), **options), list[str]()

    def answer(broker: OpenedBroker) -> Any:
        return run_replay(
            broker,
            str(trace),
            options=given,
            settings_of=lambda file: file.settings(),
            run_id="small",
            now=lambda: NOON,
            progress=lambda _: None,
        )

    done = small_replay.answered_here(answer, lake, BROKER, str(trace), options=given, reads=reads, tell=lines.append)
    assert (done is None) == lines[-1].startswith("Spark answers: ")
    return lines[-1]


@pytest.mark.parametrize(
    ("place", "name", "most", "reason"),
    [
        (small_replay, "_MOST_LINE_BYTES", 0, "the file has more than 0 MiB"),
        (driver_replay, "MOST_QUEUE_ENTRIES", 0, "the requests need more than 0 entries of queues"),
        (driver_replay, "MOST_READ_ENTRIES", 0, "the requests need more than 0 entries of queues"),
        (driver_answers, "_MOST_TEXT_ENTRIES", 1, "the answers have more than 1 entries"),
        (answer_texts, "_MOST_MESSAGES", 1, "the answers have more than 1 different messages"),
    ],
)
def test_what_needs_too_much_is_left_to_spark(
    place: object, name: str, most: int, reason: str, lake: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, most)
    assert told(lake, trace, tmp_path / "out") == f"Spark answers: {reason}"
    assert not (tmp_path / "out").exists()


def test_a_long_file_is_left_to_spark_where_the_queues_are_long(
    lake: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_replay, "MOST_READ_ENTRIES", 5)
    assert told(lake, trace, tmp_path / "out") == "the driver answers, without Java"
    monkeypatch.setattr(small_replay, "_FEW_REQUEST_BYTES", 5)
    assert told(lake, trace, tmp_path / "again") == "Spark answers: the queues have more than 5 entries"


def test_requests_in_a_parquet_file_get_the_same_answers(lake: str, trace: Path, tmp_path: Path) -> None:
    asked = [{"request": line["request"]} for line in read_lines(trace)]
    lines = write_lines(tmp_path / "pulls.jsonl", asked)
    pq.write_table(pj.read_json(lines), tmp_path / "pulls", row_group_size=100)
    assert (
        told(lake, tmp_path / "pulls", tmp_path / "of-rows")
        == told(lake, lines, tmp_path / "of-lines")
        == "the driver answers, without Java"
    )
    of_rows, of_lines = ([line["response"] for line in read_lines(tmp_path / name)] for name in ("of-rows", "of-lines"))
    assert of_rows == of_lines
    assert len(of_rows) == len(asked)


def test_answers_are_the_same_however_the_entries_are_chosen(
    lake: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(lake, trace, tmp_path / "by-segment")
    monkeypatch.setattr(driver_replay, "_QUEUES_ONE_BY_ONE", 0)
    assert told(lake, trace, tmp_path / "whole") == "the driver answers, without Java"
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "by-segment").read_bytes()


@pytest.mark.parametrize("at", ["snapshot", "request-time"])
def test_answers_are_the_same_in_however_many_parts_the_entries_are_read(
    lake: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: At
) -> None:
    broker = OpenedBroker.of(None, lake, BROKER)
    times = broker.rows_with(t.COMMIT_LOG_SEGMENT, {}, ["minStoreTimestamp"])["minStoreTimestamp"]
    moment = {"timestamp": max(times.to_pylist())}
    timed = write_lines(tmp_path / "timed.jsonl", ({"request": line["request"] | moment} for line in read_lines(trace)))
    given: dict[str, Any] = {"at": at, "filters": frozenset({"null", "TAG"})}  # the others need properties, all at once
    told(lake, timed, tmp_path / "at-once", **given)
    reads: list[int] = []
    read = driver_replay.LakeRows._of_segments

    def counted(*of: Any) -> Any:
        reads.append(1)
        return list(read(*of))

    monkeypatch.setattr(driver_replay.LakeRows, "_of_segments", counted)
    longest = max(row["maxOffset"] - row["minOffset"] for row in broker.rows(t.QUEUE).to_pylist())
    monkeypatch.setattr(driver_replay, "MOST_QUEUE_ENTRIES", longest)
    assert told(lake, timed, tmp_path / "in-parts", **given) == "the driver answers, without Java"
    assert len(reads) > 2 + (at == "request-time")
    assert (tmp_path / "in-parts").read_bytes() == (tmp_path / "at-once").read_bytes()


def test_times_of_many_messages_are_left_to_spark(lake: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = OpenedBroker.of(None, lake, BROKER).rows_with(t.COMMIT_LOG_SEGMENT, {}, ["minStoreTimestamp"])["minStoreTimestamp"]
    moment = {"timestamp": max(times.to_pylist()) + 1}
    timed = write_lines(tmp_path / "timed.jsonl", ({"request": line["request"] | moment} for line in read_lines(trace)))
    assert told(lake, timed, tmp_path / "out", at="request-time") == "the driver answers, without Java"
    monkeypatch.setattr(driver_replay, "MOST_RECORDS", 0)
    assert told(lake, timed, tmp_path / "again", at="request-time") == "Spark answers: the requests need the times of more than 0 messages"
