"""Answer packed requests by the rules of two versions in one pass over the entries, and find the rule of each difference.

A request is answered by both rule sets. If the answers differ, it is answered again by rule sets between the two: each is that of the
earlier version with one rule of the later version. A difference is due to the rule that changes the earlier version's answer. If several
rules do, or no rule alone, the request is also answered by the later rule set without each rule, and rules that other rules hide are left
out. So all requests cost two calls of the kernel, and only those that differ cost more.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay.entry_colocation import Row
from pipeline.replay.kernel_batches import (
    KERNEL_COLUMNS,
    Answering,
    PackedPart,
    RequestsWithEntries,
    parts_of,
    requests_with_entries,
    slices_of,
)
from pipeline.requests.packing import Col, Packed
from pipeline.schema.arrow_types import arrow_of
from udfs.pull import get_message as gm
from udfs.pull.codes import GetMessageStatus
from udfs.pull.scan_settings import disk_figures

# fields of an answer that are compared. The last three reach no consumer: the broker counts them, and answers each exception alike.
# suggestPullingFromSlave reaches a consumer only if slaveReadEnable is set (PullMessageProcessor.processRequest)
FIELDS = (
    "status",
    "nextBeginOffset",
    "messages",
    "minOffset",
    "maxOffset",
    "suggestPullingFromSlave",
    "exceptionClass",
    "diskFallBehind",
    "msgCount4Commercial",
)
_STATUS, _NEXT, _MESSAGES, _MIN, _MAX, _SUGGESTS, _EXCEPTION, _FALL_BEHIND, _COMMERCIAL = range(len(FIELDS))
_THROWS = -1
_NO_ANSWER = -2
_NOT_RECORDED = -(2**63)
_EXCEPTION_NAMES = sorted(set(gm.EXCEPTIONS.values()))
# rows of counts: `field` is one of FIELDS, ANY for all of them, SEEN for those that clients see, or NULL for the number of pulls answered;
# `rule` is NULL for all pulls, and NO_RULE if no rule alone makes the difference
ANY = "any"
SEEN = "seen"
NO_RULE = ""
SCHEMA = (
    "rule STRING, field STRING, before STRING, after STRING, pulls BIGINT, "
    "examples ARRAY<STRUCT<isUnseen: BOOLEAN, seq: BIGINT, text: STRING>>"
)
_ARROW = arrow_of(SCHEMA)
EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A rule set that answers.

    Attributes:
        answering: what the kernel needs, with the rules of this side.
        min_offsets: minOffset by (topic, queueId), of the queues for which it is not that of the tables.
    """

    answering: Answering
    min_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def parts(self, found: RequestsWithEntries) -> list[PackedPart]:
        """The packed requests in parts, one part for each kernel call, with the minOffset of this side."""
        packed = replace(found.packed, matrix=found.packed.matrix.copy())
        if (own := self.min_offsets.get((packed.topic, packed.queue_id))) is not None:
            packed.matrix[:, Col.MIN_OFFSET] = own
        return list(parts_of(self.answering, replace(found, packed=packed)))

    def parts_key(self, packed: Packed) -> Hashable:
        """A key for the parts of packed requests; sides with equal keys have equal parts."""
        filters = self.answering.rules
        return self.min_offsets.get((packed.topic, packed.queue_id)), None if filters is None else filters.retry


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsOfAnswers:
    """Answers as numbers that can be compared.

    Attributes:
        values: array of shape (answers, FIELDS); status is negative for an exception, messages is their number.
        taken: positions of the messages in the block, answer after answer.
    """

    values: NDArray[np.int64]
    taken: NDArray[np.int32]

    def at(self, rows: NDArray[np.int64]) -> FieldsOfAnswers:
        """Some of the answers, by their numbers in ascending order."""
        is_kept = np.zeros(len(self.values), np.bool_)
        is_kept[rows] = True
        return FieldsOfAnswers(values=self.values[rows], taken=self.taken[np.repeat(is_kept, self.counts)])

    @property
    def statuses(self) -> NDArray[np.int64]:
        """The status of each answer; negative for an exception and for no answer."""
        return self.values[:, _STATUS]

    @property
    def next_offsets(self) -> NDArray[np.int64]:
        """nextBeginOffset of each answer."""
        return self.values[:, _NEXT]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of messages of each answer."""
        return np.maximum(self.values[:, _MESSAGES], 0)


def seen_fields(*, suggests_slave: bool) -> int:
    """The number of FIELDS, from the first on, that a client sees; `suggests_slave` is the broker's slaveReadEnable."""
    return _EXCEPTION if suggests_slave else _SUGGESTS


def _causes_of(causes: Mapping[str, NDArray[np.bool_]], answers: int) -> NDArray[np.int64]:
    """The number of causes found so far for each of `answers` answers."""
    found = np.zeros(answers, np.int64)
    for fields in causes.values():
        found += _with_any(fields)
    return found


def _with_any(fields: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each answer, whether any of its fields is set."""
    return np.asarray(fields.any(axis=1), np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """What one rule does to answers that several rules change, or no rule alone; arrays of shape (answers, FIELDS).

    Attributes:
        done: the fields that the rule changes in the earlier version's answers.
        final: the fields that have the later version's value with this rule alone.
        undone: the fields of the later version's answers that change without the rule.
    """

    done: NDArray[np.bool_]
    final: NDArray[np.bool_]
    undone: NDArray[np.bool_]


def _without_hidden(causes: Sequence[_Cause]) -> list[NDArray[np.bool_]]:
    """The fields that each rule changes.

    A rule is hidden by others, and left out, if the later version's answer is the same without it and no field that it changes gets
    its final value. If all rules are hidden, all are kept.
    """
    shown = [_with_any(one.undone | (one.done & one.final))[:, None] for one in causes]
    kept = [one.done & is_shown for one, is_shown in zip(causes, shown, strict=True)]
    remains = np.logical_or.reduce([_with_any(fields) for fields in kept])[:, None]
    return [np.where(remains, fields, one.done | one.undone) for fields, one in zip(kept, causes, strict=True)]


def kernel_answers(side: Side, part: PackedPart, rows: NDArray[np.int64]) -> gm.Answers:
    """The kernel's answers to the requests `rows` of a part, by the rules of a side."""
    requests = np.ascontiguousarray(part.packed.matrix[rows][:, KERNEL_COLUMNS])
    return gm.get_message(requests, side.answering.caps, part.block, part.codes, side.answering.log)


def fields_of(side: Side, part: PackedPart, rows: NDArray[np.int64], found: gm.Answers) -> FieldsOfAnswers:
    """The kernel's answers to the requests `rows` of a part as fields; a refused request counts as one without an answer."""
    answering, matrix, columns = side.answering, part.packed.matrix[rows], found.columns
    disk = disk_figures(columns, matrix[:, Col.LOG_END], int(answering.caps[gm.MEMORY]), answering.pull_rules)
    values = np.zeros((len(rows), len(FIELDS)), np.int64)
    values[:, _STATUS] = np.maximum(columns[:, gm.STATUS], _THROWS)
    values[:, _NEXT], values[:, _MESSAGES] = columns[:, gm.NEXT], columns[:, gm.COUNT]
    values[:, _MIN], values[:, _MAX] = matrix[:, Col.MIN_OFFSET], matrix[:, Col.MAX_OFFSET]
    values[:, _SUGGESTS] = disk.suggests_slave
    values[:, _FALL_BEHIND] = np.where(disk.is_recorded & answering.disk_fall_recorded, disk.fall_behind, _NOT_RECORDED)
    values[:, _COMMERCIAL] = columns[:, gm.COMMERCIAL]
    for code, name in gm.EXCEPTIONS.items():
        values[columns[:, gm.STATUS] == code, _EXCEPTION] = _EXCEPTION_NAMES.index(name)
    values[part.refused[rows] | (not answering.readable)] = _NO_ANSWER
    return FieldsOfAnswers(values=values, taken=found.taken)


def differing(one: FieldsOfAnswers, other: FieldsOfAnswers) -> NDArray[np.bool_]:
    """Which fields of the answers to the same requests differ, as an array of shape (answers, FIELDS).

    The fields after status are compared only if both answers have a status, and exceptionClass only if both are exceptions.
    """
    out: NDArray[np.bool_] = one.values != other.values
    counts, counts_other = one.counts, other.counts
    alike = np.flatnonzero((counts == counts_other) & (counts > 0))
    lengths = counts[alike]
    rows, inside = np.repeat(alike, lengths), np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    firsts, firsts_other = np.cumsum(counts) - counts, np.cumsum(counts_other) - counts_other
    moved = one.taken[firsts[rows] + inside] != other.taken[firsts_other[rows] + inside]
    out[rows[moved], _MESSAGES] = True
    answered = [side.values[:, _STATUS] >= 0 for side in (one, other)]
    out[~(answered[0] & answered[1]), _NEXT:] = False
    both_throw = (one.values[:, _STATUS] == _THROWS) & (other.values[:, _STATUS] == _THROWS)
    out[:, _EXCEPTION] = both_throw & (one.values[:, _EXCEPTION] != other.values[:, _EXCEPTION])
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The rule sets of two versions, and those between them.

    Attributes:
        seen: number of FIELDS, from the first on, that a client sees.
        earlier: the rules of the earlier version.
        later: the rules of the later version.
        with_one: by the name of a rule: the earlier version with this rule of the later one.
        without_one: by the name of a rule: the later version with this rule of the earlier one.
    """

    seen: int
    earlier: Side
    later: Side
    with_one: Mapping[str, Side]
    without_one: Mapping[str, Side]


@dataclass(slots=True)
class _Answers:
    """The answers of any side to some requests; sides with the same limits of the scan share a call of the kernel.

    Attributes:
        parts: the part of the requests, by `Side.parts_key`.
        rows: numbers of the requests in the part.
    """

    parts: Mapping[Hashable, PackedPart]
    rows: NDArray[np.int64]
    _found: dict[Hashable, gm.Answers] = field(default_factory=dict)

    def part_of(self, side: Side) -> PackedPart:
        """The part of a side."""
        packed = next(iter(self.parts.values())).packed
        return self.parts[side.parts_key(packed)]

    def of(self, side: Side) -> FieldsOfAnswers:
        """The answers of a side."""
        part = self.part_of(side)
        key = side.parts_key(part.packed), side.answering.caps.tobytes()
        if key not in self._found:
            self._found[key] = kernel_answers(side, part, self.rows)
        return fields_of(side, part, self.rows, self._found[key])

    def at(self, numbers: NDArray[np.int64]) -> _Answers:
        """The answers to some of the requests."""
        return _Answers(self.parts, self.rows[numbers])


@dataclass(slots=True)
class Tally:
    """Counts of the pulls whose answers differ, with examples; `add` counts more pulls."""

    counts: Counter[tuple[str | None, str | None, str | None, str | None]] = field(default_factory=Counter)
    examples: dict[str, list[tuple[bool, int, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, sides: Sides, found: RequestsWithEntries) -> None:
        """Answer packed requests by both versions, and count the answers that differ by rule and field."""
        parts: dict[Hashable, list[PackedPart]] = {}
        for side in (sides.earlier, sides.later, *sides.with_one.values(), *sides.without_one.values()):
            key = side.parts_key(found.packed)
            if key not in parts:
                parts[key] = side.parts(found)
        for place, part in enumerate(parts[sides.earlier.parts_key(found.packed)]):
            of_key = {key: those[place] for key, those in parts.items()}
            for rows in slices_of(sides.earlier.answering, part):
                self._add_slice(sides, _Answers(of_key, np.arange(rows.start, rows.stop)))

    def _add_slice(self, sides: Sides, every: _Answers) -> None:
        before, after = every.of(sides.earlier), every.of(sides.later)
        fields = differing(before, after)
        differ = np.flatnonzero(_with_any(fields))
        self.counts[None, None, None, None] += len(every.rows)
        if not len(differ):
            return
        some = every.at(differ)
        fields, before, after = fields[differ], before.at(differ), after.at(differ)
        with_one = {name: some.of(side) for name, side in sides.with_one.items()}
        causes = {name: differing(before, one) for name, one in with_one.items()}
        unclear = np.flatnonzero(_causes_of(causes, len(differ)) != 1)
        if len(unclear):
            alone, few = after.at(unclear), some.at(unclear)
            found = [
                _Cause(
                    done=causes[name][unclear],
                    final=~differing(one.at(unclear), alone),
                    undone=differing(alone, few.of(sides.without_one[name])),
                )
                for name, one in with_one.items()
            ]
            for name, by_rule in zip(with_one, _without_hidden(found), strict=True):
                causes[name][unclear] = by_rule
        causes[NO_RULE] = fields & (_causes_of(causes, len(differ)) == 0)[:, None]
        pulls = _Pulls(some.part_of(sides.earlier), some.rows, before, after, sides.seen)
        self._count(None, fields, pulls)
        for name, by_rule in causes.items():
            if by_rule.any():
                self._count(name, by_rule, pulls)
                self._keep_examples(name, by_rule, pulls)

    def _count(self, rule: str | None, fields: NDArray[np.bool_], pulls: _Pulls) -> None:
        for number, name in enumerate(FIELDS):
            self.counts[rule, name, None, None] += int(fields[:, number].sum())
        self.counts[rule, ANY, None, None] += int(fields.any(axis=1).sum())
        seen = _with_any(fields[:, : pulls.seen])
        statuses = np.stack([pulls.before.values[seen, _STATUS], pulls.after.values[seen, _STATUS]], axis=1)
        different, counts = np.unique(statuses, axis=0, return_counts=True)
        for (one, other), count in zip(different.tolist(), counts.tolist(), strict=True):
            self.counts[rule, SEEN, status_name(one), status_name(other)] += count

    def _keep_examples(self, rule: str, fields: NDArray[np.bool_], pulls: _Pulls) -> None:
        is_unseen = ~_with_any(fields[:, : pulls.seen])
        seqs = pulls.part.packed.matrix[pulls.rows, Col.SEQ]
        some = np.flatnonzero(_with_any(fields))
        first = some[np.lexsort((seqs[some], is_unseen[some]))][:EXAMPLES].tolist()
        added = [(bool(is_unseen[one]), int(seqs[one]), pulls.text(one)) for one in first]
        self.examples[rule] = sorted(self.examples[rule] + added)[:EXAMPLES]

    def batch(self) -> pa.RecordBatch:
        """The counts as rows of SCHEMA."""
        rows = []
        for (rule, name, before, after), pulls in self.counts.items():
            kept = self.examples[rule] if rule is not None and name == ANY else []
            examples = [dict(zip(("isUnseen", "seq", "text"), one, strict=True)) for one in kept]
            rows.append({"rule": rule, "field": name, "before": before, "after": after, "pulls": pulls, "examples": examples})
        return pa.RecordBatch.from_pylist(rows, schema=_ARROW)


@dataclass(frozen=True, slots=True)
class _Pulls:
    """Pulls of a part, and the answers of both versions to them; a client sees the first `seen` FIELDS of an answer."""

    part: PackedPart
    rows: NDArray[np.int64]
    before: FieldsOfAnswers
    after: FieldsOfAnswers
    seen: int

    def text(self, number: int) -> str:
        """A pull and both its answers as JSON."""
        packed, row = self.part.packed, self.part.packed.matrix[self.rows[number]]
        request = {
            "group": packed.groups[row[Col.GROUP]] if packed.groups else None,
            "topic": packed.topic,
            "queueId": packed.queue_id,
            "offset": int(row[Col.OFFSET]),
            "maxMsgNums": int(row[Col.MAX_MSG_NUMS]),
        }
        answers = {name: _answer(side.values[number]) for name, side in (("before", self.before), ("after", self.after))}
        return json.dumps({"request": request} | answers, ensure_ascii=False)


def status_name(number: int) -> str:
    """The name of a status of `FieldsOfAnswers`."""
    if number >= 0:
        return GetMessageStatus(number).name
    return "exception" if number == _THROWS else "null"


def _answer(values: NDArray[np.int64]) -> dict[str, Any]:
    """The fields of an answer by name. An exception has only its status and class, a missing answer only its status."""
    numbers = dict(zip(FIELDS, values.tolist(), strict=True))
    status = numbers.pop("status")
    exception = numbers.pop("exceptionClass")
    if status < 0:
        return {"status": status_name(status)} | ({"exceptionClass": _EXCEPTION_NAMES[exception]} if status == _THROWS else {})
    numbers["suggestPullingFromSlave"] = bool(numbers["suggestPullingFromSlave"])
    numbers["diskFallBehind"] = None if numbers["diskFallBehind"] == _NOT_RECORDED else numbers["diskFallBehind"]
    return {"status": status_name(status), **numbers}


def compared_rows(sides: Sides, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """Compare the answers to packed requests, in which each key's entries row precedes its requests; yield rows of SCHEMA."""
    tally = Tally()
    for found in requests_with_entries(sides.earlier.answering, rows):
        tally.add(sides, found)
    if tally.counts:
        yield tally.batch()
