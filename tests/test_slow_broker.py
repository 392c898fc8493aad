"""The plain form of getMessage that pulls as of a time are held against: it answers as the real broker did."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import golden, needs_golden
from replaying import DEMO_TRACE, Line, all_lines, demo_data, with_raw_messages
from slow_broker import Bounds, SlowBroker
from test_golden_traces import CLEAN, traces_by_store


def check(store: Path, trace: Path) -> None:
    header, *lines = all_lines(trace)
    broker = SlowBroker(store, header["config"], header["maxPhyOffset"])
    for line in lines:
        expected = with_raw_messages(line["response"])
        assert broker.get_message(line["request"], bounds_of(line, lines, broker.log_end)) == expected, line["request"]


def bounds_of(line: Line, lines: list[Line], log_end: int) -> Bounds:
    """The bounds that the answer gives, or for a pull that threw another answer for the same queue."""
    same = (other for other in [line, *lines] if all(other["request"][name] == line["request"][name] for name in ("topic", "queueId")))
    known = next(other["response"] for other in same if "maxOffset" in other["response"])
    return Bounds(known["minOffset"], known["maxOffset"], log_end)


def test_it_answers_the_trace_that_comes_with_the_package(tmp_path_factory: pytest.TempPathFactory) -> None:
    demo = demo_data(tmp_path_factory)
    check(demo / "cleaned", demo / DEMO_TRACE)


@needs_golden
@pytest.mark.parametrize("store", CLEAN)  # of the others, only what load and start leave is read
def test_it_answers_every_recorded_pull(store: str, stores: Path) -> None:
    for trace in traces_by_store()[store]:
        if trace != "basic-notreadable":
            check(stores / store, golden("store", "traces", f"{trace}.jsonl"))
