"""Makes the rule sets of two versions for the kernel, and for each rule that differs, each version's set with the other version's rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Final

from pipeline.replay.kernel_batches import Answering
from pipeline.settings.settings import PullSettings
from pipeline.upgrade.compared_batches import Side, Sides, seen_fields
from store_format.broker_version import BrokerVersion
from udfs.filters.retry_rules import RETRY_RULES, RetryRules
from udfs.pull.pull_rules import PULL_RULES, PullRules
from udfs.version_rules import MIN_BY_SEARCH, rules_between

# rules that change no compared field of a scan: one adds fields which earlier versions lack, the other decides whether there is a scan
_OUTSIDE_THE_SCAN: Final = ("lists_queue_offsets", "light_queues_are_limited")
MinOffsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledSettings(PullSettings):
    """Settings that carry rules, which may be a mix of the rules of two versions."""

    own_rules: PullRules
    own_retry_rules: RetryRules

    @classmethod
    def of(cls, settings: PullSettings) -> RuledSettings:
        """A copy of the settings that carries the rules of their version."""
        values = {field.name: getattr(settings, field.name) for field in fields(PullSettings)}
        return cls(**values, own_rules=settings.rules, own_retry_rules=settings.retry_rules)

    @property
    def rules(self) -> PullRules:
        """The rules of getMessage."""
        return self.own_rules

    @property
    def retry_rules(self) -> RetryRules:
        """The rules of filterSupportRetry."""
        return self.own_retry_rules


def sides_between(
    answering: Answering,
    entries_a_file: int,
    earlier: PullSettings,
    later: PullSettings,
    min_offsets: tuple[MinOffsets, MinOffsets],
) -> Sides:
    """The sides of a comparison: one for each version, and two for each rule of PULL_RULES and RETRY_RULES that differs.

    Args:
        answering: gives the log, the files of segments, and the filters; caps and codes are made for each side.
        entries_a_file: entries of a full queue file.
        earlier: settings of the broker, with the rules of the earlier version.
        later: settings of the broker, with the rules of the later version.
        min_offsets: for each version, minOffset by (topic, queueId) of the queues for which it is not that of the tables.
    """
    side = partial(_side, answering, entries_a_file)
    with_one, without_one = {}, {}
    for name in rules_between(BrokerVersion(earlier.rules_version), BrokerVersion(later.rules_version)):
        if name == MIN_BY_SEARCH:
            with_one[name], without_one[name] = side(earlier, min_offsets[1]), side(later, min_offsets[0])
        elif name not in _OUTSIDE_THE_SCAN and (name in PULL_RULES or name in RETRY_RULES):
            with_one[name] = side(_with_rule(earlier, later, name), min_offsets[0])
            without_one[name] = side(_with_rule(later, earlier, name), min_offsets[1])
    return Sides(
        seen=seen_fields(suggests_slave=later.slave_read_enable),
        earlier=side(earlier, min_offsets[0]),
        later=side(later, min_offsets[1]),
        with_one=with_one,
        without_one=without_one,
    )


def _with_rule(settings: PullSettings, other: PullSettings, name: str) -> PullSettings:
    """The settings with the rule `name` of `other`."""
    ruled = RuledSettings.of(settings)
    if name in PULL_RULES:
        return replace(ruled, own_rules=replace(settings.rules, **{name: getattr(other.rules, name)}))
    return replace(ruled, own_retry_rules=replace(settings.retry_rules, **{name: getattr(other.retry_rules, name)}))


def _side(answering: Answering, entries_a_file: int, settings: PullSettings, min_offsets: MinOffsets) -> Side:
    ruled = Answering.of(settings, entries_a_file, answering.log, with_entries=False)
    rules = None if answering.rules is None else replace(answering.rules, retry=settings.retry_rules)
    return Side(answering=replace(ruled, rules=rules, segment_files=answering.segment_files), min_offsets=min_offsets)
