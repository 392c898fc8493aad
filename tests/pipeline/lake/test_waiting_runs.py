"""A run finds writes that no version of the lake has: it waits for another run's; its own are from before it died."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.lake.lake import Lake, LakeVersion
from pipeline.schema import tables as t
from pipeline.stream import batches
from pipeline.stream.batches import retry_on_conflict

RUN = "mine"


def lake_with(root: Path, commits: list[dict[str, Any]], *, committed: int | None) -> Lake:
    """A lake whose pull_response has these commits, of which the lake shows one."""
    log = root / t.PULL_RESPONSE.name / "_delta_log"
    log.mkdir(parents=True)
    for version, info in enumerate(commits):
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}), "utf-8")
    at = LakeVersion(1, {} if committed is None else {t.PULL_RESPONSE.name: committed})
    return cast("Lake", SimpleNamespace(at=at, newest=lambda: at, path=lambda name: f"{root}/{name}"))


def write_of(run: str) -> dict[str, Any]:
    return {"operation": "WRITE", "userMetadata": json.dumps({"runId": run})}


def creation_of(run: str) -> dict[str, Any]:
    return {"operation": "CREATE TABLE AS SELECT", "operationParameters": {"properties": json.dumps({"pullsim.runId": run})}}


@pytest.mark.parametrize(
    ("commits", "committed", "looks"),
    [
        ([], None, 0),
        ([write_of("other")], 0, 0),
        ([write_of("other"), write_of(RUN)], 0, 0),
        ([creation_of(RUN)], None, 0),
        ([creation_of("other")], None, 3),
        ([write_of(RUN), write_of("other")], 0, 3),
        ([write_of(RUN), {"operation": "OPTIMIZE"}], 0, 3),
    ],
)
def test_a_run_waits_for_others_but_not_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: list[dict[str, Any]], committed: int | None, looks: int
) -> None:
    times, written = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: times[-1], sleep=lambda _: times.append(times[-1] + 6))
    monkeypatch.setattr(batches, "time", clock)
    retry_on_conflict(lake_with(tmp_path, commits, committed=committed), RUN, [t.PULL_RESPONSE], lambda: written.append(times[-1]))
    assert written == [6.0 * looks]
