"""Answers scenarios without Spark, and compares their results with recorded ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pipeline.scenarios.scenario_file import scenario_of
from pipeline.scenarios.scenario_job import log_after
from pipeline.scenarios.scenario_steps import take_steps
from store_format.broker_version import BrokerVersion
from udfs.broker.memory_store import LogExtent

Case = dict[str, Any]
# texts for people: the broker's contain ports, and class names of Java
INFORMATIVE = {"remark"}


def answered(case: Case) -> Case:
    """A recorded scenario with our answers."""
    return answered_together([case])[0]


def answered_together(cases: Iterable[Case], rules: BrokerVersion | None = None) -> list[Case]:
    """Recorded scenarios with our answers by the rules of a version, 4.9.3 by default.

    Scenarios with the same first settings share a log, as on the recording broker.
    """
    logs: dict[str, LogExtent] = {}
    told = []
    for case in cases:
        scenario, appended = scenario_of("scenarios", 1, json.dumps(case), rules), list[int]()

        def note(_at: int, kind: str, row: dict[str, Any], appended: list[int] = appended) -> None:
            if kind in {"message", "commit_log_head"}:
                appended.append(row["storeSize"])

        base = json.dumps(scenario.base, sort_keys=True)
        for _ in take_steps(scenario, note, logs.get(base, LogExtent())):
            pass
        logs[base] = log_after(scenario.base, appended, logs.get(base, LogExtent()))
        told.append(scenario.content)
    return told


def compared(recorded: Case, ours: Case, ignored: Iterable[str] = ()) -> list[tuple[int, Any, Any]]:
    """The steps whose results differ: number, recorded result, our result."""
    found = []
    names = INFORMATIVE | set(ignored)
    for number, (old, new) in enumerate(zip(recorded["steps"], ours["steps"], strict=True), 1):
        if "volatileHint" not in old and _shown(old, names) != _shown(new, names):
            found.append((number, old.get("result"), new.get("result")))
    return found


def _shown(step: Case, names: set[str]) -> Any:
    return {name: _without(value, names) for name, value in step.items()}


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(one, names) for name, one in value.items() if name not in names}
    return [_without(one, names) for one in value] if isinstance(value, list) else value
