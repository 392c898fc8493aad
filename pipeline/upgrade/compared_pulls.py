"""Answers the same pulls by the rules of two versions, in one set of Spark jobs or on the driver, and counts what differs by rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.driver_replay import requests_after_entries_here
from pipeline.replay.entry_colocation import Row, by_rows
from pipeline.replay.kernel_batches import Answering, requests_with_entries
from pipeline.replay.replay import At, RequestProfile, broker_store, requests_after_entries
from pipeline.settings.settings import PullSettings
from pipeline.upgrade.compared_batches import ANY, EXAMPLES, FIELDS, NO_RULE, SCHEMA, SEEN, Sides, Tally, compared_rows, seen_fields
from pipeline.upgrade.min_offsets import min_offsets_under
from pipeline.upgrade.rule_sets import MinOffsets, RuledSettings, sides_between
from store_format.broker_version import BrokerVersion

# rule sets, rows of packed requests after their entries -> the rows that are made from them
Make = Callable[[Sides, Iterator[Row]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSets:
    """The settings of a broker under the rules of two versions, and minOffset of the queues for which a version finds another one.

    Attributes:
        earlier: settings with the rules of the earlier version.
        later: settings with the rules of the later version.
        min_offsets: for each version, minOffset by (topic, queueId) of the queues for which it is not that of the tables.
    """

    earlier: PullSettings
    later: PullSettings
    min_offsets: tuple[MinOffsets, MinOffsets]

    @classmethod
    def of(cls, broker: OpenedBroker, earlier: PullSettings, later: PullSettings) -> RuleSets:
        """The rule sets for a broker's store."""
        versions = (BrokerVersion(one.rules_version) for one in (earlier, later))
        first, second = (min_offsets_under(broker, version) for version in versions)
        return cls(earlier=earlier, later=later, min_offsets=(first, second))

    def apply(self, broker: OpenedBroker, requests: DataFrame, make: Make, schema: str, *, at: At, profile: RequestProfile) -> DataFrame:
        """The rows that `make` makes from the packed requests and their entries under both rule sets.

        Args:
            broker: the broker whose store answers.
            requests: as for `replay`.
            make: called in the tasks.
            schema: of the rows that `make` makes.
            at: as for `replay`.
            profile: of the requests.
        """
        both = self._both
        parts = requests_after_entries(broker, requests, at=at, settings=both, with_entries=False, profile=profile.under(both))
        frames = [rows.mapInArrow(partial(by_rows, partial(make, self._sides(broker, answering))), schema) for answering, rows in parts]
        return reduce(DataFrame.unionByName, frames)

    def apply_here(self, broker: OpenedBroker, requests: pa.Table, *, at: At) -> Iterator[tuple[Sides, Iterator[Row]]]:
        """The arguments of `make` for a few requests, on the driver; arguments as for `apply`.

        Raises:
            NoSessionError: only Spark can answer.
        """
        parts = requests_after_entries_here(broker, requests, at=at, settings=self._both, with_entries=False)
        return ((self._sides(broker, answering), rows) for answering, rows in parts)

    @property
    def _both(self) -> PullSettings:
        # the later version's window decides which entries come along; on retry topics, the earlier version filters by message in more cases
        return replace(RuledSettings.of(self.later), own_retry_rules=self.earlier.retry_rules)

    def _sides(self, broker: OpenedBroker, answering: Answering) -> Sides:
        return sides_between(answering, broker_store(broker).entries_a_file, self.earlier, self.later, self.min_offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """The pulls whose answers differ because of one rule.

    Attributes:
        rule: name of the rule; NO_RULE for pulls that no rule alone explains.
        pulls: number of pulls.
        seen: number of pulls that differ in what a client sees.
        outcomes: (status in the earlier version, status in the later one, pulls) of the pulls in `seen`.
        fields: number of pulls in which the rule changes each field.
        examples: the first pulls: seq, request, both answers.
    """

    rule: str
    pulls: int
    seen: int
    outcomes: list[tuple[str, str, int]]
    fields: dict[str, int]
    examples: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPulls:
    """How the answers to pulls differ between two versions; a pull may count for several rules.

    Attributes:
        pulls: number of pulls.
        differ: number of pulls with any difference.
        seen: number of pulls that differ in more than the fields `unseen`.
        unseen: the fields that no client sees.
        fields: number of pulls in which each field differs.
        rules: a count for each rule that makes a difference, the most visible one first.
    """

    pulls: int
    differ: int
    seen: int
    unseen: tuple[str, ...]
    fields: dict[str, int]
    rules: list[RuleCount]


def compare_pulls(rules: RuleSets, broker: OpenedBroker, requests: DataFrame, *, at: At, profile: RequestProfile) -> ComparedPulls:
    """Answer requests by both rule sets, and count the differences; arguments as for `RuleSets.apply`."""
    counts = rules.apply(broker, requests, compared_rows, SCHEMA, at=at, profile=profile)
    first = F.slice(F.sort_array(F.flatten(F.collect_list("examples"))), 1, EXAMPLES)
    rows = counts.groupBy("rule", "field", "before", "after").agg(F.sum("pulls").alias("pulls"), first.alias("examples")).collect()
    return _compared(rules, [row.asDict(recursive=True) for row in rows])


def compare_pulls_here(rules: RuleSets, broker: OpenedBroker, requests: Iterable[pa.Table], *, at: At) -> ComparedPulls:
    """As `compare_pulls`, on the driver, one table of requests after the other.

    Raises:
        NoSessionError: only Spark can answer.
    """
    tally = Tally()
    for some in requests:
        for sides, rows in rules.apply_here(broker, some, at=at):
            for found in requests_with_entries(sides.earlier.answering, rows):
                tally.add(sides, found)
    return _compared(rules, tally.batch().to_pylist())


def _compared(rules: RuleSets, rows: list[Row]) -> ComparedPulls:
    of_all = [row for row in rows if row["rule"] is None]
    names = sorted({row["rule"] for row in rows if row["rule"] is not None})
    found = [_rule_count(name, [row for row in rows if row["rule"] == name]) for name in names]
    return ComparedPulls(
        pulls=_sum(of_all, None),
        differ=_sum(of_all, ANY),
        seen=_sum(of_all, SEEN),
        unseen=FIELDS[seen_fields(suggests_slave=rules.later.slave_read_enable) :],
        fields=_fields(of_all),
        rules=sorted(found, key=lambda one: (one.rule == NO_RULE, -one.seen, -one.pulls, one.rule)),
    )


def _rule_count(name: str, rows: list[Row]) -> RuleCount:
    outcomes = [(row["before"], row["after"], row["pulls"]) for row in rows if row["field"] == SEEN]
    (examples,) = (row["examples"] for row in rows if row["field"] == ANY)
    return RuleCount(
        rule=name,
        pulls=_sum(rows, ANY),
        seen=_sum(rows, SEEN),
        outcomes=sorted(outcomes, key=lambda one: (-one[2], one)),
        fields=_fields(rows),
        examples=[{"seq": one["seq"], **json.loads(one["text"])} for one in examples],
    )


def _sum(rows: list[Row], field: str | None) -> int:
    return sum(row["pulls"] for row in rows if row["field"] == field)


def _fields(rows: list[Row]) -> dict[str, int]:
    counts = {name: _sum(rows, name) for name in FIELDS}
    return {name: pulls for name, pulls in counts.items() if pulls}
