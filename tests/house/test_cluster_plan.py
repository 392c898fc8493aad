"""The plan of a cluster: its hours follow from the figures."""

from __future__ import annotations

import pytest

from benchmarks.scale.cases import KIB_MESSAGES, ON_S3, SMALL_MESSAGES, Row
from benchmarks.scale.cluster_plan import Costs, cluster_plan
from benchmarks.scale.page import scale_page

# a core takes 2 s a GiB of log and 4 µs a message; 2 million requests take it 10 s, and two cores 6.7
ROWS = [
    Row("curve", "20", "replay, largest worker", 300.0, "MiB"),
    Row(ON_S3, "1", "import", SMALL_MESSAGES.messages * 4e-6 + SMALL_MESSAGES.log_bytes * 2 / 2**30, "s"),
    Row(ON_S3, "1", "import of 1 KiB messages", KIB_MESSAGES.messages * 4e-6 + KIB_MESSAGES.log_bytes * 2 / 2**30, "s"),
    Row(ON_S3, "1", "import, largest worker", 500.0, "MiB"),
    Row(ON_S3, "1", "replay of 2 million", 10.0, "s"),
    Row(ON_S3, "2", "replay of 2 million", 20 / 3, "s"),
]


def test_costs_are_those_of_messages_bytes_and_requests() -> None:
    costs = Costs.of(ROWS)
    assert (round(costs.message * 1e6, 6), round(costs.byte * 2**30, 6), round(costs.request * 1e6, 6)) == (4.0, 2.0, 5.0)
    assert costs.worker == 500.0
    assert costs.efficiency == pytest.approx(0.75)
    assert round(costs.import_hours(1024), 3) == round((10**12 / 1024 * 4e-6 + 10**12 / 2**30 * 2) / 3600, 3)
    assert round(costs.replay_hours, 3) == round(10**10 * 5e-6 / 3600, 3)


def test_the_plan_tells_hours_and_what_they_cost() -> None:
    assert "| replay of 10 thousand million requests | 14 | 0.9 | 0.2 | 0.1 | 0.69 |" in cluster_plan(ROWS)


def test_a_page_of_some_cases_has_no_plan() -> None:
    page = scale_page(ROWS[:1])
    assert "## Entries" in page
    assert "## A cluster" not in page
