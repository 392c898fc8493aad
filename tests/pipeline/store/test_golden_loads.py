"""Load and start, by the rules of 4.9.3 and 5.5.0, of the stores that 5.5.0 wrote, compared with the loads of the real brokers."""

from __future__ import annotations

import pytest

from pipeline.settings.settings import BrokerSettings
from pipeline.upgrade.started_files import compare_starts
from tests.runs.sampling import sampled
from tests.truth.golden5 import LOADED, load_of, needs_golden5, store_of


@needs_golden5
@pytest.mark.parametrize("name", sampled(list(LOADED), 4))
def test_each_version_loads_a_store_of_5_5_0_as_the_real_one_does(name: str) -> None:
    recorded = {version: load_of(name, version) for version in ("4.9.3", "5.5.0")}
    settings = [
        BrokerSettings.from_sources(
            options=[f"rulesVersion={version}", *(f"{key}={value}" for key, value in one["config"].items() if not key.startswith("bloom"))]
        )
        for version, one in recorded.items()
    ]
    found = compare_starts(str(store_of(name)), *settings)
    for (_, side), one in zip(found.sides(), recorded.values(), strict=True):
        assert (side.load, side.start, side.dispatched) == (one["loaded"], one["started"], one["messagesDispatchedAgain"])
        assert (side.log_min, side.log_max) == (one["minPhyOffset"], one["maxPhyOffset"])
        # the real store creates a queue when its offsets are read: so it has empty queues of delay levels
        bounds = {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in one["queues"]}
        assert {queue: side.queues.get(queue, (0, 0)) for queue in side.queues.keys() | bounds.keys()} == bounds
