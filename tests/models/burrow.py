"""Burrow's evaluation of a partition, transcribed from its source, and the windows of commits that observations of lag give it.

It uses no code of the project.

Source: linkedin/Burrow, core/internal/evaluator/caching.go and, for the windows, core/internal/storage/inmemory.go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST = 2**63 - 1


@dataclass(frozen=True)
class Commit:
    offset: int
    at: int
    lag: int | None


def status_of(commits: Sequence[Commit], broker_offsets: Sequence[int], current_lag: int, now: int, allowed_lag: int) -> str:
    """calculatePartitionStatus: at least one commit, oldest first; now in ms."""
    if current_lag <= allowed_lag:
        return "OK"
    newest, oldest = commits[-1], commits[0]
    silent = now - newest.at > newest.at - oldest.at
    if silent and all(end > newest.offset for end in broker_offsets):
        return "STOP"
    if lost_ground(commits):
        return "REWIND"
    lags = [commit.lag for commit in commits if commit.lag is not None]
    if min(lags, default=MOST) <= allowed_lag:
        return "OK"
    if len({commit.offset for commit in commits}) == 1:
        return "STALL"
    return "WARN" if lags == sorted(lags) else "OK"


def lost_ground(commits: Sequence[Commit]) -> bool:
    """Whether the offset fell and did not reach its old value again by the end; only the first fall counts."""
    for number in range(1, len(commits)):
        before = commits[number - 1].offset
        if commits[number].offset < before:
            return max(commit.offset for commit in commits[number:]) < before
    return False


@dataclass(frozen=True)
class Seen:
    """A row of lag_history."""

    group: str
    topic: str
    queue_id: int
    at: int
    offset: int | None
    end: int
    begin: int = 0


def statuses(rows: Iterable[Seen], *, intervals: int, minimum_complete: float, allowed_lag: int) -> dict[tuple[str, str, int], str]:
    """The status of each queue in the last observation, by (group, topic, queueId)."""
    queues: dict[tuple[str, str, int], list[Seen]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.at):
        queues[row.group, row.topic, row.queue_id].append(row)
    now = max((window[-1].at for window in queues.values()), default=0)
    windows = {key: window[-intervals:] for key, window in queues.items()}

    alive: set[tuple[str, str, int]] = set()
    for (group, topic, _), window in windows.items():
        rows_with_offset = [row for row in window if row.offset is not None]
        alive |= {(group, topic, after.at) for before, after in pairwise(rows_with_offset) if before.offset != after.offset}

    found = {}
    for key, window in windows.items():
        if window[-1].at != now:
            continue
        known = [(row, row.offset) for row in window if row.offset is not None]
        commits = [
            Commit(offset, row.at, max(row.end - offset, 0))
            for number, (row, offset) in enumerate(known)
            if number == 0 or (*key[:2], row.at) in alive
        ]
        offset, end = window[-1].offset, window[-1].end
        behind = 0 if offset is None else min(max(end - offset, 0), MOST)
        if offset is None or len(known) / intervals < minimum_complete:
            # Burrow says OK to all of these; a queue that never had a message is OK without an offset and without enough observations
            found[key] = "OK" if end == 0 and not behind else "UNKNOWN"
        else:
            found[key] = status_of(commits, [row.end for row in window], behind, now, allowed_lag)
    return found
