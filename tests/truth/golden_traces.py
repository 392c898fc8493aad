"""The golden traces of pulls, the store of each, and the settings with which a damaged store was started."""

from __future__ import annotations

from collections import defaultdict

from tests.truth.golden import golden_lines, names

DAMAGED = "torn-"


def traces_by_store() -> dict[str, list[str]]:
    found = defaultdict(list)
    for name in names("traces", "*.jsonl"):
        found[next(golden_lines("store", "traces", f"{name}.jsonl"))["store"]].append(name)
    return dict(found)


CLEAN = [store for store in traces_by_store() if not store.startswith(DAMAGED)]


def started_with(trace: str) -> list[str]:
    """The settings of the broker that loaded a damaged store, as values of --set."""
    config = next(golden_lines("store", "traces", f"{trace}.jsonl"))["config"]
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in config.items() if name != "bloom"]
