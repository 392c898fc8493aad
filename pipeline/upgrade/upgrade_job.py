"""`pullsim upgrade`: what another version of the broker changes for a store and its traffic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from pyspark.sql import functions as F

from pipeline.capture.captured_pulls import captured_pulls
from pipeline.capture.driver_captures import captured_pulls_here
from pipeline.capture.recorded_minimum import from_deleted_files
from pipeline.embedded.relations import DriverRelations, Relations, SparkRelations
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.replay import At
from pipeline.requests.request_file import RequestFile, scan_file
from pipeline.schema import tables as t
from pipeline.settings.settings import RULES_VERSION, BrokerSettings, load_catalogue
from pipeline.upgrade.asked_pulls import Source, asked_pulls
from pipeline.upgrade.changed_settings import ChangedSetting, changed_settings, new_settings
from pipeline.upgrade.compared_pulls import ComparedPulls, RuleSets
from pipeline.upgrade.moved_groups import MovedGroups, moved_groups
from pipeline.upgrade.started_files import ComparedStarts, compare_starts
from store_format.broker_version import BrokerVersion
from udfs.broker.version_changes import LOST_STATES, LostState
from udfs.version_rules import DECODES_BY_MAGIC_CODE, rules_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """State that a return to the earlier version loses; `messages` is the number of messages in its topic, None if no message holds it."""

    state: LostState
    messages: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What the step from one version to another changes for a broker.

    Attributes:
        broker: name of the broker.
        earlier: version from which it is upgraded.
        later: version to which it is upgraded.
        imported: version that the import found in the store's files or in settings; None if it found none.
        source: the origin of the pulls.
        at: which part of the store the pulls see.
        rules: names of all rules that differ between the versions.
        pulls: the answers to pulls.
        groups: the offsets at which groups go on.
        settings: settings that differ.
        new_settings: number of settings that only the later version has.
        knows_settings: whether the import, a file or an option gave settings of the broker.
        starts: the store as both versions leave it; None if no store was given.
        lost: what a return to the earlier version loses.
        deleted: captured pulls that were answered from files that are deleted now.
        odd_entries: entries whose bytes are no record, if the versions decode such bytes in different ways; else 0.
    """

    broker: str
    earlier: BrokerVersion
    later: BrokerVersion
    imported: BrokerVersion | None
    source: Source
    at: At
    rules: tuple[str, ...]
    pulls: ComparedPulls
    groups: MovedGroups
    settings: list[ChangedSetting]
    new_settings: int
    knows_settings: bool
    starts: ComparedStarts | None
    lost: list[Lost]
    deleted: int
    odd_entries: int


def run_upgrade(
    broker: OpenedBroker,
    requests_path: str | None,
    store: str | None,
    *,
    versions: tuple[BrokerVersion, BrokerVersion],
    settings_of: Callable[[RequestFile | None], BrokerSettings],
    at: At | None,
    progress: Callable[[str], None],
) -> Upgrade:
    """Compare two versions on the store and the pulls of a broker.

    Args:
        broker: the broker whose store answers.
        requests_path: path of a request file; None for the captured pulls, or for made ones if none were captured.
        store: directory of the store; None to leave its start out.
        versions: the earlier and the later version.
        settings_of: returns the broker's settings for a request file, whose header may have a configuration.
        at: which part of the store the pulls see; None for the default of their source.
        progress: called with a text at each step.

    Raises:
        RequestError: a line is no request.
        LakeError: the store was imported as found.
        StoreError: `store` is no store.
    """
    earlier, later = versions
    starts = None
    file = None if requests_path is None else scan_file(requests_path)
    before, after = (settings_of(file).under(version) for version in versions)
    if store is not None:
        progress(f"starting {store} by the rules of both versions")
        starts = compare_starts(store, before, after)
    asked = asked_pulls(broker, file, before, at)
    progress("answering by the rules of both versions")
    rules = RuleSets.of(broker, before.pull_settings(), after.pull_settings())
    pulls, deleted = asked.compared(rules), 0
    if asked.source is Source.CAPTURED:
        with _captured(broker) as relations:
            _name_captured(relations, pulls)
            deleted = from_deleted_files(relations)
    progress("finding where groups go on")
    names = rules_between(earlier, later)
    imported = broker.properties().get(RULES_VERSION)
    return Upgrade(
        broker=broker.name,
        earlier=earlier,
        later=later,
        imported=None if imported is None else BrokerVersion(imported),
        source=asked.source,
        at=asked.at,
        rules=names,
        pulls=pulls,
        groups=moved_groups(rules, broker),
        settings=changed_settings(before, earlier, later),
        new_settings=new_settings(earlier, later),
        knows_settings=any(before.explicit(name) is not None for name in load_catalogue(earlier)),
        starts=starts,
        lost=_lost(broker, earlier, later),
        deleted=deleted,
        odd_entries=_odd_entries(broker) if DECODES_BY_MAGIC_CODE in names else 0,
    )


def _captured(broker: OpenedBroker) -> AbstractContextManager[Relations]:
    """The captured `pulls` of the broker, and its `queues`."""
    if not broker.lake.has_session:
        return nullcontext(DriverRelations(pulls=captured_pulls_here(broker), queues=broker.rows(t.QUEUE)))
    return SparkRelations(broker.lake.spark, pulls=captured_pulls(broker), queues=broker.table(t.QUEUE))


def _name_captured(captured: Relations, pulls: ComparedPulls) -> None:
    """Add to each example the requestId of its captured pull."""
    examples = [example for rule in pulls.rules for example in rule.examples]
    if not examples:
        return
    numbers = ", ".join(str(example["seq"]) for example in examples)
    ids = {row["seq"]: row["requestId"] for row in captured.rows(f"SELECT seq, requestId FROM {{pulls}} WHERE seq IN ({numbers})")}
    for example in examples:
        example["requestId"] = ids[example["seq"]]


def _lost(broker: OpenedBroker, earlier: BrokerVersion, later: BrokerVersion) -> list[Lost]:
    states = [one for one in LOST_STATES if earlier.place < one.since.place <= later.place]
    if not states:
        return []
    queues = broker.rows(t.QUEUE).select(["topic", "minOffset", "maxOffset"]).to_pylist()

    def messages(prefix: str) -> int:
        return sum(row["maxOffset"] - row["minOffset"] for row in queues if row["topic"].startswith(prefix))

    return [Lost(state=one, messages=messages(one.topic) if one.topic else None) for one in states]


def _odd_entries(broker: OpenedBroker) -> int:
    """The entries that pulls reach and whose bytes are no record; a queue may begin with entries of deleted messages."""
    if not broker.lake.has_session:
        least = {(row["topic"], row["queueId"]): row["minOffset"] for row in broker.rows(t.QUEUE).to_pylist()}
        segments_here = broker.rows_with(t.CONSUME_QUEUE_SEGMENT, {}, ["topic", "queueId", "firstQueueOffset", "oddEntries"])
        rows = (row for row in segments_here.to_pylist() if (row["topic"], row["queueId"]) in least)
        return sum(
            position + row["firstQueueOffset"] >= least[row["topic"], row["queueId"]] for row in rows for position in row["oddEntries"]
        )
    segments = broker.table(t.CONSUME_QUEUE_SEGMENT).join(
        broker.table(t.QUEUE).select("topic", "queueId", "minOffset"), ["topic", "queueId"]
    )
    reached = F.size(F.filter("oddEntries", lambda position: position + F.col("firstQueueOffset") >= F.col("minOffset")))
    (row,) = segments.agg(F.coalesce(F.sum(reached), F.lit(0)).alias("count")).collect()
    return int(row["count"])
