"""Answers with the minOffset that a queue had when it was captured: those that need only the bounds, and those of deleted files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runs.in_session import bare_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# offset, recorded minimum, the store's status, next, minimum and maximum -> status, next, minimum, error
CASES = [
    # the scan is the same whatever the minimum
    ((150, 50, "FOUND", 160, 100, 200), ("FOUND", 160, 50, None)),
    ((150, 100, "NO_MATCHED_MESSAGE", 200, 100, 200), ("NO_MATCHED_MESSAGE", 200, 100, None)),
    # it read what is gone
    ((70, 50, "OFFSET_TOO_SMALL", 100, 100, 200), (None, None, 50, "FILES_DELETED")),
    # it was too small then, too
    ((20, 50, "OFFSET_TOO_SMALL", 100, 100, 200), ("OFFSET_TOO_SMALL", 50, 50, None)),
    # the store is older than the answer
    ((150, 180, "FOUND", 160, 100, 200), ("OFFSET_TOO_SMALL", 180, 180, None)),
    ((200, 50, "OFFSET_OVERFLOW_ONE", 200, 100, 200), ("OFFSET_OVERFLOW_ONE", 200, 50, None)),
    # an overflow of a queue that begins at 0 goes back to 0
    ((300, 0, "OFFSET_OVERFLOW_BADLY", 200, 100, 200), ("OFFSET_OVERFLOW_BADLY", 0, 0, None)),
    ((300, 50, "OFFSET_OVERFLOW_BADLY", 200, 100, 200), ("OFFSET_OVERFLOW_BADLY", 200, 50, None)),
    ((7, 0, "NO_MESSAGE_IN_QUEUE", 0, 0, 0), ("NO_MESSAGE_IN_QUEUE", 0, 0, None)),
    # nothing was recorded
    ((150, None, "FOUND", 160, 100, 200), ("FOUND", 160, 100, None)),
    ((150, 50, None, None, 100, 200), (None, None, 100, None)),
]


def test_the_store_answers_with_the_minimum_that_its_queue_had(spark: SparkSession) -> None:
    from pipeline.capture.recorded_minimum import with_recorded_minimum
    from pipeline.schema import tables as t
    from pipeline.settings.settings import BrokerSettings
    from udfs.pull.codes import BrokerRole, GetMessageStatus
    from udfs.pull.pull_result import response_code

    names = ("queueOffset", "recordedMinOffset", "status", "nextBeginOffset", "minOffset", "maxOffset")
    types = ("BIGINT", "BIGINT", "STRING", "BIGINT", "BIGINT", "BIGINT")
    schema = "seq BIGINT, " + ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
    asked = spark.createDataFrame([(seq, *given) for seq, (given, _) in enumerate(CASES)], schema)
    more = {
        "code": "response_code(status, queueOffset, 'ASYNC_MASTER', FALSE)",
        "messageCount": "3",
        "bufferTotalSize": "300",
        "msgCount4Commercial": "3",
        "suggestPullingFromSlave": "FALSE",
        "diskFallBehind": "9L",
        "error": "CAST(NULL AS STRING)",
        "bodySha256": "'ab'",
        "entries": f"CAST(array() AS {t.ENTRIES_TYPE})",
    }
    settings = BrokerSettings.from_sources().pull_settings()
    found = (
        with_recorded_minimum(asked.selectExpr("*", *[f"{value} AS {name}" for name, value in more.items()]), settings)
        .orderBy("seq")
        .collect()
    )
    assert [(row["status"], row["nextBeginOffset"], row["minOffset"], row["error"]) for row in found] == [told for _, told in CASES]
    assert [row["code"] for row in found] == [
        None if status is None else response_code(GetMessageStatus[status], given[0], BrokerRole.ASYNC_MASTER, False)
        for given, (status, *_) in CASES
    ]
    assert [row["bodySha256"] for row in found] == [
        None if error or (status or "").startswith(("OFFSET", "NO_MESSAGE_")) else "ab"
        for status, _, _, error in (told for _, told in CASES)
    ]


def test_a_session_without_the_functions_gets_them(spark: SparkSession) -> None:
    from pipeline.capture.recorded_minimum import with_recorded_minimum
    from pipeline.replay.replay import ANSWER_SCHEMA
    from pipeline.settings.settings import BrokerSettings
    from udfs.sql_functions import has_functions

    of_command = bare_session(spark)
    assert not has_functions(of_command)
    answers = of_command.createDataFrame([], f"{ANSWER_SCHEMA}, recordedMinOffset BIGINT, bodySha256 STRING")
    assert with_recorded_minimum(answers, BrokerSettings.from_sources().pull_settings()).count() == 0
