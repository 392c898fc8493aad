"""The rules called from SQL: the same cases as their Python forms, NULLs, and the functions' descriptions."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tests.runs.sampling import sampled
from tests.truth.places import DATA
from udfs import sql_functions, sql_statements
from udfs.broker import schedule
from udfs.filters import tags
from udfs.pull.codes import BrokerRole, GetMessageStatus
from udfs.pull.pull_result import Suggestion, suggest_which_broker_id

pytestmark = pytest.mark.spark

CASES = json.loads((DATA / "rule_cases.json").read_text(encoding="utf-8"))
MAIN_CAPS = "262144, 32, 65536, 8"


@pytest.fixture(scope="module", params=sampled(["true", "false"], 1))
def sql(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session that has the functions; one made without ANSI must give the same answers."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    assert before is not None
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    sql_functions.register(spark)
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", before)


def answers(sql: SparkSession, rows: list[Any], schema: str, expression: str) -> list[Any]:
    """The expression for each row, in order."""
    numbered = sql.createDataFrame([(at, *row) for at, row in enumerate(rows)], f"at INT, {schema}")
    return [row.answer for row in numbered.selectExpr("at", f"{expression} AS answer").sort("at").collect()]


def one(sql: SparkSession, expression: str) -> Any:
    return sql.sql(f"SELECT {expression} AS answer").first()["answer"]  # type: ignore[index]


def test_offsets_are_corrected_as_by_the_compiled_rule(sql: SparkSession) -> None:
    rows = [case[:3] for case in CASES["pull_status"]]
    schema, bounds = "offset BIGINT, minOffset BIGINT, maxOffset BIGINT", "offset, minOffset, maxOffset"
    corrected = [case[4] for case in CASES["pull_status"]]
    kept = [None if case[4] is None else case[0] for case in CASES["pull_status"]]
    assert answers(sql, rows, schema, f"pull_status({bounds})") == [case[3] for case in CASES["pull_status"]]
    cases = (
        ("ASYNC_MASTER", "false", corrected),
        ("SYNC_MASTER", "false", corrected),
        ("SLAVE", "true", corrected),
        ("SLAVE", "false", kept),
    )
    for role, check, expected in sampled(cases, 2):
        assert answers(sql, rows, schema, f"correct_offset({bounds}, '{role}', {check})") == expected


def test_codes_follow_from_statuses_as_in_python(sql: SparkSession) -> None:
    rows = [case[:4] for case in CASES["response_code"]]
    schema = "status STRING, offset BIGINT, brokerRole STRING, offsetCheckInSlave BOOLEAN"
    codes = answers(sql, rows, schema, "response_code(status, offset, brokerRole, offsetCheckInSlave)")
    assert codes == [case[4] for case in CASES["response_code"]]


def test_tags_have_the_codes_that_python_gives_them(sql: SparkSession) -> None:
    digits = random.Random(4)
    planes = [(0x20, 0x7E), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    texts = ["".join(chr(digits.randint(*digits.choice(planes))) for _ in range(digits.randint(0, 40))) for _ in range(400)]
    cases = CASES["tags_code"] + [[text, tags.tags_code(text)] for text in texts]
    codes = answers(sql, [case[:1] for case in cases], "tag STRING", "tags_code(tag)")
    assert codes == [case[1] for case in cases]


def test_subscriptions_match_the_codes_of_their_tags_and_no_others(sql: SparkSession) -> None:
    cases = [*CASES["tag_matches"]]
    for subscription, codes in CASES["subscription"]:
        refused, everything = codes == "refused", codes is None
        cases += [[subscription, code, True] for code in (codes if not refused and codes else [])]
        cases += [[subscription, 7, None if refused else everything], [subscription, None, None if refused else True]]
    matches = answers(sql, [case[:2] for case in cases], "subscription STRING, tagsCode BIGINT", "tag_matches(subscription, tagsCode)")
    assert matches == [case[2] for case in cases]


def test_delayed_messages_are_due_as_in_python(sql: SparkSession) -> None:
    cases = CASES["deliver_timestamp"]
    due = answers(
        sql,
        [case[:2] for case in cases],
        "level INT, storeTimestamp BIGINT",
        "deliver_timestamp(level, storeTimestamp)",
    )
    assert due == [case[2] for case in cases]


def test_delay_levels_have_the_delays_that_the_broker_parses(sql: SparkSession) -> None:
    parsed = {setting: delays for setting, delays in CASES["messageDelayLevel"] if delays}
    for setting in ("\u0663s", "99999999999999d", "9223372036854775807s"):  # other digits, and what wraps: nobody has such levels
        del parsed[setting]
    parsed[None] = list(schedule.DEFAULT_DELAYS)
    rows = [(setting, level) for setting, delays in parsed.items() for level in range(-1, len(delays) + 2)]
    delays = answers(sql, rows, "setting STRING, level INT", "delay_millis(message_delay(setting, level))")
    assert delays == [parsed[setting][level - 1] if 1 <= level <= len(parsed[setting]) else None for setting, level in rows]
    assert one(sql, "message_delay(NULL, 4)") == "30s"


def test_batches_are_cut_as_by_the_compiled_rule(sql: SparkSession) -> None:
    rows = [[*case[:3], *case[3]] for case in CASES["batch_cut"]]
    schema = "sizes ARRAY<INT>, inDisk ARRAY<BOOLEAN>, maxMsgNums INT, mb INT, mc INT, db INT, dc INT"
    taken = answers(sql, rows, schema, "batch_cut(sizes, inDisk, maxMsgNums, mb, mc, db, dc)")
    assert taken == [case[4] for case in CASES["batch_cut"]]


NULLS = (
    "pull_status(NULL, 0, 1)",
    "pull_status(5, NULL, 1)",
    "pull_status(5, 0, NULL)",
    "correct_offset(NULL, 0, 0, 'SLAVE', true)",
    "correct_offset(5, NULL, 0, 'SLAVE', true)",
    "correct_offset(5, 0, NULL, 'SLAVE', true)",
    "correct_offset(5, 0, 0, NULL, true)",
    "correct_offset(5, 0, 0, 'SLAVE', NULL)",
    "correct_offset(5, 0, 0, 'slave', false)",
    "response_code(NULL, 0, 'SLAVE', true)",
    "response_code('FOUND', NULL, 'SLAVE', true)",
    "response_code('FOUND', 0, NULL, true)",
    "response_code('FOUND', 0, 'SLAVE', NULL)",
    "response_code('LOST', 0, 'SLAVE', true)",
    "response_code('FOUND', 0, 'MASTER', true)",
    "message_delay('1s', NULL)",
    "message_delay('1s', -2147483648)",
    "delay_millis(NULL)",
    "delay_millis('')",
    "delay_millis('5')",
    "delay_millis('1S')",
    "delay_millis('1.5s')",
    "delay_millis('9223372036854775807s')",
    "deliver_timestamp(NULL, 5)",
    "deliver_timestamp(3, NULL)",
    f"batch_cut(NULL, array(false), 32, {MAIN_CAPS})",
    f"batch_cut(array(1), NULL, 32, {MAIN_CAPS})",
    f"batch_cut(array(1, NULL), array(false, false), 32, {MAIN_CAPS})",
    f"batch_cut(array(1), array(CAST(NULL AS BOOLEAN)), 32, {MAIN_CAPS})",
    f"batch_cut(array(1), array(false), CAST(NULL AS INT), {MAIN_CAPS})",
    "batch_cut(array(1), array(false), 32, 1, 1, 1, CAST(NULL AS INT))",
)


def test_what_cannot_be_known_is_null(sql: SparkSession) -> None:
    # one query, as each takes some tenths of a second
    answered = sql.sql(f"SELECT {', '.join(NULLS)}").first()
    assert answered is not None
    assert {call: value for call, value in zip(NULLS, answered, strict=True) if value is not None} == {}


def test_a_batch_of_sizes_without_their_place_is_an_error(sql: SparkSession) -> None:
    with pytest.raises(PythonException, match="sizes and inDisk"):
        one(sql, f"batch_cut(array(1, 2), array(false), 32, {MAIN_CAPS})")


def test_users_find_a_sentence_about_every_function(sql: SparkSession) -> None:
    for function in sql_statements.SQL_FUNCTIONS:
        lines = [row.function_desc for row in sql.sql(f"DESCRIBE FUNCTION EXTENDED {function.name}").collect()]
        assert any(line.startswith("Comment:") and line.endswith(function.comment) for line in lines)


def test_statements_survive_an_init_file() -> None:
    for statement in sql_statements.sql_statements():
        assert not set(";\\") & set(statement)


def test_the_broker_to_pull_from_next_is_that_of_python(sql: SparkSession) -> None:
    flags = [True, False]
    cases = list(product(GetMessageStatus, [0, 5], flags, BrokerRole, flags, flags))
    rows = [[status.name, offset, slow, role.name, check, read, 4, 9] for status, offset, slow, role, check, read in cases]
    schema = (
        "status STRING, offset BIGINT, slow BOOLEAN, brokerRole STRING, offsetCheckInSlave BOOLEAN, slaveReadEnable BOOLEAN, "
        "brokerId BIGINT, whichBrokerWhenConsumeSlowly BIGINT"
    )
    arguments = "status, offset, slow, brokerRole, offsetCheckInSlave, slaveReadEnable, brokerId, whichBrokerWhenConsumeSlowly"
    suggested = answers(sql, rows, schema, f"suggest_which_broker_id({arguments})")
    assert suggested == [
        suggest_which_broker_id(
            status,
            offset,
            slow,
            Suggestion(
                broker_role=role,
                offset_check_in_slave=check,
                slave_read_enable=read,
                broker_id=4,
                which_broker_when_consume_slowly=9,
            ),
        )
        for status, offset, slow, role, check, read in cases
    ]
