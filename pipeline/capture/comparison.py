"""Compare the answers to captured pulls with the recorded answers, and classify each difference by the reason that the capture shows.

Rule: code, nextBeginOffset, minOffset, maxOffset and the SHA-256 of the body are compared. Pulls without a recorded answer are counted
separately.
Surprise: a capture does not show in which millisecond the broker read a queue. With --at recorded-max, answers are equal, except where a
message was dispatched between the broker's reads of maxOffset and of the entries. With --at request-time, some answers differ by messages
of these milliseconds: stored but not yet dispatched, or dispatched while the pull waited for a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.replay.replay import At
from pipeline.tasks.computed_once import kept

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


def compare_captured(pulls: DataFrame, answered: DataFrame, *, at: At) -> CapturedComparison:
    """Compare each answer, a row of `answered_captured`, with the recorded answer of its pull, a row of pull_request with `seq`."""
    # a pull that a check refuses has no offsets in its answer
    ours = {name: F.when(F.col("refusedCode").isNull() | F.lit(name == "code"), F.col(name)) for name in _FIELDS}
    theirs = [F.col(f"recorded{name[0].upper()}{name[1:]}").alias(f"theirs_{name}") for name in _FIELDS]
    recorded = pulls.select("seq", "held", "recordedBodyLength", *theirs)
    rows = answered.select("seq", "requestId", "error", *[ours[name].alias(name) for name in _FIELDS]).join(recorded, "seq")
    # a body that was not captured completely is not compared
    whole = F.col("theirs_bodySha256").isNotNull() | (F.coalesce("recordedBodyLength", F.lit(0)) == 0)
    known = dict.fromkeys(_FIELDS, F.lit(True)) | {"bodySha256": whole}
    differs = F.filter(
        F.array(*[F.when(known[name] & ~F.col(name).eqNullSafe(F.col(f"theirs_{name}")), F.lit(name)) for name in _FIELDS]),
        lambda one: one.isNotNull(),
    )
    judged = rows.withColumn("fields", differs).withColumn(
        "kind",
        F.when(F.col("theirs_code").isNull(), "unrecorded")
        .when(F.col("error").isNotNull(), F.concat(F.lit("error "), "error"))
        .when(F.size("fields") == 0, "same")
        .otherwise(_reason(at)),
    )
    with kept(judged) as judged:
        counts = {(row["kind"], bool(row["held"])): row["count"] for row in judged.groupBy("kind", "held").count().collect()}
        shown = judged.where(F.col("kind").isin(list(_REASONS))).orderBy("seq").limit(_SHOWN_DIFFERENCES)
        first = [_difference(row.asDict(recursive=True)) for row in shown.collect()]
    return _summed(counts, first)


_REASONS = (OVERTAKEN, FILES_DELETED, NOT_DISPATCHED, WAITED, CHECK_DIFFERS, OTHER)


def _reason(at: At) -> Column:
    """The reason why an answer differs, from its offsets and the recorded offsets."""
    by_time = F.lit(at == "request-time")
    return (
        F.when(F.col("theirs_minOffset") < F.col("minOffset"), FILES_DELETED)
        .when(F.col("theirs_minOffset").isNull() | F.col("minOffset").isNull(), CHECK_DIFFERS)
        .when(F.col("theirs_nextBeginOffset") > F.col("theirs_maxOffset"), OVERTAKEN)
        .when(by_time & (F.col("theirs_maxOffset") < F.col("maxOffset")), NOT_DISPATCHED)
        .when(by_time & (F.col("theirs_maxOffset") > F.col("maxOffset")), WAITED)
        .otherwise(OTHER)
    )


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
