"""Frames in the files of a stream: pulls get the broker's answers, every other command is a bad request."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from pipeline.requests.request_lines import RequestError
from pipeline.schema import tables as t
from pipeline.stream.frame_pulls import OF_FRAME, is_frame, pull_of_line
from store_format.remoting.command import RemotingCommand, SerializeType
from store_format.remoting.frame import encode_frame
from tests.makers.captured_runs import ok, store_with_topics
from tests.makers.recorded_pulls import bytes_at, code_of, recorded, request_frame
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.replaying import write_lines
from tests.runs.sampling import slow_proof
from tests.runs.streamed_answers import answered
from tests.truth.golden import golden_lines, needs_golden
from udfs.pull.codes import ResponseCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PULL_MESSAGE = 11
HEADER = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "suspendTimeoutMillis", *OF_FRAME)
TEXTS = {"consumerGroup", "topic", "subscription", "expressionType"}


def line_of(frame: bytes) -> dict[str, Any]:
    return {"name": "x", "serializeType": "JSON", "frameHex": frame.hex()}


def raw(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode()


@needs_golden
def test_every_golden_pull_is_read_and_no_other_command() -> None:
    pulls = 0
    for line in golden_lines("broker", "frames", "frames.jsonl"):
        assert is_frame(raw(line))
        decoded = line["decoded"]
        if decoded["code"] != PULL_MESSAGE or decoded["type"] != "REQUEST_COMMAND":
            with pytest.raises(RequestError, match=r"expected a request of PULL_MESSAGE \(11\), found (a request with code|an answer)"):
                pull_of_line("f", 3, raw(line))
            continue
        pulls += 1
        found = pull_of_line("f", 3, raw(line))
        assert found.pop("seq") == 3
        fields = found | found.pop("frame")
        assert fields.keys() == set(HEADER)
        told = decoded["extFields"] or {}
        assert {name: value for name, value in fields.items() if value is not None} == {
            name: value if name in TEXTS else int(value) for name, value in told.items() if name in HEADER
        }
    assert pulls == 22


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"frameHex": 5}', 'a JSON object with a text "frameHex"'),
        ('["frameHex"]', 'a JSON object with a text "frameHex"'),
        ('{"frameHex": "0"}', "hexadecimal digits"),
        ('{"frameHex": "', "a JSON object"),
        ('{"frameHex": "00000004ff000000"}', "serialize type 0 (JSON) or 1 (ROCKETMQ) at byte 4 of the frame, found 255"),
        ('{"frameHex": "0000"}', "at byte 0 of the frame"),
    ],
)
def test_a_broken_frame_says_what_is_wrong(line: str, said: str) -> None:
    assert is_frame(line.encode())
    with pytest.raises(RequestError) as error:
        pull_of_line("in/f.jsonl", 7, line.encode())
    assert str(error.value).startswith("in/f.jsonl, line 7: expected ")
    assert said in str(error.value)


@pytest.mark.parametrize("line", [b'{"request": {"topic": "\\"frameHex\\""}}', b"frameHex", b"", b'{"kind": "heartbeat", "timestamp": 5}'])
def test_other_lines_are_no_frames(line: bytes) -> None:
    assert not is_frame(line)


def test_what_a_pull_lacks_or_what_is_no_number_is_null_as_for_the_broker() -> None:
    ext: dict[str, str | None] = {"topic": "t", "queueId": " 1", "queueOffset": "+7", "sysFlag": "2147483648"}
    found = pull_of_line("f", 1, raw(line_of(encode_frame(RemotingCommand(code=PULL_MESSAGE, opaque=1, ext_fields=ext)))))
    assert {name: value for name, value in found.items() if value is not None} == {
        "seq": 1,
        "topic": "t",
        "queueOffset": 7,
        "frame": dict.fromkeys(OF_FRAME),
    }


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def frames_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds = (SerializeType.JSON, SerializeType.ROCKETMQ)
    return [line_of(request_frame(number, line, kinds[number % 2])) for number, line in enumerate(lines)]


def recorded_answer(line: dict[str, Any], store: Path) -> tuple[Any, ...]:
    told = line["response"]
    body = b"".join(bytes_at(store, one["startOffset"], one["storeSize"]) for one in told["messages"])
    digest = hashlib.sha256(body).hexdigest() if body else None
    return code_of(line), told["nextBeginOffset"], told["minOffset"], told["maxOffset"], digest


@slow_proof
def test_pulls_get_their_recorded_answers_and_all_else_is_bad(
    spark: SparkSession, pullsim: Pullsim, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store, trace = store_with_topics(tmp_path_factory)
    lines = [line for line in recorded(trace) if (line["request"]["filter"] or {"type": "TAG"})["type"] == "TAG"][:40]
    lake, folder = tmp_path / "lake", tmp_path / "incoming"
    folder.mkdir()
    ok(pullsim("import", store, "--lake", lake, "--broker-name", "b"))
    registered = RemotingCommand(code=PULL_MESSAGE, opaque=1, ext_fields=pull_without_subscription(lines[0]))
    heartbeat = RemotingCommand(code=34, opaque=2)
    # one that is longer than what is kept of bad lines
    long = line_of(request_frame(3, lines[1], SerializeType.JSON)) | {"name": "x" * 5000}
    unanswered = [line_of(encode_frame(registered)), line_of(encode_frame(heartbeat)), {"frameHex": "00"}]
    others = [*unanswered, long, {"request": lines[2]["request"]}]
    write_lines(folder / "frames.jsonl", [*frames_of(lines), *others])

    stream = ("stream", "--lake", lake, "--requests", folder, "--checkpoint", tmp_path / "checkpoint", "--run-id", "r", "--once")
    assert "answered 43 requests in 1 batch, 2 bad ones" in ok(pullsim(*stream))
    names = ("code", "nextBeginOffset", "minOffset", "maxOffset", "bodySha256")
    by_line = {int(row["requestId"].split("-")[1]): row for row in answered(spark, lake, "r")}
    found = {number: tuple(row[name] for name in names) for number, row in by_line.items()}
    expected = {number: recorded_answer(line, store) for number, line in enumerate(lines, 1)}
    assert {number: found[number] for number in expected} == expected
    # a group that sent no heartbeat has no subscription
    assert found[41] == (ResponseCode.SUBSCRIPTION_NOT_EXIST, None, None, None, None)
    assert found[44] == expected[2]
    assert found[45][:4] == expected[3][:4], "a request beside the frames"
    bad = Lake(spark, str(lake)).table(t.TABLES["bad_request"]).orderBy("position").collect()
    assert [f"line {number}: expected" in row["error"] for number, row in zip((42, 43), bad, strict=True)] == [True, True]
    assert bad[0]["raw"] == raw(others[1])


def pull_without_subscription(line: dict[str, Any]) -> dict[str, str | None]:
    asked = line["request"]
    fields = {"consumerGroup": asked["group"], "topic": asked["topic"], "queueId": asked["queueId"], "queueOffset": asked["offset"]}
    numbers = dict.fromkeys(("sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion"), 0) | {"maxMsgNums": 32}
    return {name: str(value) for name, value in (fields | numbers).items()}
