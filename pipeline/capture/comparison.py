"""Compare the answers to captured pulls with the recorded answers, and classify each difference by the reason that the capture shows.

Rule: code, nextBeginOffset, minOffset, maxOffset and the SHA-256 of the body are compared. Pulls without a recorded answer are counted
separately.
Surprise: a capture does not show in which millisecond the broker read a queue. With --at recorded-max, answers are equal, unless a
message was dispatched between the broker's reads of maxOffset and of the entries. With --at request-time, some answers differ by messages
of these milliseconds: stored but not yet dispatched, or dispatched while the pull waited for a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.delta.delta_sql import literal
from pipeline.embedded.relations import Relations
from pipeline.replay.replay import At

_SHOWN_DIFFERENCES = 3
_FIELDS = ("code", "nextBeginOffset", "minOffset", "maxOffset", "bodySha256")

OVERTAKEN = "a message was dispatched between the broker's look at maxOffset and its look at the entries"
FILES_DELETED = "it was answered from files that the broker deleted before the store was taken"
NOT_DISPATCHED = "a message was stored but not dispatched yet, so the broker did not show it"
WAITED = "a message was dispatched while the pull waited for a worker, so the broker showed it"
CHECK_DIFFERS = "a check of topic, group or subscription had another result"
OTHER = "another reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An answer that differs: id of the request, recorded answer, our answer, names of the fields that differ."""

    request_id: str
    recorded: str
    ours: str
    fields: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedComparison:
    """Result of comparing the simulator's answers ("ours") with the recorded answers.

    Attributes:
        compared: number of pulls with both answers.
        held: number of compared pulls that were held.
        differ: number of compared pulls whose answers differ in any field.
        reasons: number of pulls that differ, by (whether held, reason).
        unanswered: number of pulls without an answer of ours, by error code.
        unrecorded: number of pulls that the broker never answered.
        first: the first differences.
    """

    compared: int
    held: int
    differ: int
    reasons: dict[tuple[bool, str], int]
    unanswered: dict[str, int]
    unrecorded: int
    first: list[Difference]

    def lines(self) -> list[str]:
        """The comparison as lines to print; the last line has the counts."""
        lines = []
        for one in self.first:
            lines += [f"{one.request_id} differs in {', '.join(one.fields)}", f"  recorded: {one.recorded}", f"  ours:     {one.ours}"]
        if self.unrecorded:
            lines.append(f"{self.unrecorded} never got an answer")
        lines += [f"{count} not answered: {error}" for error, count in sorted(self.unanswered.items())]
        for held, name in ((False, "answered at once"), (True, "held")):
            whole = self.held if held else self.compared - self.held
            differ = {reason: count for (one, reason), count in self.reasons.items() if one == held}
            if differ:
                lines.append(f"{name}: {sum(differ.values())} of {whole} differ ({sum(differ.values()) / whole:.2%})")
                lines += [f"  {count}: {reason}" for reason, count in sorted(differ.items(), key=lambda item: -item[1])]
        return [*lines, f"{self.compared} compared, {self.differ} differ"]


def compare_captured(judged: Relations) -> CapturedComparison:
    """The comparison of answers with the recorded answers of their pulls, from the relation `judged` that `judged_query` gives."""
    counts = {(row["kind"], bool(row["held"])): row["pulls"] for row in judged.rows(_COUNTED)}
    return _summed(counts, [_difference(row) for row in judged.rows(_SHOWN)])


def judged_query(at: At) -> str:
    """The query that compares each answer (`answered`, as `answered_captured` gives it) with that of its pull (`pulls`, with `seq`).

    Its column `kind` has the result: same, the reason of a difference, an error, or that no answer was recorded.
    """
    by_time = str(at == "request-time").upper()
    # a pull that a check refuses has no offsets in its answer
    ours = ", ".join(f"{name if name == 'code' else f'CASE WHEN refusedCode IS NULL THEN {name} END'} AS {name}" for name in _FIELDS)
    theirs = ", ".join(f"recorded{name[0].upper()}{name[1:]} AS theirs_{name}" for name in _FIELDS)
    # a body that was not captured completely is not compared
    whole = "(theirs_bodySha256 IS NOT NULL OR coalesce(recordedBodyLength, 0) = 0)"
    differing = ", ".join(
        f"CASE WHEN {whole if name == 'bodySha256' else 'TRUE'} AND NOT ({name} <=> theirs_{name}) THEN '{name}' END" for name in _FIELDS
    )
    reasons = {
        "theirs_code IS NULL": "'unrecorded'",
        "error IS NOT NULL": "concat('error ', error)",
        "size(fields) = 0": "'same'",
        "theirs_minOffset < minOffset": literal(FILES_DELETED),
        "theirs_minOffset IS NULL OR minOffset IS NULL": literal(CHECK_DIFFERS),
        "theirs_nextBeginOffset > theirs_maxOffset": literal(OVERTAKEN),
        f"{by_time} AND theirs_maxOffset < maxOffset": literal(NOT_DISPATCHED),
        f"{by_time} AND theirs_maxOffset > maxOffset": literal(WAITED),
    }
    kind = " ".join(f"WHEN {condition} THEN {reason}" for condition, reason in reasons.items())
    return f"""
        SELECT *, CASE {kind} ELSE {literal(OTHER)} END AS kind FROM (
          SELECT *, filter(array({differing}), name -> name IS NOT NULL) AS fields FROM
            (SELECT seq, requestId, error, {ours} FROM {{answered}}) JOIN
            (SELECT seq, held, recordedBodyLength, {theirs} FROM {{pulls}}) USING (seq))
    """


_REASONS = (OVERTAKEN, FILES_DELETED, NOT_DISPATCHED, WAITED, CHECK_DIFFERS, OTHER)
_COUNTED = "SELECT kind, held, count(*) AS pulls FROM {judged} GROUP BY kind, held"
_SHOWN = f"SELECT * FROM {{judged}} WHERE kind IN ({', '.join(map(literal, _REASONS))}) ORDER BY seq LIMIT {_SHOWN_DIFFERENCES}"


def _difference(row: dict[str, object]) -> Difference:
    theirs = {name: row[f"theirs_{name}"] for name in _FIELDS}
    ours = {name: row[name] for name in _FIELDS}
    fields = row["fields"]
    assert isinstance(fields, list)
    return Difference(request_id=str(row["requestId"]), recorded=str(theirs), ours=str(ours), fields=fields)


def _summed(counts: dict[tuple[str, bool], int], first: list[Difference]) -> CapturedComparison:
    reasons = {(held, kind): count for (kind, held), count in counts.items() if kind in _REASONS}
    compared = {key: count for key, count in counts.items() if key[0] == "same" or key[0] in _REASONS}
    errors: dict[str, int] = {}
    for (kind, _), count in counts.items():
        if kind.startswith("error "):
            errors[kind.removeprefix("error ")] = errors.get(kind.removeprefix("error "), 0) + count
    return CapturedComparison(
        compared=sum(compared.values()),
        held=sum(count for (_, held), count in compared.items() if held),
        differ=sum(reasons.values()),
        reasons=reasons,
        unanswered=errors,
        unrecorded=sum(count for (kind, _), count in counts.items() if kind == "unrecorded"),
        first=first,
    )
