"""`pullsim whatif`: answer the same requests under the current and the proposed settings, and compare the answers.

The answers are joined by the number of the request. The result has counts, and the first pulls that differ. A consumer that gets more
messages from a pull would make fewer pulls, but the requests are fixed. `drain` counts the pulls that a consumer would make; without it,
the result has the messages and bytes of a pull that found any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from pipeline.capture.recorded_minimum import from_deleted_files
from pipeline.embedded.relations import Relations, SparkRelations
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.questions.drain import SIDES, Drained, drain
from pipeline.questions.what_if_pulls import FIELDS, SparkPulls, WhatIfPulls, what_if_pulls
from pipeline.replay.replay import At
from pipeline.replay.replay_run import ReplayOptions
from pipeline.requests.request_file import RequestFile, scan_file
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings, PullSettings, camel_case
from pipeline.tasks.work import NoSessionError
from udfs.pull.codes import ResponseCode

# settings of MessageStoreConfig that are given by the lengths of the store's files
FIXED_BY_STORE: Final = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt")
# settings in PullSettings that only PullMessageProcessor uses, after the store has answered
_OF_PROCESSOR: Final = frozenset({"brokerId", "slaveReadEnable"})
_SHOWN: Final = 3
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
_CHANGED: Final = "size(fields) > 0"
_MEASURED: Final = ", ".join(f"{sql.format(side=f'`{side}`')} AS `{side} {name}`" for side in SIDES for name, sql in MEASURES.items())
# queries over the answers of both sides, `what_if_pulls.WhatIfPulls.compared`
_SUMS: Final = f"SELECT count(*) AS pulls, count_if({_CHANGED}) AS changed, {_MEASURED} FROM {{compared}}"
_OUTCOMES: Final = (
    f"SELECT `{SIDES[0]}`.outcome AS before, `{SIDES[1]}`.outcome AS after, count(*) AS pulls, count_if({_CHANGED}) AS changed "
    f"FROM {{compared}} GROUP BY `{SIDES[0]}`.outcome, `{SIDES[1]}`.outcome"
)
_BY_FIELD: Final = "SELECT field, count(*) AS pulls FROM (SELECT explode(fields) AS field FROM {compared}) GROUP BY field"
_FIRST: Final = f"SELECT * FROM {{compared}} WHERE {_CHANGED} ORDER BY seq LIMIT {_SHOWN}"
# captured pulls that do not reach the store, by reason
_REFUSED: Final = (
    "SELECT refusedCode, checkError IS NOT NULL AS odd, count(*) AS pulls FROM {checked} "
    "WHERE refusedCode IS NOT NULL OR checkError IS NOT NULL GROUP BY refusedCode, checkError IS NOT NULL ORDER BY refusedCode"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """How the answers to the same requests differ under two sets of settings; in each pair the current ones are first.

    Attributes:
        settings: both values of each setting that was given for either set.
        notes: messages about given settings that change no answer.
        at: which part of the store a pull sees.
        pulls: number of pulls that were answered.
        left_out: reason -> number of pulls that were not answered for it.
        changed: number of pulls with different answers.
        measures: both values of each measure; None if a divisor is 0.
        outcomes: (current outcome, proposed outcome, pulls, pulls with different answers). An outcome is a status, an
            exception, an error code or null.
        fields: number of pulls in which each field differs; fields other than status are compared if both answers have a status.
        first: the first pulls that differ: line or requestId, request, both answers, names of the fields.
        drained: sums of draining under both sets; None if draining was not wanted.
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
    pulls = what_if_pulls(broker, file, both[0], options)
    for side, side_settings in zip(SIDES, both, strict=True):
        progress(f"{side}: {side_settings.told_version}")
    progress("answering twice")
    pull = [settings.pull_settings() for settings in both]
    options.check_roles(*(one.broker_role for one in reversed(pull)))
    with pulls.compared(pull) as compared:
        (sums,) = compared.rows(_SUMS)
        outcomes = compared.rows(_OUTCOMES)
        by_field = compared.rows(_BY_FIELD)
        first = _first(pulls, compared.rows(_FIRST))
        deleted = 0 if pulls.captured is None else from_deleted_files(pulls.captured)
        left_out = _left_out(pulls, options, sums["pulls"])
        drained = None
        if with_drain:
            progress("draining twice")
            drained = _drained(broker, pulls, compared, pull)
    order = ("status", *FIELDS)
    measures = {name: (sums[f"{SIDES[0]} {name}"], sums[f"{SIDES[1]} {name}"]) for name in MEASURES}
    return WhatIf(
        settings={name: (both[0].value(name), both[1].value(name)) for name in sorted(given)},
        notes=(*notes_on(given), *_notes_on_place(given, measures, sums["changed"]), *_notes_on_deleted(deleted)),
        at=options.at,
        pulls=sums["pulls"],
        left_out=left_out,
        changed=sums["changed"],
        measures=measures,
        outcomes=sorted((tuple(row.values()) for row in outcomes), key=lambda row: (row[0] == row[1], -row[2], row)),
        fields={row["field"]: row["pulls"] for row in sorted(by_field, key=lambda row: order.index(row["field"]))},
        first=first,
        drained=drained,
    )


def _drained(broker: OpenedBroker, pulls: WhatIfPulls, compared: Relations, settings: Sequence[PullSettings]) -> tuple[Drained, Drained]:
    """The sums of draining under both sets of settings.

    Raises:
        NoSessionError: there is no session; only Spark drains.
    """
    if not isinstance(pulls, SparkPulls) or not isinstance(compared, SparkRelations):
        raise NoSessionError("queues are drained")
    return drain(broker, pulls.requests, compared.frame("SELECT * FROM {compared}"), settings, into_messages=pulls.profile.into_messages)


def _left_out(pulls: WhatIfPulls, options: ReplayOptions, answered: int) -> dict[str, int]:
    """Return reason -> number of pulls that were not answered for it."""
    reasons: dict[str, int] = {}
    for row in () if pulls.captured is None else pulls.captured.rows(_REFUSED):
        code = row["refusedCode"]
        name = "" if code is None else f"{code} {ResponseCode(code).name}" if code in set(ResponseCode) else f"code {code}"
        reasons[f"the broker refuses them: {name}" if name else "their checks fail"] = row["pulls"]
    if options.filters is not None:
        others = pulls.count() - answered
        reasons |= {f"their filter is none of {', '.join(sorted(options.filters))}": others} if others else {}
    return reasons


def _notes_on_place(given: frozenset[str], measures: dict[str, tuple[Any, Any]], changed: int) -> list[str]:
    """Return a note on each cap for memory or disk that changes nothing, because all messages of the answers lie in the other place."""
    messages, on_disk = sum(measures["messages"]), sum(measures["messages that lie on disk"])
    if changed or not messages or on_disk not in {0, messages}:
        return []
    place, other = ("Disk", "Memory") if on_disk else ("Memory", "Disk")
    names = sorted(name for name in given if name in {f"maxTransferCountOnMessageIn{other}", f"maxTransferBytesOnMessageIn{other}"})
    why = "accessMessageInMemoryMaxRatio and totalPhysicalMemorySize tell which messages lie on disk"
    return [f"{name} cannot matter here: every message of these answers counts as in {place.lower()}; {why}" for name in names]


def _notes_on_deleted(pulls: int) -> list[str]:
    """Return a note on the number of captured pulls whose answers came from files that are deleted by now; none for 0."""
    if not pulls:
        return []
    now = "here they begin below the first message that is left, on both sides"
    return [f"files from which {counted(pulls, 'captured pull')} got an answer are deleted by now; {now}"]


def notes_on(given: frozenset[str]) -> tuple[str, ...]:
    """Return a message for each given setting that changes no answer of the store, with the reason."""
    touching = {camel_case(field.name) for field in fields(PullSettings)} - _OF_PROCESSOR
    notes = []
    for name in sorted(given - touching):
        if name in FIXED_BY_STORE:
            notes.append(f"{name} is fixed by the files of the store that was imported, and taken from these")
        else:
            notes.append(f"{name} is not looked at by DefaultMessageStore.getMessage: it changes none of these answers")
    return tuple(notes)


def _first(pulls: WhatIfPulls, few: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pulls of `few` rows of `compared`, with both answers and the fields that differ."""
    if not few:
        return []
    seqs = [row["seq"] for row in few]
    requested = pulls.objects(seqs)
    ids: dict[int, str] | None = None
    if pulls.captured is not None:
        listed = ", ".join(map(str, seqs))
        ids = {row["seq"]: row["requestId"] for row in pulls.captured.rows(f"SELECT seq, requestId FROM {{pulls}} WHERE seq IN ({listed})")}
    return [
        {
            **({"line": row["seq"]} if ids is None else {"requestId": ids[row["seq"]]}),
            "request": requested[row["seq"]],
            **{side: _shown(row[side]) for side in SIDES},
            "fields": list(row["fields"]),
        }
        for row in few
    ]


def _shown(side: dict[str, Any]) -> Any:
    """An answer in the format of a replay, with the queue offsets of its messages."""
    for name in ("error", "exception"):
        if side[name] is not None:
            return {name: side[name]}
    return None if side["outcome"] == "null" else {"status": side["outcome"], **{field: side[field] for field in FIELDS}}
