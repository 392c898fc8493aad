"""`pullsim whatif`: answer the same requests under two sets of settings, and compare the answers.

The answers are joined by the number of the request. The result has counts, and the first pulls that differ. A consumer that gets more
messages from a pull would have made fewer pulls, but the requests are fixed. `drain` counts the pulls that a consumer would have made; the
messages and bytes for each pull with messages show the same without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.questions.drain import Drained, drain
from pipeline.replay.answer_lines import ANSWER_FIELDS
from pipeline.replay.replay import RequestProfile
from pipeline.replay.replay_job import answer, check_timestamps
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import RequestFile, scan_file
from pipeline.requests.request_source import read_requests
from pipeline.settings.settings import BrokerSettings, PullSettings, camel_case

SIDES: Final = ("set", "versus")
# settings of MessageStoreConfig that are given by the lengths of the store's files
FIXED_BY_STORE: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt")
# settings in PullSettings that only PullMessageProcessor uses, after the store has answered
_OF_PROCESSOR: Final = frozenset({"brokerId", "slaveReadEnable"})
_SHOWN: Final = 3
# fields that are compared where both sides have a status
_FIELDS: Final = (*(name for name in ANSWER_FIELDS if name != "status"), "messages")
# name -> SQL aggregate over the answers of one side
MEASURES: Final = {
    "pulls that found messages": "count_if({side}.outcome = 'FOUND')",
    "messages": "coalesce(sum({side}.messageCount), 0)",
    "bytes": "coalesce(sum({side}.bufferTotalSize), 0)",
    "messages a found pull": "round(sum({side}.messageCount) / nullif(count_if({side}.outcome = 'FOUND'), 0), 3)",
    "bytes a found pull": "round(sum({side}.bufferTotalSize) / nullif(count_if({side}.outcome = 'FOUND'), 0), 1)",
    "messages that lie on disk": "coalesce(sum({side}.messagesOnDisk), 0)",
    "pulls whose last entry read lies on disk": "count_if({side}.suggestPullingFromSlave)",
    "exceptions": "count_if({side}.exception IS NOT NULL)",
    "filters refused": "count_if({side}.error IS NOT NULL)",
    "answered null": "count_if({side}.outcome = 'null')",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """How the answers to the same requests differ under two sets of settings; of each pair, `set` is first and `versus` second.

    Attributes:
        settings: both values of each setting that was given for either set.
        notes: messages about given settings that change no answer.
        pulls: number of pulls.
        changed: number of pulls with different answers.
        measures: both values of each measure; None where a divisor is 0.
        outcomes: (outcome under `set`, outcome under `versus`, pulls, pulls with different answers). An outcome is a status, an
            exception, an error code or null.
        fields: number of pulls in which each field differs; fields other than status are compared where both answers have a status.
        first: the first pulls that differ: line, request, both answers, names of the fields.
        drained: sums of draining under both sets; None where draining was not wanted.
    """

    settings: dict[str, tuple[Any, Any]]
    notes: tuple[str, ...]
    pulls: int
    changed: int
    measures: dict[str, tuple[Any, Any]]
    outcomes: list[tuple[str, str, int, int]]
    fields: dict[str, int]
    first: list[dict[str, Any]]
    drained: tuple[Drained, Drained] | None


def what_if(
    broker: OpenedBroker,
    requests_path: str,
    *,
    options: ReplayOptions,
    settings_of: Sequence[Callable[[RequestFile], BrokerSettings]],
    given: frozenset[str],
    with_drain: bool,
    progress: Callable[[str], None],
) -> WhatIf:
    """Answer the requests of a file under two sets of settings.

    Args:
        broker: the broker whose store answers.
        requests_path: path of the request file.
        options: `at`, `filters` and `slave_lag` of a replay; the lag applies to the side that is a slave.
        settings_of: for each set, gives the broker's settings for a file, whose header may have a configuration.
        given: names of the settings that were given for either set.
        with_drain: whether to count the pulls that it takes to read the same messages.
        progress: called with a text at each step.

    Raises:
        RequestError: a line is no request.
        LakeError: the store was imported as found.
        SettingsError: a slave lag is given, and neither side is a slave.
    """
    progress(f"reading {requests_path}")
    file = scan_file(requests_path)
    both = [of(file) for of in settings_of]
    requests = read_requests(broker.lake.spark, file)
    check_timestamps(requests, file, options)
    progress("answering twice")
    pull = [settings.pull_settings() for settings in both]
    options.check_roles(*(one.broker_role for one in pull))
    profile = RequestProfile(into_messages=file.has_other_filters, far=file.has_large_max, about=file.lines)
    answers = [
        answer(broker, requests, options=options, settings=one, profile=profile).select("seq", _side(name))
        for one, name in zip(pull, SIDES, strict=True)
    ]
    joined = answers[0].join(answers[1], "seq").withColumn("fields", _differing()).persist()
    try:
        sums = joined.agg(F.count("*").alias("pulls"), F.count_if(_changed()).alias("changed"), *_measures()).collect()[0]
        outcomes = (
            joined.groupBy(F.col("set.outcome").alias("before"), F.col("versus.outcome").alias("after"))
            .agg(F.count("*"), F.count_if(_changed()))
            .collect()
        )
        by_field = joined.select(F.explode("fields").alias("field")).groupBy("field").count().collect()
        first = _first(requests, joined)
        drained = None
        if with_drain:
            progress("draining twice")
            drained = drain(broker, requests, joined, pull, into_messages=file.has_other_filters)
    finally:
        joined.unpersist()
    order = ("status", *_FIELDS)
    return WhatIf(
        settings={name: (both[0].value(name), both[1].value(name)) for name in sorted(given)},
        notes=notes_on(given),
        pulls=sums["pulls"],
        changed=sums["changed"],
        measures={name: (sums[f"set {name}"], sums[f"versus {name}"]) for name in MEASURES},
        outcomes=sorted((tuple(row) for row in outcomes), key=lambda row: (row[0] == row[1], -row[2], row)),
        fields={row["field"]: row["count"] for row in sorted(by_field, key=lambda row: order.index(row["field"]))},
        first=first,
        drained=drained,
    )


def notes_on(given: frozenset[str]) -> tuple[str, ...]:
    """For each given setting that changes no answer of the store: a message with the reason."""
    touching = {camel_case(field.name) for field in fields(PullSettings)} - _OF_PROCESSOR
    notes = []
    for name in sorted(given - touching):
        if name in FIXED_BY_STORE:
            notes.append(f"{name} is fixed by the files of the store that was imported, and taken from these")
        else:
            notes.append(f"{name} is not looked at by DefaultMessageStore.getMessage: it changes none of these answers")
    return tuple(notes)


def _side(name: str) -> Column:
    """The fields of an answer that are compared and shown, as a struct with this name."""
    outcome = F.coalesce("status", "exception", "error", F.lit("null")).alias("outcome")
    numbers = [field for field in _FIELDS if field != "messages"]
    return F.struct(outcome, "exception", "error", *numbers, "messagesOnDisk", F.col("entries.queueOffset").alias("messages")).alias(name)


def _differing() -> Column:
    """The names of the fields in which the answers of the two sides differ."""

    def differs(field: str) -> Column:
        return ~F.col(f"set.{field}").eqNullSafe(F.col(f"versus.{field}"))

    both_answer = F.col("set.nextBeginOffset").isNotNull() & F.col("versus.nextBeginOffset").isNotNull()
    outcome = F.when(differs("outcome"), F.lit("status"))
    return F.array_compact(F.array(outcome, *[F.when(both_answer & differs(field), F.lit(field)) for field in _FIELDS]))


def _changed() -> Column:
    return F.size("fields") > 0


def _measures() -> list[Column]:
    """The measures of both sides as aggregates with the names "side measure"."""
    return [F.expr(sql.format(side=f"`{side}`")).alias(f"{side} {name}") for side in SIDES for name, sql in MEASURES.items()]


def _first(requests: DataFrame, joined: DataFrame) -> list[dict[str, Any]]:
    few = joined.where(_changed()).orderBy("seq").limit(_SHOWN).collect()
    lines = requests.where(F.col("seq").isin([row["seq"] for row in few])).select("seq", "line").collect() if few else []
    requested = {row["seq"]: json.loads(row["line"])["request"] for row in lines}
    return [
        {
            "line": row["seq"],
            "request": requested[row["seq"]],
            **{side: _shown(row[side].asDict()) for side in SIDES},
            "fields": list(row["fields"]),
        }
        for row in few
    ]


def _shown(side: dict[str, Any]) -> Any:
    """An answer in the format of a replay, with the queue offsets of its messages."""
    for name in ("error", "exception"):
        if side[name] is not None:
            return {name: side[name]}
    return None if side["outcome"] == "null" else {"status": side["outcome"], **{field: side[field] for field in _FIELDS}}
