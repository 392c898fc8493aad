"""The driver writes the JSON of answers byte for byte as Spark does, whatever texts the messages have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from pipeline.replay.answer_lines import ERROR_TEXTS, response_json
from pipeline.replay.answer_texts import answer_text, json_object, texts_without_messages
from pipeline.replay.replay import ANSWER_SCHEMA
from pipeline.schema.arrow_types import arrow_of
from store_format.broker_version import BrokerVersion
from udfs.pull.pull_rules import PullRules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = st.text(st.characters(codec="utf-8"))
ALL_CHARACTERS = "".join(chr(code) for code in [*range(0x300), 0x2028, 0x2029, 0xFEFF, 0xFFFD, 0xFFFF, 0x1F600, 0x10FFFF])


@given(TEXTS, st.none() | st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_an_object_reads_as_what_it_was_made_of(text: str, number: int | None, flag: bool) -> None:
    fields = {"text": text, "number": number, "flag": flag, "numbers": [1, 2]}
    assert json.loads(json_object(fields)) == fields


def test_texts_are_escaped_as_by_spark(spark: SparkSession) -> None:
    texts = [*ALL_CHARACTERS, ALL_CHARACTERS, "\\u001f \\\\u001F", ""]
    rows = spark.createDataFrame(list(enumerate(texts)), "place INT, text STRING")
    made = [row[0] for row in rows.orderBy("place").select(F.to_json(F.struct("text"))).collect()]
    assert [json_object({"text": text}) for text in texts] == made


ANSWERS: list[dict[str, Any]] = [
    {"status": "FOUND", "nextBeginOffset": 3, "messageCount": 1, "suggestPullingFromSlave": True, "filterMessageCount": 2},
    {"status": "OFFSET_TOO_SMALL", "nextBeginOffset": 2**40, "diskFallBehind": -1, "filterMessageCount": 0},
    {"exception": "java.lang.IllegalArgumentException"},
    *({"error": error} for error in ERROR_TEXTS),
    {},
]
ENTRIES = [None, [], [{"queueOffset": 2, "physicOffset": 9, "size": 91}, {"queueOffset": 3, "physicOffset": 100, "size": 91}]]


@pytest.mark.parametrize("messages", [None, [], ['{"a":1}', "null"]])
@pytest.mark.parametrize("version", [BrokerVersion.V4_9_3, BrokerVersion.V5_5_0])
def test_answers_are_those_of_spark(messages: list[str] | None, version: BrokerVersion, spark: SparkSession) -> None:
    rows = [answer | {"seq": place, "entries": ENTRIES[place % 3]} for place, answer in enumerate(ANSWERS * 3)]
    table = pa.Table.from_pylist(rows, arrow_of(ANSWER_SCHEMA))
    rules = PullRules.of(version)
    listed = None if messages is None else F.lit(f"[{','.join(messages)}]")
    made = spark.createDataFrame(table).orderBy("seq").select(response_json(messages=listed, rules=rules)).collect()
    assert [answer_text(row, messages, rules) for row in table.to_pylist()] == [row[0] for row in made]
    if messages is None:
        assert texts_without_messages(table, rules).to_pylist() == [row[0] for row in made]
