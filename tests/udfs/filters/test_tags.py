"""Tags and TAG subscriptions against literal cases, golden data, and the compiled form."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs.both_forms import python_of
from tests.truth.places import DATA, GOLDEN
from udfs.filters import tags

CASES = json.loads((DATA / "rule_cases.json").read_text(encoding="utf-8"))
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the shared golden data is not here")

INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 40)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 40)


def golden_lines(*path: str) -> Iterator[dict[str, Any]]:
    with GOLDEN.joinpath(*path).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def codec(kind: str) -> list[dict[str, Any]]:
    rows = [row for row in golden_lines("broker", "codec.jsonl") if row["kind"] == kind]
    assert rows, kind
    return rows


@pytest.mark.parametrize(("tag", "code"), CASES["tags_code"])
def test_a_tags_code_is_the_string_hash_code_of_java(tag: str | None, code: int) -> None:
    assert tags.tags_code(tag) == code


@pytest.mark.parametrize(("units", "code"), [("\ud800", 55296), ("\udc00\ud800", 1801216)])
def test_half_a_surrogate_pair_has_a_tags_code_too(units: str, code: int) -> None:
    assert tags.tags_code(units) == code


@pytest.mark.parametrize(("subscription", "codes"), CASES["subscription"])
def test_a_subscription_asks_for_the_codes_of_its_tags(subscription: str | None, codes: list[int] | str | None) -> None:
    if codes == "refused":
        with pytest.raises(tags.SubscriptionParseError) as raised:
            tags.parse_subscription(subscription)
        assert raised.value.subscription == subscription
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301 - from a worker to the driver
    else:
        assert tags.parse_subscription(subscription) == (None if codes is None else frozenset(codes))


@pytest.mark.parametrize(("subscription", "code", "matches"), CASES["tag_matches"])
def test_an_entry_matches_by_the_low_half_of_its_tags_code(subscription: str | None, code: int | None, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(tags.SubscriptionParseError):
            tags.parse_subscription(subscription)
    else:
        assert tags.tag_matches(tags.parse_subscription(subscription), code) == matches


@given(st.frozensets(INTS), LONGS, st.integers(-(2**31), 2**31 - 1))
@settings(deadline=None)
def test_compiled_and_plain_tag_matching_agree(codes: frozenset[int], any_code: int, high: int) -> None:
    array = tags.code_array(codes)
    for code in (any_code, *((high << 32) + (wanted & 0xFFFFFFFF) for wanted in codes)):
        matches = tags.tag_matches(codes, code)
        assert tags.contains_code(array, code) == matches
        assert python_of(tags.contains_code)(array, code) == matches


@needs_golden
def test_tags_codes_equal_the_recorded_ones() -> None:
    rows = codec("hashCode")
    assert [tags.tags_code(row["s"]) for row in rows] == [row["tagsCode_single"] for row in rows]
    assert [tags.tags_code(row["s"]) for row in codec("tagsCodeNull")] == [0]


@needs_golden
@pytest.mark.parametrize("row", codec("buildSubscriptionData") if GOLDEN.is_dir() else [], ids=lambda r: repr(r["subString"]))
def test_subscriptions_parse_as_recorded(row: dict[str, Any]) -> None:
    if "error" in row["result"]:
        with pytest.raises(tags.SubscriptionParseError):
            tags.parse_subscription(row["subString"])
    elif row["result"]["subString"] == tags.SUB_ALL:
        assert tags.parse_subscription(row["subString"]) is None
    else:
        assert tags.parse_subscription(row["subString"]) == frozenset(row["result"]["codeSet"])
