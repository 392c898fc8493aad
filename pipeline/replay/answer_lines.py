"""Answers as JSON, with their decoded messages."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.held_pulls import NEVER_WOKEN
from pipeline.schema import tables as t
from udfs.pull.pull_filter import FILTER_DATA_NOT_EXIST, SUBSCRIPTION_PARSE_FAILED
from udfs.pull.pull_rules import DEFAULT_RULES, PullRules

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
