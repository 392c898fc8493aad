"""The differences between the versions on the golden traces, counted by rule, against the counts that were found on the real brokers.

The expected numbers stand in the table of golden5/README.md. Its rule 6 is about three stores that 5.5.0 recovers differently; their pulls
count for no other rule.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.replay.kernel_batches import requests_with_entries
from pipeline.settings.settings import BrokerSettings, load_catalogue
from pipeline.upgrade.compared_batches import ANY, NO_RULE, SEEN, Tally
from pipeline.upgrade.rule_sets import sides_between
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion
from tests.models.without_spark import NUMBERS, Tables, blocks_of, tables_of
from tests.runs.replaying import all_lines
from tests.runs.sampling import slow_proof
from tests.truth.golden import golden_lines
from tests.truth.golden5 import needs_golden5, trace, trace_names
from udfs.version_rules import MIN_BY_SEARCH

RECOVERED_OTHERWISE = {"torn-bad-magic-old-cq-missing", "torn-cq-behind", "torn-zero-middle"}
EARLIER = DEFAULT_VERSION.value
PULLS = 9967
# no client sees these; the suggestion of a slave is seen where slaveReadEnable is set
UNSEEN = ("exceptionClass", "diskFallBehind", "msgCount4Commercial")
SUGGESTED = "suggestPullingFromSlave"


def of_version(config: dict[str, Any], version: str) -> dict[str, Any]:
    """The settings of a trace that a version knows, with that version."""
    known = load_catalogue(BrokerVersion(version))
    return {name: value for name, value in config.items() if name in known or name == "bloom"} | {"rulesVersion": version}


@cache
def tables(store: Path, settings: tuple[str, ...]) -> Tables:
    return tables_of(store, settings)


def tables_under(store: Path, config: dict[str, Any]) -> Tables:
    """The tables of a store that a broker with these settings has started."""
    given = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items() if name != "bloom"]
    return tables(store, tuple(given))


def counted(to: str, name: str, stores: Path, *, suggests_slave: bool = True) -> tuple[str, Counter[Any]]:
    """The store of a trace, and the counts of the differences between both versions on the tables of the earlier version."""
    header, *lines = all_lines(trace(to, name))
    earlier, later = (of_version(header["config"], version) for version in (EARLIER, to))
    store = stores / header["store"]
    before, after = tables_under(store, earlier), tables_under(store, later)
    suggests = [f"slaveReadEnable={str(suggests_slave).lower()}"]
    settings = [BrokerSettings.from_sources(header=config, options=suggests).pull_settings() for config in (earlier, later)]
    other_min = {
        queue: after.bounds[queue][0]
        for queue, both in before.bounds.items()
        if queue in after.bounds and after.bounds[queue][1] == both[1]
    }
    tally = Tally()
    for answering, rows in blocks_of(before, lines, earlier):
        sides = sides_between(answering, before.store.entries_a_file, settings[0], settings[1], ({}, other_min))
        for found in requests_with_entries(answering, iter(rows)):
            tally.add(sides, found)
    return header["store"], tally.counts


def summed(to: str, stores: Path) -> tuple[Counter[Any], Counter[Any]]:
    """The counts over all traces, and over those on stores that both versions recover alike."""
    every: Counter[Any] = Counter()
    alike: Counter[Any] = Counter()
    for name in trace_names(to):
        store, counts = counted(to, name, stores)
        for (rule, field, *_), pulls in counts.items():
            every[rule, field] += pulls
            alike[rule, field] += 0 if store in RECOVERED_OTHERWISE else pulls
    return every, alike


@slow_proof  # test_upgrade_command.py has the rule, and the test below counts its differences among those to 5.5.0
@needs_golden5
def test_all_differences_to_4_9_8_are_of_one_rule(stores: Path) -> None:
    every, _ = summed("4.9.8", stores)
    assert every[None, None] == PULLS
    assert every[None, ANY] == every[None, SEEN] == 413
    assert {rule for rule, _ in every} == {None, "overflow_badly_goes_to_max"}
    assert every["overflow_badly_goes_to_max", "nextBeginOffset"] == 413


@slow_proof
@needs_golden5
def test_differences_to_5_5_0_are_counted_by_rule(stores: Path) -> None:
    every, alike = summed("5.5.0", stores)
    assert every[None, None] == PULLS
    assert alike[NO_RULE, ANY] == 0
    assert {rule: alike[rule, ANY] for rule, _ in alike if rule} == {
        "overflow_badly_goes_to_max": 404,
        "overflow_one_records_zero": 542,
        "every_scan_records_fall_behind": 63,
        "size_per_count": 338,
        MIN_BY_SEARCH: 127,
        "lists_are_made_for_max_msg_nums": 60,
        "tag_type_matches_first": 10,
        "fullness_test_comes_first": 3053,
    }
    assert alike["fullness_test_comes_first", "suggestPullingFromSlave"] == 6
    # what the real brokers answered on the stores that both recover alike; two exceptions are of one rule, for whose verdicts the messages
    # themselves are needed
    differ, seen = recorded_differences()
    assert (differ["all"], seen["all"]) == (4662, 783)
    assert (alike[None, ANY], alike[None, SEEN]) == (differ["alike"] - 2, seen["alike"])


@needs_golden5
def test_a_suggested_slave_is_seen_with_slave_read_enable_only(stores: Path) -> None:
    name = "basic-exact"
    earlier = list(golden_lines("store", "traces", f"{name}.jsonl"))[1:]
    pairs = [[line["response"] for line in both] for both in zip(earlier, all_lines(trace("5.5.0", name))[1:], strict=True)]
    for left_out, suggests_slave in (((), True), ((SUGGESTED,), False)):
        _, counts = counted("5.5.0", name, stores, suggests_slave=suggests_slave)
        expected = sum(answer_of(one, *UNSEEN, *left_out) != answer_of(other, *UNSEEN, *left_out) for one, other in pairs)
        assert sum(pulls for (rule, field, *_), pulls in counts.items() if (rule, field) == (None, SEEN)) == expected


def answer_of(response: dict[str, Any] | None, *left_out: str) -> Any:
    """A recorded answer without some fields, with its messages as their sizes; of an exception only its class."""
    if response is None or "exception" in response:
        return response and (None if "exceptionClass" in left_out else response["exception"])
    numbers = {name: response[name] for name in NUMBERS if name not in left_out}
    return numbers, [message["storeSize"] for message in response["messages"]]


def recorded_differences() -> tuple[Counter[str], Counter[str]]:
    """The recorded answers of both versions that differ, and those that differ in what a client sees; by "all" and "alike" stores."""
    differ: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for name in trace_names("5.5.0"):
        header, *later = all_lines(trace("5.5.0", name))
        earlier = list(golden_lines("store", "traces", f"{name}.jsonl"))[1:]
        places = ["all"] if header["store"] in RECOVERED_OTHERWISE else ["all", "alike"]
        for one, other in zip(earlier, later, strict=True):
            assert one["request"] == other["request"]
            for place in places:
                differ[place] += answer_of(one["response"]) != answer_of(other["response"])
                seen[place] += answer_of(one["response"], *UNSEEN) != answer_of(other["response"], *UNSEEN)
    return differ, seen
