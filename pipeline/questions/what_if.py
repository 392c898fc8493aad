"""`pullsim whatif`: answer the same requests under the current and the proposed settings, and compare the answers.

The answers are joined by the number of the request. The result has counts, and the first pulls that differ. A consumer that gets more
messages from a pull would make fewer pulls, but the requests are fixed. `drain` counts the pulls that a consumer would make; without it,
the result has the messages and bytes of a pull that found any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.capture.captured_requests import captured_requests
from pipeline.capture.pull_checks import checked
from pipeline.capture.recorded_minimum import from_deleted_files
from pipeline.capture.replay_captured import captured_pulls
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.questions.drain import SIDES, Drained, drain
from pipeline.replay.answer_lines import ANSWER_FIELDS
from pipeline.replay.replay import At, RequestProfile
from pipeline.replay.replay_job import answer, check_timestamps
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import RequestFile, scan_file
from pipeline.requests.request_source import read_requests
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings, PullSettings, camel_case
from pipeline.tasks.computed_once import kept
from udfs.pull.codes import ResponseCode

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
    """How the answers to the same requests differ under two sets of settings; in each pair the current ones are first.

    Attributes:
        settings: both values of each setting that was given for either set.
        notes: messages about given settings that change no answer.
        at: which part of the store a pull sees.
        pulls: number of pulls that were answered.
        left_out: why other pulls were not answered, and how many.
        changed: number of pulls with different answers.
        measures: both values of each measure; None where a divisor is 0.
        outcomes: (current outcome, proposed outcome, pulls, pulls with different answers). An outcome is a status, an
            exception, an error code or null.
        fields: number of pulls in which each field differs; fields other than status are compared where both answers have a status.
        first: the first pulls that differ: line or requestId, request, both answers, names of the fields.
        drained: sums of draining under both sets; None where draining was not wanted.
    """

    settings: dict[str, tuple[Any, Any]]
    notes: tuple[str, ...]
    at: At
    pulls: int
    left_out: dict[str, int]
    changed: int
    measures: dict[str, tuple[Any, Any]]
    outcomes: list[tuple[str, str, int, int]]
    fields: dict[str, int]
    first: list[dict[str, Any]]
    drained: tuple[Drained, Drained] | None


def what_if(
    broker: OpenedBroker,
    requests_path: str | None,
    *,
    options: ReplayOptions,
    settings_of: Sequence[Callable[[RequestFile | None], BrokerSettings]],
    given: frozenset[str],
    with_drain: bool,
    progress: Callable[[str], None],
) -> WhatIf:
    """Answer the requests of a file under two sets of settings.

    Args:
        broker: the broker whose store answers.
        requests_path: path of the request file; None for the captured pulls of the broker.
        options: `at`, `filters` and `slave_lag` of a replay; the lag applies to the side that is a slave.
        settings_of: two functions, for the current and the proposed settings; each returns the settings for a request file, whose header
            may have a configuration.
        given: names of the settings that were given for either set.
        with_drain: whether to count the pulls that it takes to read the same messages.
        progress: called with a text at each step.

    Raises:
        RequestError: a line is no request.
        LakeError: the store was imported as found, or no pulls were captured.
        SettingsError: a slave lag is given, and neither side is a slave.
    """
    progress(f"reading {requests_path or 'the captured pulls'}")
    file = None if requests_path is None else scan_file(requests_path)
    both = [of(file) for of in settings_of]
    requests, profile = _requests(broker, file, both[0], options)
    for side, side_settings in zip(SIDES, both, strict=True):
        progress(f"{side}: {side_settings.told_version}")
    progress("answering twice")
    pull = [settings.pull_settings() for settings in both]
    options.check_roles(*(one.broker_role for one in reversed(pull)))
    answers = [
        answer(broker, requests, options=options, settings=one, profile=profile).select("seq", _side(name))
        for one, name in zip(pull, SIDES, strict=True)
    ]
    with kept(answers[0].join(answers[1], "seq").withColumn("fields", _differing())) as joined:
        sums = joined.agg(F.count("*").alias("pulls"), F.count_if(_changed()).alias("changed"), *_measures()).collect()[0]
        outcomes = (
            joined.groupBy(F.col("current.outcome").alias("before"), F.col("proposed.outcome").alias("after"))
            .agg(F.count("*"), F.count_if(_changed()))
            .collect()
        )
        by_field = joined.select(F.explode("fields").alias("field")).groupBy("field").count().collect()
        first = _first(broker, requests, joined, captured=file is None)
        deleted = from_deleted_files(broker, captured_pulls(broker)) if file is None else 0
        left_out = _left_out(broker, requests, both[0], options, sums["pulls"], captured=file is None)
        drained = None
        if with_drain:
            progress("draining twice")
            drained = drain(broker, requests, joined, pull, into_messages=profile.into_messages)
    order = ("status", *_FIELDS)
    measures = {name: (sums[f"{SIDES[0]} {name}"], sums[f"{SIDES[1]} {name}"]) for name in MEASURES}
    return WhatIf(
        settings={name: (both[0].value(name), both[1].value(name)) for name in sorted(given)},
        notes=(*notes_on(given), *_notes_on_place(given, measures, sums["changed"]), *_notes_on_deleted(deleted)),
        at=options.at,
        pulls=sums["pulls"],
        left_out=left_out,
        changed=sums["changed"],
        measures=measures,
        outcomes=sorted((tuple(row) for row in outcomes), key=lambda row: (row[0] == row[1], -row[2], row)),
        fields={row["field"]: row["count"] for row in sorted(by_field, key=lambda row: order.index(row["field"]))},
        first=first,
        drained=drained,
    )


def _requests(
    broker: OpenedBroker, file: RequestFile | None, settings: BrokerSettings, options: ReplayOptions
) -> tuple[DataFrame, RequestProfile]:
    if file is None:
        return captured_requests(broker, settings).persist(), RequestProfile()
    requests = read_requests(broker.lake.spark, file)
    check_timestamps(requests, file, options)
    return requests, RequestProfile(into_messages=file.has_other_filters, far=file.has_large_max, about=file.lines)


def _left_out(
    broker: OpenedBroker, requests: DataFrame, settings: BrokerSettings, options: ReplayOptions, answered: int, *, captured: bool
) -> dict[str, int]:
    """Why pulls were not answered, and how many."""
    reasons: dict[str, int] = {}
    if captured:
        pulls = captured_pulls(broker)
        refused = checked(broker, pulls, settings).where("refusedCode IS NOT NULL OR checkError IS NOT NULL")
        for row in refused.groupBy("refusedCode", F.col("checkError").isNotNull().alias("odd")).count().orderBy("refusedCode").collect():
            code = row["refusedCode"]
            name = "" if code is None else f"{code} {ResponseCode(code).name}" if code in set(ResponseCode) else f"code {code}"
            reasons[f"the broker refuses them: {name}" if name else "their checks fail"] = row["count"]
    if options.filters is not None:
        others = requests.count() - answered
        reasons |= {f"their filter is none of {', '.join(sorted(options.filters))}": others} if others else {}
    return reasons


def _notes_on_place(given: frozenset[str], measures: dict[str, tuple[Any, Any]], changed: int) -> list[str]:
    """A note on caps that change nothing, because all messages of the answers lie in the other place, memory or disk."""
    messages, on_disk = sum(measures["messages"]), sum(measures["messages that lie on disk"])
    if changed or not messages or on_disk not in {0, messages}:
        return []
    place, other = ("Disk", "Memory") if on_disk else ("Memory", "Disk")
    names = sorted(name for name in given if name in {f"maxTransferCountOnMessageIn{other}", f"maxTransferBytesOnMessageIn{other}"})
    why = "accessMessageInMemoryMaxRatio and totalPhysicalMemorySize tell which messages lie on disk"
    return [f"{name} cannot matter here: every message of these answers counts as in {place.lower()}; {why}" for name in names]


def _notes_on_deleted(pulls: int) -> list[str]:
    """A note on pulls that saw messages which the store has no more."""
    if not pulls:
        return []
    now = "here they begin below the first message that is left, on both sides"
    return [f"files from which {counted(pulls, 'captured pull')} got an answer are deleted by now; {now}"]


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
        return ~F.col(f"{SIDES[0]}.{field}").eqNullSafe(F.col(f"{SIDES[1]}.{field}"))

    both_answer = F.col(f"{SIDES[0]}.nextBeginOffset").isNotNull() & F.col(f"{SIDES[1]}.nextBeginOffset").isNotNull()
    outcome = F.when(differs("outcome"), F.lit("status"))
    return F.array_compact(F.array(outcome, *[F.when(both_answer & differs(field), F.lit(field)) for field in _FIELDS]))


def _changed() -> Column:
    return F.size("fields") > 0


def _measures() -> list[Column]:
    """The measures of both sides as aggregates with the names "side measure"."""
    return [F.expr(sql.format(side=f"`{side}`")).alias(f"{side} {name}") for side in SIDES for name, sql in MEASURES.items()]


def _first(broker: OpenedBroker, requests: DataFrame, joined: DataFrame, *, captured: bool) -> list[dict[str, Any]]:
    few = joined.where(_changed()).orderBy("seq").limit(_SHOWN).collect()
    lines = requests.where(F.col("seq").isin([row["seq"] for row in few])).select("seq", "line").collect() if few else []
    requested = {row["seq"]: json.loads(row["line"])["request"] for row in lines}
    ids: dict[int, str] = {}
    if captured and requested:
        ids = {row["seq"]: row["requestId"] for row in captured_pulls(broker).where(F.col("seq").isin([*requested])).collect()}
    return [
        {
            **({"requestId": ids[row["seq"]]} if captured else {"line": row["seq"]}),
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
