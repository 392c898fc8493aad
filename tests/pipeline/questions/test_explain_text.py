"""The text of an explained pull, without Spark: folded entries, what ended the batch, and pulls that the store does not answer."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.questions.broker_checks import ExplainedPull
from pipeline.questions.explain import Explanation, traced_pulls
from pipeline.questions.explain_text import as_json, deleted_since, show
from pipeline.settings.settings import BrokerSettings
from tests.makers.made_store import Record, make_store
from tests.models.without_spark import Tables, blocks_of, tables_of

MESSAGES = 40


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Messages of 100 bytes, a tag on every second one."""
    records = [Record(tag="t" if number % 2 else None, body=bytes(8 if number % 2 else 15)) for number in range(MESSAGES)]
    return tables_of(make_store(tmp_path_factory.mktemp("made") / "s", records, log_file=1 << 16, queue_file=600).path)


def explained(tables: Tables, config: dict[str, Any], *, offset: int = 0, at_a_time: int = 32, **asked: Any) -> Explanation:
    pull = ExplainedPull(group="g", topic="T", queue_id=0, offset=offset, max_msg_nums=at_a_time, **asked)
    wanted = None if pull.filter_type is None else {"type": pull.filter_type, "expression": pull.expression, "registered": pull.registered}
    request = {"group": "g", "topic": "T", "queueId": 0, "offset": offset, "maxMsgNums": at_a_time, "filter": wanted}
    [(answering, rows)] = blocks_of(tables, [{"request": request}], config)
    [traced] = traced_pulls(answering, iter(rows))
    settings = BrokerSettings.from_sources(header=config).pull_settings()
    return Explanation(broker="b", pull=pull, settings=settings, caps=answering.caps, traced=traced, messages={}, notes=())


def shown(explanation: Explanation, capsys: pytest.CaptureFixture[str], *, every_entry: bool = False) -> str:
    show(explanation, every_entry=every_entry)
    return capsys.readouterr().out


def test_long_runs_are_folded_unless_every_entry_is_asked_for(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    eight = explained(tables, {}, at_a_time=8)
    rows = [line.split() for line in shown(eight, capsys).splitlines() if "memory" in line and "taken" in line]
    assert [(row[0], row[-3:]) for row in rows] == [("0..7", ["8", "x", "taken"])]
    every = [line.split()[0] for line in shown(eight, capsys, every_entry=True).splitlines() if line.rstrip().endswith("memory  taken")]
    assert every == [str(offset) for offset in range(8)]


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ({"recordedCode": 0, "answerMicros": 2_500_000}, "the broker held it (long polling) for 1 s: a message came"),
        ({"recordedCode": 19, "answerMicros": 16_000_000}, "the broker held it (long polling) for 15 s: none came in that time"),
        ({"recordedCode": 25, "answerMicros": 2_000_000}, "for 1 s: it was refused when it was woken"),
        ({"recordedCode": None, "answerMicros": None}, "the broker held it (long polling), and the capture has no answer: the client left"),
        ({"recordedCode": 0, "answerMicros": 2_000_000, "held": False}, None),
    ],
)
def test_a_pull_that_the_broker_held_says_so(
    recorded: dict[str, Any], told: str | None, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = dict.fromkeys(("recordedNextBeginOffset", "recordedMinOffset", "recordedMaxOffset"))
    header = {"held": True, "arrivalMicros": 1_000_000} | answer | recorded
    explanation = explained(tables, {}, header=header)
    text = shown(explanation, capsys)
    assert told in text if told else "held it" not in text
    assert as_json(explanation)["held"] == (told is not None)


MEMORY: dict[str, Any] = {}
DISK: dict[str, Any] = {"totalPhysicalMemorySize": 0}


@pytest.mark.parametrize(
    ("config", "at_a_time", "ends_at", "told"),
    [
        (MEMORY, 5, 5, "batch full: maxMsgNums, before entry 5 was matched"),
        (MEMORY | {"maxTransferCountOnMessageInMemory": 7}, 32, 7, "batch full: maxTransferCountOnMessageInMemory, before entry 7"),
        (MEMORY | {"maxTransferBytesOnMessageInMemory": 1}, 32, 1, "batch full: maxTransferBytesOnMessageInMemory, before entry 1"),
        (DISK, 32, 8, "batch full: maxTransferCountOnMessageInDisk, before entry 8"),
        (DISK | {"maxTransferBytesOnMessageInDisk": 1}, 32, 1, "batch full: maxTransferBytesOnMessageInDisk, before entry 1"),
        (MEMORY, 100, 30, "the queue's file ends; a pull never goes on in the next one, at 30"),
    ],
)
def test_what_ends_a_scan_is_named(
    config: dict[str, Any], at_a_time: int, ends_at: int, told: str, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    explanation = explained(tables, config | {"maxTransferCountOnMessageInMemory": 50} | config, at_a_time=at_a_time)
    text = shown(explanation, capsys)
    assert f"ended: {told}" in text
    assert f"answer: FOUND, next offset {ends_at}" in text


@pytest.mark.parametrize(
    ("offset", "config", "told"),
    [
        (-1, {}, "OFFSET_TOO_SMALL: no message ever had an offset below 0; next offset: minOffset"),
        (40, {}, "OFFSET_OVERFLOW_ONE: the consumer has all there is; next offset: the same"),
        (41, {}, "OFFSET_OVERFLOW_BADLY: no such message was written yet; next offset: minOffset where that is 0, else maxOffset"),
        (41, {"brokerRole": "SLAVE"}, "next offset: as asked for (a slave with offsetCheckInSlave=false corrects none)"),
    ],
)
def test_a_correction_of_the_offset_has_its_reason(
    offset: int, config: dict[str, Any], told: str, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in shown(explained(tables, config, offset=offset), capsys)


@pytest.mark.parametrize(
    ("config", "asked", "told"),
    [
        ({}, {"filter_type": "TAG", "expression": "||"}, "answer: SUBSCRIPTION_PARSE_FAILED, as the filter's expression does not parse"),
        ({}, {"filter_type": "SQL92"}, "answer: SUBSCRIPTION_PARSE_FAILED"),
        ({}, {"filter_type": "SQL92", "expression": "a > 1", "registered": True}, "answer: FILTER_DATA_NOT_EXIST"),
        ({"readable": False}, {}, "answer: null"),
        ({}, {"at_a_time": -1}, "answer: the store throws java.lang.IllegalArgumentException"),
        ({}, {"at_a_time": 2**31 - 1}, "answer: the store throws java.lang.OutOfMemoryError"),
    ],
)
def test_what_is_no_answer_of_the_store_is_explained_too(
    config: dict[str, Any], asked: dict[str, Any], told: str, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    explanation = explained(tables, config, **asked)
    assert told in shown(explanation, capsys)
    answer = as_json(explanation)["answer"]
    assert (answer is None) == ("null" in told)
    assert answer is None or {"error", "exception"} & answer.keys()


def test_entries_that_no_filter_lets_pass_are_counted_by_rule(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    by_tag = shown(explained(tables, {}, filter_type="TAG", expression="t"), capsys)
    assert "passed over: 15 not matched by consume queue: the tag's hash code" in by_tag
    assert "tagsCode wanted        't' = 116" in by_tag
    by_expression = explained(tables, {}, filter_type="SQL92", expression="a > 1")
    text, whole = (shown(by_expression, capsys, every_entry=every) for every in (False, True))
    assert "passed over: 30 not matched by commit log" in text
    assert ("--all shows each entry" in text, "--all" in whole) == (True, False)
    assert as_json(by_expression)["outcomes"] == {"NOT_BY_COMMIT_LOG": 30}


@pytest.mark.parametrize(
    ("recorded", "code", "answer", "offset", "told"),
    [
        # code, next offset, min offset
        ((0, 130, 120), 21, (249, 249), 125, "minOffset was 120 then, and the file of offset 125 was deleted later"),
        ((21, 120, 120), 21, (249, 249), 7, "minOffset was 120 then, and files were deleted later"),
        ((21, 120, 120), 21, (249, 249), -1, "minOffset was 120 then, and files were deleted later"),
        ((0, 260, 120), 0, (260, 249), 255, None),
        ((0, 130, 249), 21, (249, 249), 125, None),
        ((0, 130, None), 21, (249, 249), 125, None),
        ((19, 130, 120), 21, (None, None), 125, None),
    ],
)
def test_an_answer_that_deletion_changed_says_so(
    recorded: tuple[int, int, int | None], code: int, answer: tuple[int | None, int | None], offset: int, told: str | None
) -> None:
    was = dict(zip(("code", "nextBeginOffset", "minOffset"), recorded, strict=True))
    now = dict(zip(("nextBeginOffset", "minOffset"), answer, strict=True))
    assert deleted_since(was, code, now, offset) == (None if told is None else f"they differ: {told}; the answer is today's")
