"""The plain form of getMessage, with which pulls as of a time are compared, answers as the real broker did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.slow_broker import SlowBroker, bounds_of
from tests.runs.replaying import DEMO_TRACE, all_lines, demo_data, with_raw_messages
from tests.truth.golden import golden, needs_golden
from tests.truth.golden_traces import CLEAN, traces_by_store


def check(store: Path, trace: Path) -> None:
    header, *lines = all_lines(trace)
    broker = SlowBroker(store, header["config"], header["maxPhyOffset"])
    for line in lines:
        expected = with_raw_messages(line["response"])
        assert broker.get_message(line["request"], bounds_of(line, lines, broker.log_end)) == expected, line["request"]


def test_it_answers_the_trace_that_comes_with_the_package(tmp_path_factory: pytest.TempPathFactory) -> None:
    demo = demo_data(tmp_path_factory)
    check(demo / "cleaned", demo / DEMO_TRACE)


@needs_golden
@pytest.mark.parametrize("store", CLEAN)  # of the others, only what load and start leave is read
def test_it_answers_every_recorded_pull(store: str, stores: Path) -> None:
    for trace in traces_by_store()[store]:
        if trace != "basic-notreadable":
            check(stores / store, golden("store", "traces", f"{trace}.jsonl"))
