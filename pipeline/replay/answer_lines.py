"""Answers as JSON lines with decoded messages, and their comparison with recorded answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StringType

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.held_pulls import NEVER_WOKEN
from pipeline.schema import tables as t
from pipeline.schema.arrow_types import arrow_of
from udfs.pull.pull_filter import FILTER_DATA_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED
from udfs.pull.pull_rules import DEFAULT_RULES, PullRules

_SHOWN_DIFFERENCES = 3
ANSWER_FIELDS = (
    "status",
    "nextBeginOffset",
    "minOffset",
    "maxOffset",
    "messageCount",
    "bufferTotalSize",
    "suggestPullingFromSlave",
    "msgCount4Commercial",
    "diskFallBehind",
)
_OF_SOME_VERSIONS = ("messageQueueOffset", "filterMessageCount", "coldDataSum")
_ERROR_TEXTS = {
    SUBSCRIPTION_PARSE_FAILED: "the filter's expression does not parse",
    FILTER_DATA_NOT_EXIST: "the group has registered no filter for the topic, or the broker has forgotten it",
    NEVER_WOKEN: "the broker holds the pull, and nothing wakes it",
}


def delivered(broker: OpenedBroker) -> DataFrame:
    """The bytes that the broker delivers for each entry (physicOffset, size): where they start, their CRC, and the decoded message."""
    log = broker.table(t.COMMIT_LOG)
    decodes = F.col("msgId").isNotNull()
    records = log.select(
        "physicOffset",
        F.col("storeSize").alias("size"),
        F.col("physicOffset").alias("startOffset"),
        F.when(decodes, F.col("queueOffset")).alias("queueOffset"),
        F.when(decodes, F.col("physicOffset")).alias("messagePhysicOffset"),
        "msgId",
        "tags",
        "keys",
        F.when(decodes, F.col("bodyCrc")).alias("bodyCrc"),
        F.when(decodes, F.col("storeTimestamp")).alias("storeTimestamp"),
        "recordCrc32",
    )
    odd = broker.table(t.ODD_ENTRY).select(*records.columns)
    return records.unionByName(odd)


def with_messages(broker: OpenedBroker, answers: DataFrame) -> DataFrame:
    """Add to answers a column `messages`, in the order of their entries.

    The answers are read twice. Of the log, only the range that the entries point into is read.
    """
    at = answers.select(F.explode("entries.physicOffset").alias("at")).agg(F.min("at").alias("first"), F.max("at").alias("last")).first()
    first, last = (0, -1) if at is None or at["first"] is None else (at["first"], at["last"])
    entries = answers.select("seq", F.posexplode("entries").alias("position", "entry")).select(
        "seq", "position", F.col("entry.physicOffset").alias("physicOffset"), F.col("entry.size").alias("size")
    )
    log = delivered(broker).where(F.col("physicOffset").between(first, last))
    found = entries.join(log, ["physicOffset", "size"], "left")
    lost = F.raise_error(F.format_string("commit log offset %s, %s bytes: in the queue, but not in the tables", "physicOffset", "size"))
    message = F.struct(
        "position",
        F.col("queueOffset"),
        F.col("messagePhysicOffset").alias("physicOffset"),
        F.col("startOffset"),
        F.col("size").alias("storeSize"),
        "msgId",
        "tags",
        "keys",
        "bodyCrc",
        "storeTimestamp",
        F.when(F.col("recordCrc32").isNull(), lost.cast("BIGINT")).otherwise(F.col("recordCrc32")).alias("rawCrc32"),
    )
    grouped = found.groupBy("seq").agg(F.sort_array(F.collect_list(message)).alias("messages"))
    in_order = F.transform("messages", lambda one: one.dropFields("position"))
    return answers.join(grouped.withColumn("messages", in_order), "seq", "left")


def response_json(*, with_messages: bool, rules: PullRules = DEFAULT_RULES) -> Column:
    """The answer in a row as JSON, in the format of recorded answers of the version that has the rules."""
    fields: list[Any] = [*ANSWER_FIELDS]
    if with_messages:
        fields.append(F.coalesce("messages", F.from_json(F.lit("[]"), _MESSAGES)).alias("messages"))
    if rules.lists_queue_offsets:
        offsets = F.coalesce("entries.queueOffset", F.array().cast("ARRAY<BIGINT>")).alias("messageQueueOffset")
        # the simulated broker keeps all its data in memory
        fields += [*([offsets] if with_messages else []), "filterMessageCount", F.lit(0).alias("coldDataSum")]
    keep_nulls = {"ignoreNullFields": "false"}
    text = F.element_at(F.create_map(*[F.lit(part) for pair in _ERROR_TEXTS.items() for part in pair]), F.col("error"))
    return (
        F.when(F.col("error").isNotNull(), F.to_json(F.struct("error", text.alias("message"))))
        .when(F.col("exception").isNotNull(), F.to_json(F.struct("exception")))
        .when(F.col("status").isNull(), F.lit("null"))
        .otherwise(F.to_json(F.struct(*fields), keep_nulls))
    )


_MESSAGES = (
    "ARRAY<STRUCT<queueOffset: BIGINT, physicOffset: BIGINT, startOffset: BIGINT, storeSize: INT, msgId: STRING, tags: STRING, "
    "keys: STRING, bodyCrc: INT, storeTimestamp: BIGINT, rawCrc32: BIGINT>>"
)


def answered_lines(requests: DataFrame, answers: DataFrame, *, with_messages: bool, rules: PullRules = DEFAULT_RULES) -> DataFrame:
    """(seq, line, response, error): each request line unchanged, with the simulator's answer as JSON and its error code."""
    ours = answers.select("seq", response_json(with_messages=with_messages, rules=rules).alias("response"), "error")
    return requests.select("seq", "line").join(ours, "seq")


def output_lines(lines: DataFrame) -> DataFrame:
    """The lines of the output file (column `value`), in the order of the requests."""
    # get_json_object gives NULL where a number, a text or the nesting exceeds the limits of Spark's parser
    too_large = F.raise_error(F.format_string("line %s: the request is nested too deeply, or too long in a part, to be copied", "seq"))
    request = F.coalesce(F.get_json_object("line", "$.request"), too_large.cast("STRING"))
    plain = F.concat(F.lit('{"request":'), request, F.lit(',"response":'), "response", F.lit("}"))
    has_more = F.size(F.array_except(F.json_object_keys("line"), F.array(F.lit("request"), F.lit("response")))) > 0
    with_more = _with_response(F.when(has_more, F.col("line")), F.when(has_more, F.col("response")))
    return lines.orderBy("seq").select(F.coalesce(with_more, plain).alias("value"))


@pandas_udf(StringType())  # type: ignore[call-overload, untyped-decorator]
def _with_response(lines: pd.Series, responses: pd.Series) -> pd.Series:
    """Put the response into lines that have more fields than "request" and "response"; other lines are NULL."""
    return pd.Series([None if line is None else _put_response(line, response) for line, response in zip(lines, responses, strict=True)])


def _put_response(line: str, response: str) -> str:
    return json.dumps(json.loads(line) | {"response": json.loads(response)}, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of comparing the simulator's answers ("ours") with the recorded answers.

    Attributes:
        compared: number of lines with both answers.
        differ: number of compared lines whose answers differ in any field.
        unanswered: number of lines without an answer of ours, by error code; they are not compared.
        unrecorded: number of lines without a recorded answer.
        first: the first lines that differ: (line number, recorded answer, our answer, names of the fields that differ).
    """

    compared: int
    differ: int
    unanswered: dict[str, int]
    unrecorded: int
    first: list[tuple[int, str, str, list[str]]]

    def lines(self) -> list[str]:
        """The comparison as lines to print; the last line has the counts."""
        lines = []
        for number, recorded, ours, fields in self.first:
            lines += [f"line {number} differs in {', '.join(fields)}", f"  recorded: {recorded}", f"  ours:     {ours}"]
        if self.unrecorded:
            lines.append(f"{self.unrecorded} without a recorded answer")
        lines += [f"{count} not answered: {error}" for error, count in sorted(self.unanswered.items())]
        return [*lines, f"{self.compared} compared, {self.differ} differ"]


_COMPARED = "seq BIGINT, kind STRING, recorded STRING, response STRING, fields ARRAY<STRING>"


def compare(lines: DataFrame) -> Comparison:
    """Compare each answer of `answered_lines` with the recorded answer in its line."""
    compared = lines.mapInArrow(_compare, _COMPARED).persist()
    kinds = {row["kind"]: row["count"] for row in compared.groupBy("kind").count().collect()}
    first = compared.where("kind = 'differ'").orderBy("seq").limit(_SHOWN_DIFFERENCES).collect()
    compared.unpersist()
    differ, same, unrecorded = kinds.pop("differ", 0), kinds.pop("same", 0), kinds.pop("unrecorded", 0)
    return Comparison(
        compared=differ + same,
        differ=differ,
        unanswered=kinds,
        unrecorded=unrecorded,
        first=[(row["seq"], row["recorded"], row["response"], row["fields"]) for row in first],
    )


def _compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [_compared(*row.values()) for row in batch.select(["seq", "line", "response"]).to_pylist()]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_of(_COMPARED))


def _compared(seq: int, line: str, response: str) -> dict[str, Any]:
    recorded_line, ours = json.loads(line), json.loads(response)
    if "response" not in recorded_line:
        return {"seq": seq, "kind": "unrecorded", "fields": []}
    if ours is not None and "error" in ours:
        return {"seq": seq, "kind": ours["error"], "fields": []}
    recorded = recorded_line["response"]
    fields = differing_fields(recorded, ours)
    if not fields:
        return {"seq": seq, "kind": "same", "fields": []}
    return {
        "seq": seq,
        "kind": "differ",
        "recorded": json.dumps(recorded, ensure_ascii=False),
        "response": response,
        "fields": fields,
    }


def differing_fields(recorded: Any, ours: Any) -> list[str]:
    """Names of the fields in which two answers differ.

    Exceptions are compared by class only. Messages are compared only where our answer has them, and fields that some versions lack only
    where both answers have them.
    """
    if not isinstance(recorded, dict) or not isinstance(ours, dict):
        return [] if recorded == ours else ["response"]
    if "exception" in recorded or "exception" in ours:
        return [] if recorded.get("exception") == ours.get("exception") else ["exception"]
    left_out = {name for name in _OF_SOME_VERSIONS if name not in recorded or name not in ours}
    names = (recorded.keys() | ours.keys()) - left_out - (set() if "messages" in ours else {"messages"})
    missing = object()
    return sorted(name for name in names if recorded.get(name, missing) != ours.get(name, missing))
