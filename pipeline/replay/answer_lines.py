"""Answers as JSON."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.replay.held_pulls import NEVER_WOKEN
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
ERROR_TEXTS = {
    SUBSCRIPTION_PARSE_FAILED: "the filter's expression does not parse",
    FILTER_DATA_NOT_EXIST: "the group has registered no filter for the topic, or the broker has forgotten it",
    NEVER_WOKEN: "the broker holds the pull, and nothing wakes it",
}


def response_json(*, messages: Column | None, rules: PullRules = DEFAULT_RULES) -> Column:
    """The answer in a row as JSON, in the format of recorded answers of a broker with `rules`.

    Args:
        messages: the messages of the answer as a JSON array, for the last field; None leaves them out.
        rules: of the broker that answered.
    """
    fields: list[Any] = [*ANSWER_FIELDS]
    if rules.lists_queue_offsets:
        offsets = F.coalesce("entries.queueOffset", F.array().cast("ARRAY<BIGINT>")).alias("messageQueueOffset")
        # the simulated broker keeps all its data in memory
        fields += [*([] if messages is None else [offsets]), "filterMessageCount", F.lit(0).alias("coldDataSum")]
    keep_nulls = {"ignoreNullFields": "false"}
    answer = F.to_json(F.struct(*fields), keep_nulls)
    if messages is not None:
        answer = F.concat(F.regexp_replace(answer, r"\}$", ',"messages":'), messages, F.lit("}"))
    text = F.element_at(F.create_map(*[F.lit(part) for pair in ERROR_TEXTS.items() for part in pair]), F.col("error"))
    return (
        F.when(F.col("error").isNotNull(), F.to_json(F.struct("error", text.alias("message"))))
        .when(F.col("exception").isNotNull(), F.to_json(F.struct("exception")))
        .when(F.col("status").isNull(), F.lit("null"))
        .otherwise(answer)
    )
