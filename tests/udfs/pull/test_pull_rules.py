"""The variants of getMessage's rules, each on entries made by hand; expected values come from the findings in golden5 and the source."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from pipeline.settings.settings import BrokerSettings
from store_format.broker_version import BrokerVersion
from udfs.filters.retry_rules import RETRY_RULES, RetryRules
from udfs.pull import get_message as gm
from udfs.pull.codes import GetMessageStatus
from udfs.pull.pull_rules import PULL_RULES, PullRules
from udfs.pull.scan_settings import notes_a_position, scan_caps

OLD, NEW = "4.9.3", "5.5.0"
ENTRIES_A_FILE = 10


def pulled(
    version: str, offset: int, *, wanted: int = 8, count: int = 30, minimum: int = 0, log_end: int = 3000, **how: Any
) -> dict[str, Any]:
    """The answer to a pull over `count` entries of 100 bytes in files of ten.

    Args:
        version: of the broker.
        offset: of the pull; then come its maxMsgNums (`wanted`), the bounds of its queue, and the end of the log.
        how: verdicts, sizes, and range of the entries in the block (`held`); settings.
    """
    options = [f"{name}={value}" for name, value in how.items() if name not in {"verdicts", "held", "sizes"}]
    settings = BrokerSettings.from_sources(options=[f"rulesVersion={version}", *options]).pull_settings()
    caps = scan_caps(settings, ENTRIES_A_FILE)
    held = how.get("held", range(count))
    block = gm.Block(
        held.start,
        np.arange(held.start, held.stop, dtype=np.int64) * 100,
        np.array(how.get("sizes", [100] * len(held)), np.int32),
        np.zeros(len(held), np.int64),
        np.array(how.get("verdicts", []), np.uint8),
    )
    request = np.array([[offset, wanted, minimum, count, log_end, gm.NO_FILTER]], np.int64)
    log = gm.CommitLogFiles(np.array([0], np.int64), np.array([3000], np.int64), 3000)
    found = gm.get_message(request, caps, block, gm.TagCodes(np.array([0]), np.empty(0, np.int32)), log)
    row = found.columns[0]
    status = int(row[gm.STATUS])
    name = gm.EXCEPTIONS[status].rpartition(".")[2] if status < 0 else GetMessageStatus(status).name
    noted = int(row[gm.LAST_PHYSIC]) if notes_a_position(found.columns, settings.rules)[0] else None
    return {"status": name, "next": int(row[gm.NEXT]), "count": int(row[gm.COUNT]), "noted": noted, "commercial": int(row[gm.COMMERCIAL])}


def test_a_pull_above_max_goes_to_max_from_4_9_8_on() -> None:
    assert [pulled(version, 99)["next"] for version in (OLD, "4.9.8", NEW)] == [0, 30, 30]
    assert [pulled(version, 99, minimum=3)["next"] for version in (OLD, "4.9.8", NEW)] == [30, 30, 30]
    slave: dict[str, Any] = {"brokerRole": "SLAVE", "offsetCheckInSlave": "false"}
    assert [pulled(version, 99, **slave)["next"] for version in (OLD, "4.9.8", NEW)] == [99, 99, 99]


def test_the_entry_that_ends_the_batch_is_noted_only_before_5_5_0() -> None:
    assert [pulled(version, 0, wanted=2)["noted"] for version in (OLD, "4.9.8", NEW)] == [200, 200, 100]


def test_a_scan_without_a_file_notes_position_0_from_5_5_0_on() -> None:
    missing = [pulled(version, 5, held=range(10, 20)) for version in (OLD, NEW)]
    assert [(one["status"], one["next"], one["noted"]) for one in missing] == [
        ("OFFSET_FOUND_NULL", 10, None),
        ("OFFSET_FOUND_NULL", 10, 0),
    ]


@pytest.mark.parametrize(("wanted", "old", "new"), [(-1, "IllegalArgumentException", 1), (0, 1, 1), (2**31 - 1, "OutOfMemoryError", 10)])
def test_any_max_msg_nums_is_accepted_from_5_5_0_on(wanted: int, old: object, new: int) -> None:
    caps = {f"maxTransferCountOnMessageIn{where}": 99 for where in ("Memory", "Disk")}
    found = [pulled(version, 0, wanted=wanted, **caps) for version in (OLD, NEW)]
    assert [one["count"] if one["status"] == "FOUND" else one["status"] for one in found] == [old, new]


def test_one_count_is_4_kib_from_5_5_0_on() -> None:
    assert [PullRules.of(version).size_per_count for version in BrokerVersion] == [65536, 65536, 4096]


def test_the_window_is_a_setting_from_5_5_0_on() -> None:
    none = [gm.NOT_BY_COMMIT_LOG] * 30
    assert pulled(NEW, 0, verdicts=none, wanted=1, maxFilterMessageSize=61)["next"] == 4
    assert pulled(NEW, 0, verdicts=none, wanted=5, maxFilterMessageSize=61)["next"] == 5
    assert pulled(NEW, 3, verdicts=none, wanted=1, maxFilterMessageSize=0)["next"] == 4


def test_a_pull_reads_further_files_only_while_it_finds_nothing() -> None:
    none, third = [gm.NOT_BY_COMMIT_LOG] * 30, [gm.NOT_BY_COMMIT_LOG] * 20 + [gm.MATCHES] * 10
    one_file = [gm.NOT_BY_COMMIT_LOG] * 5 + [gm.MATCHES] * 25
    travel = {"travelCqFileNumWhenGetMessage": 3}
    assert (pulled(NEW, 0, verdicts=third)["next"], pulled(OLD, 0, verdicts=third)["next"]) == (10, 10)
    assert pulled(NEW, 0, verdicts=third, **travel)["count"] == 8
    assert pulled(NEW, 0, verdicts=one_file, wanted=32, **travel)["next"] == 10
    assert pulled(NEW, 0, verdicts=none, **travel)["next"] == 30
    # the window counts from the offset that was asked for
    assert pulled(NEW, 0, verdicts=none, wanted=1, maxFilterMessageSize=300, **travel)["next"] == 15
    missing = pulled(NEW, 0, verdicts=none[:10], held=range(10), **travel)
    assert (missing["status"], missing["next"]) == ("OFFSET_FOUND_NULL", 20)
    unread = pulled(NEW, 4, travelCqFileNumWhenGetMessage=0)
    assert (unread["status"], unread["next"], unread["noted"]) == ("NO_MATCHED_MESSAGE", 4, 0)


def test_the_sum_of_sizes_has_a_limit_of_at_least_100_bytes_from_5_5_0_on() -> None:
    assert pulled(NEW, 0, maxTotalMsgSize=350)["count"] == 3
    assert pulled(NEW, 0, maxTotalMsgSize=1)["count"] == 1


def test_an_entry_of_a_removed_file_can_end_a_full_batch_from_5_5_0_on() -> None:
    # entries 20 and 21 are taken, 22 lies past the log's end, so that 23 and 24 lie in a file known to be removed; 24 claims 500 bytes
    entries: dict[str, Any] = {"held": range(20, 25), "sizes": [100, 100, 100, 100, 500], "maxTransferBytesOnMessageInMemory": 350}
    found = [pulled(version, 20, count=25, log_end=2200, **entries) for version in (OLD, NEW)]
    assert [(one["status"], one["count"], one["next"], one["noted"]) for one in found] == [("FOUND", 2, 25, 2400), ("FOUND", 2, 24, 2300)]


def test_every_rule_names_its_source_and_has_a_variant_for_every_version() -> None:
    for rules, values in ((PULL_RULES, PullRules), (RETRY_RULES, RetryRules)):
        assert rules.keys() == {field.name for field in fields(values)}
        for rule in rules.values():
            assert rule.variants[0].since is BrokerVersion.V4_9_3
            assert all(variant.source and variant.meaning for variant in rule.variants)
            assert [variant.since.place for variant in rule.variants] == sorted({variant.since.place for variant in rule.variants})


def test_a_pop_retry_topic_names_its_group_before_the_plus() -> None:
    old, new = RetryRules.of(BrokerVersion.V4_9_3), RetryRules.of(BrokerVersion.V5_5_0)
    assert (old.group_of("g+t"), new.group_of("g+t"), new.group_of("g"), new.group_of("g+t+u")) == ("g+t", "g", "g", "g+t+u")
