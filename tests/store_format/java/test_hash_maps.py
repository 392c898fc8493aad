"""The order of keys in Java's hash maps, compared with what Java printed (data/java/MapOrders.java)."""

from __future__ import annotations

import json

import pytest

from store_format.java.hash_maps import concurrent_hash_map_order, hash_map_order
from tests.truth.places import DATA

PRINTED = (DATA / "java" / "map_orders.jsonl").read_text("utf-8").splitlines()


@pytest.mark.parametrize("line", PRINTED, ids=range(len(PRINTED)))
def test_keys_come_in_the_order_that_java_printed(line: str) -> None:
    case = json.loads(line)
    keys = case["put"]
    found = hash_map_order(keys) if case["map"] == "HashMap" else concurrent_hash_map_order(keys, case["capacity"])
    assert found == case["order"]


def test_the_printed_cases_cover_both_maps_and_their_growth() -> None:
    cases = [json.loads(line) for line in PRINTED]
    assert {(case["map"], len(case["put"]) * 4 > case["capacity"] * 3) for case in cases} >= {
        ("HashMap", False),
        ("HashMap", True),
        ("ConcurrentHashMap", False),
        ("ConcurrentHashMap", True),
    }
