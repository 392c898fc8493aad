"""Offsets, response codes and delays, compared with literal cases, golden data, and the uncompiled functions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs.both_forms import Form, in_both_forms, python_of
from tests.truth.places import DATA, GOLDEN
from udfs.broker import schedule
from udfs.pull import batch_caps, offset_correction, pull_result
from udfs.pull.codes import BrokerRole, GetMessageStatus, ResponseCode

CASES = json.loads((DATA / "rule_cases.json").read_text(encoding="utf-8"))
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the shared golden data is not here")

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 40)


def golden_lines(*path: str) -> Iterator[dict[str, Any]]:
    with GOLDEN.joinpath(*path).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def codec(kind: str) -> list[dict[str, Any]]:
    rows = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == kind]
    assert rows, kind
    return rows


def status_or_none(code: int) -> str | None:
    return None if code == offset_correction.SCAN else GetMessageStatus(code).name


@in_both_forms
@pytest.mark.parametrize(("offset", "minimum", "maximum", "status", "corrected"), CASES["pull_status"])
def test_a_pull_outside_of_its_queue_needs_no_scan(
    form: Form, offset: int, minimum: int, maximum: int, status: str | None, corrected: int | None
) -> None:
    assert status_or_none(form(offset_correction.pull_status)(offset, minimum, maximum)) == status
    start_of_scan = offset if corrected is None else corrected
    assert form(offset_correction.correct_offset)(offset, minimum, maximum, False) == start_of_scan
    assert form(offset_correction.correct_offset)(offset, minimum, maximum, True) == offset


def test_only_a_slave_that_does_not_check_offsets_keeps_them() -> None:
    keeping = {(role, check) for role in BrokerRole for check in (False, True) if offset_correction.slave_keeps_offset(role, check)}
    assert keeping == {(BrokerRole.SLAVE, False)}


@given(LONGS, LONGS, LONGS, st.booleans())
@settings(deadline=None)
def test_compiled_offset_rules_equal_their_reference(offset: int, minimum: int, maximum: int, keeps: bool) -> None:
    bounds = offset, minimum, maximum
    assert offset_correction.pull_status(*bounds) == python_of(offset_correction.pull_status)(*bounds)
    assert offset_correction.correct_offset(*bounds, keeps) == python_of(offset_correction.correct_offset)(*bounds, keeps)


def test_the_compiled_offset_rules_are_those_of_the_table_in_sql() -> None:
    checks = offset_correction.OFFSET_CHECKS
    status = " ".join(f"WHEN {check.condition} THEN {int(check.status)}" for check in checks)
    corrected = " ".join(f"WHEN {check.condition} THEN {check.corrected_sql.replace('IF(', 'iif(')}" for check in checks)
    query = f"WITH pull(offset, minOffset, maxOffset) AS (VALUES (?, ?, ?)) SELECT CASE {status} END, CASE {corrected} END FROM pull"  # noqa: S608
    ends = (-(2**63), -1, 0, 1, 2, 7, 8, 9, 2**63 - 1)
    found = set()
    with closing(sqlite3.connect(":memory:")) as database:
        for bounds in product(ends, ends, ends):
            by_table = database.execute(query, bounds).fetchone()
            compiled = offset_correction.pull_status(*bounds), offset_correction.correct_offset(*bounds, False)
            assert compiled == ((offset_correction.SCAN, bounds[0]) if by_table[0] is None else by_table)
            found.add(by_table[0])
    assert found == {None, *(int(check.status) for check in checks)}


def traces() -> list[Path]:
    return sorted(GOLDEN.glob("store/traces/*.jsonl"))


@needs_golden
@pytest.mark.parametrize("trace", traces(), ids=lambda path: path.stem)
def test_recorded_answers_have_the_status_offset_and_suggestion_of_the_rules(trace: Path) -> None:
    header, *pulls = golden_lines("store", "traces", trace.name)
    config = header["config"]
    keeps = offset_correction.slave_keeps_offset(BrokerRole[config["brokerRole"]], config["offsetCheckInSlave"])
    memory = batch_caps.memory_limit(config["totalPhysicalMemorySize"], config["accessMessageInMemoryMaxRatio"])
    for pull in pulls:
        request, response = pull["request"], pull["response"]
        if response is None or "exception" in response:
            continue
        bounds = request["offset"], response["minOffset"], response["maxOffset"]
        status = status_or_none(offset_correction.pull_status(*bounds))
        if status is not None:
            assert response["status"] == status
            assert response["nextBeginOffset"] == offset_correction.correct_offset(*bounds, keeps)
        else:
            assert not response["status"].startswith(("OFFSET_OVERFLOW", "OFFSET_TOO", "NO_MESSAGE"))
        if response["diskFallBehind"] is not None and header["maxPhyOffset"] >= 0:
            last = header["maxPhyOffset"] - response["diskFallBehind"]
            in_disk = batch_caps.check_in_disk(last, header["maxPhyOffset"], memory)
            assert response["suggestPullingFromSlave"] == in_disk
        sizes = [message["storeSize"] for message in response["messages"]]
        assert response["msgCount4Commercial"] == sum(map(batch_caps.commercial_count, sizes))


@pytest.mark.parametrize(("status", "offset", "role", "check", "code"), CASES["response_code"])
def test_a_status_becomes_the_code_of_the_answer(status: str, offset: int, role: str, check: bool, code: int) -> None:
    assert pull_result.response_code(GetMessageStatus[status], offset, BrokerRole[role], check) == code


def test_every_status_has_a_code_for_every_role() -> None:
    given_for = {(status, role, check) for status, _, role, check, _ in CASES["response_code"]}
    assert {status for status, _, _ in given_for} == set(GetMessageStatus.__members__)
    assert {role for _, role, _ in given_for} == set(BrokerRole.__members__)


@needs_golden
def test_recorded_pulls_have_the_code_of_their_status() -> None:
    seen = set()
    for scenario in golden_lines("broker", "pull_codes.jsonl"):
        store = {"brokerRole": "ASYNC_MASTER", "offsetCheckInSlave": False}
        for step in scenario["steps"]:
            if step["op"] == "storeConfig":
                store.update(step["set"])
            result = step.get("result")
            if step["op"] != "pull" or not result or result.get("remark") not in GetMessageStatus.__members__:
                continue
            role, check = BrokerRole[str(store["brokerRole"])], bool(store["offsetCheckInSlave"])
            status, offset = GetMessageStatus[result["remark"]], int(step["ext"]["queueOffset"])
            assert pull_result.response_code(status, offset, role, check) == result["code"], scenario["name"]
            seen.add((status, role))
    assert len(seen) > len(GetMessageStatus)


@needs_golden
def test_codes_have_the_brokers_numbers() -> None:
    (row,) = codec("responseCodes")
    codes = row["codes"] | {"29": "INVALID_PARAMETER"}  # the latter as 5.5.0 answers
    assert all(codes[str(code.value)] == code.name for code in ResponseCode)


@pytest.mark.parametrize(("level", "stored", "due"), CASES["deliver_timestamp"])
def test_a_delayed_message_is_due_after_the_delay_of_its_level(level: int, stored: int, due: int) -> None:
    assert schedule.deliver_timestamp(level, stored) == due


@pytest.mark.parametrize(("setting", "delays"), CASES["messageDelayLevel"])
def test_delay_levels_parse_as_the_broker_does(setting: str, delays: list[int] | None) -> None:
    if delays is None:
        with pytest.raises(schedule.DelayLevelError) as raised:
            schedule.parse_delay_level(setting)
        assert raised.value.setting == setting
        assert raised.value.found == (setting.split(" ")[raised.value.level - 1])
    else:
        assert schedule.parse_delay_level(setting) == tuple(delays)


@needs_golden
def test_delays_are_the_recorded_ones() -> None:
    (default,) = codec("delayLevels")
    assert default["config"] == schedule.DEFAULT_MESSAGE_DELAY_LEVEL
    for level, due in default["computeDeliverTimestampFrom0"].items():
        assert schedule.deliver_timestamp(int(level), 0) == due
    for row in codec("delayLevelsCustom"):
        if row["parsed"]:
            delays = schedule.parse_delay_level(row["config"])
            assert len(delays) == row["maxLevel"]
            for level, due in row["computeDeliverTimestampFrom1000000"].items():
                assert schedule.deliver_timestamp(int(level), 1000000, delays) == due
        else:
            with pytest.raises(schedule.DelayLevelError):
                schedule.parse_delay_level(row["config"])
