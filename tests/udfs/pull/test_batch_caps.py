"""Caps, window and memory of a pull, compared with literal cases, golden data, and the uncompiled functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from store_format.java import numbers as java_numbers
from tests.runs.both_forms import Form, in_both_forms, python_of
from tests.truth.places import DATA, GOLDEN
from udfs.pull import batch_caps

CASES = json.loads((DATA / "rule_cases.json").read_text(encoding="utf-8"))
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the shared golden data is not here")

INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 40)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 40)


def golden_lines(*path: str) -> Iterator[dict[str, Any]]:
    with GOLDEN.joinpath(*path).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def arrays(sizes: list[int], in_disk: list[bool]) -> tuple[Any, Any]:
    return np.array(sizes, np.int32), np.array(in_disk, np.bool_)


@in_both_forms
@pytest.mark.parametrize(("sizes", "in_disk", "max_msg_nums", "caps", "taken"), CASES["batch_cut"])
def test_a_pull_takes_messages_until_a_cap_is_reached(
    form: Form, sizes: list[int], in_disk: list[bool], max_msg_nums: int, caps: list[int], taken: int | None
) -> None:
    if taken is None:
        with pytest.raises(ValueError, match="maxMsgNums"):
            form(batch_caps.batch_cut)(*arrays(sizes, in_disk), max_msg_nums, *caps)
    else:
        assert form(batch_caps.batch_cut)(*arrays(sizes, in_disk), max_msg_nums, *caps) == taken


def test_a_pull_refuses_sizes_without_their_place() -> None:
    with pytest.raises(ValueError, match="sizes and inDisk"):
        batch_caps.batch_cut(*arrays([1, 2], [False]), 32, 262144, 32, 65536, 8)


@in_both_forms
@pytest.mark.parametrize(
    ("max_msg_nums", "entries"),
    [
        (0, 800),
        (-5, 800),
        (800, 800),
        (801, 801),
        (1000, 1000),
        (107374182, 107374182),
        (107374183, 800),
        (2147483647, 800),
    ],
)
def test_the_window_grows_with_max_msg_nums_until_the_product_wraps(form: Form, max_msg_nums: int, entries: int) -> None:
    assert form(batch_caps.scan_window_entries)(max_msg_nums) == entries


def test_a_pull_takes_no_more_than_its_window() -> None:
    assert batch_caps.batch_cut(*arrays([0] * 900, [False] * 900), 1, 262144, 32, 65536, 8) == 800


@given(st.lists(st.tuples(INTS, st.booleans())), INTS.filter(lambda n: n >= 0), st.lists(INTS, min_size=4, max_size=4))
@example([(2147483647, False), (1, False), (1, True)], 32, [262144, 32, 65536, 8])
@settings(deadline=None)
def test_compiled_batch_cut_equals_its_reference(entries: list[tuple[int, bool]], count: int, caps: list[int]) -> None:
    sizes, in_disk = [size for size, _ in entries], [disk for _, disk in entries]
    reference = python_of(batch_caps.batch_cut)(sizes, in_disk, count, *caps)
    assert batch_caps.batch_cut(*arrays(sizes, in_disk), count, *caps) == reference


@given(st.lists(INTS, min_size=8, max_size=8), st.booleans())
@settings(deadline=None)
def test_compiled_batch_test_equals_its_reference(numbers: list[int], in_disk: bool) -> None:
    arguments: list[Any] = [*numbers[:4], in_disk, *numbers[4:]]
    full = batch_caps.is_the_batch_full
    assert full(*arguments) == python_of(full)(*arguments)


@given(LONGS, LONGS, LONGS, INTS)
@settings(deadline=None)
def test_compiled_scan_numbers_equal_their_reference(offset: int, end: int, memory: int, number: int) -> None:
    for rule, arguments in (
        (batch_caps.check_in_disk, (offset, end, memory)),
        (batch_caps.scan_window_entries, (number,)),
        (batch_caps.commercial_count, (number,)),
    ):
        assert rule(*arguments) == python_of(rule)(*arguments)


@pytest.mark.parametrize(
    ("total", "ratio", "limit"),
    [
        (8 << 30, 40, 3435973836),
        (3750011, 40, 1500004),
        (100, 0, 0),
        (2**63 - 1, 200, 2**63 - 1),
        (2**63 - 1, -200, -(2**63)),
    ],
)
def test_the_memory_limit_is_a_double_cut_to_a_long(total: int, ratio: int, limit: int) -> None:
    assert batch_caps.memory_limit(total, ratio) == limit


def test_exactly_the_memory_limit_behind_is_still_in_memory() -> None:
    assert not batch_caps.check_in_disk(100, 350, 250)
    assert batch_caps.check_in_disk(99, 350, 250)


def entries_of_basic() -> dict[tuple[str, int, int], tuple[int, int]]:
    """Physical offset and size of every entry that a recorded answer has, by topic, queue and offset."""
    known = {}
    for trace in GOLDEN.glob("store/traces/basic-*.jsonl"):
        for pull in list(golden_lines("store", "traces", trace.name))[1:]:
            queue = pull["request"]["topic"], pull["request"]["queueId"]
            for message in (pull["response"] or {}).get("messages", []):
                known[*queue, message["queueOffset"]] = message["physicOffset"], message["storeSize"]
    return known


@needs_golden
@pytest.mark.parametrize("name", ["basic-caps", "basic-mixmem", "basic-ratio0", "basic-default", "basic-exact", "basic-exactmem"])
def test_recorded_batches_end_where_the_caps_say(name: str) -> None:
    header, *pulls = golden_lines("store", "traces", f"{name}.jsonl")
    config, end, entries = header["config"], header["maxPhyOffset"], entries_of_basic()
    memory = batch_caps.memory_limit(config["totalPhysicalMemorySize"], config["accessMessageInMemoryMaxRatio"])
    caps = [config[f"maxTransfer{what}OnMessageIn{place}"] for place in ("Memory", "Disk") for what in ("Bytes", "Count")]
    file_entries = config["mappedFileSizeConsumeQueue"] // 20
    compared = 0
    for pull in pulls:
        request, response = pull["request"], pull["response"]
        if request["filter"] is not None or "exception" in response or response["status"] != "FOUND":
            continue
        offset = request["offset"]
        file_end = min(offset - offset % file_entries + file_entries, response["maxOffset"])
        offered = [entries.get((request["topic"], request["queueId"], at)) for at in range(offset, file_end)]
        whole = [one for one in offered[: offered.index(None) if None in offered else None] if one is not None]
        if len(whole) <= response["messageCount"] and len(whole) < len(offered):
            continue  # the entry that ended the batch is in no answer
        sizes = [size for _, size in whole]
        in_disk = [batch_caps.check_in_disk(physic, end, memory) for physic, _ in whole]
        taken = batch_caps.batch_cut(*arrays(sizes, in_disk), request["maxMsgNums"], *caps)
        assert taken == response["messageCount"], request
        compared += 1
    assert compared > 50


@given(LONGS, LONGS)
@example(2**63 - 1, -(2**63))
@example(-(2**63), 1)
@settings(deadline=None)
def test_longs_wrap_as_in_java(left: int, right: int) -> None:
    wrapped = java_numbers.to_long(left - right)
    assert java_numbers.subtract_longs(left, right) == wrapped
    assert python_of(java_numbers.subtract_longs)(left, right) == wrapped
    low = int(np.array([left], np.int64).astype(np.int32)[0])
    assert java_numbers.to_int(left) == python_of(java_numbers.to_int)(left) == low
