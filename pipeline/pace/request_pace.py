"""Plan which requests go into which file of a feed, and when the file is due: a pure function of requests, pace, faults and seed.

This is no rule of the broker. Rule: time is divided into ticks. The requests of a tick are one file, which is due at the end of the tick.
With a recorded pace, requests keep the order of their file: a request with an earlier timestamp than the one before counts as made at the
same moment. The next round of a loop begins at the moment of the last request of the round before.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

# most ticks by which a late request, or the second copy of a request, comes after its own tick
LATE_TICKS = 10
# requests in a file if requests are fed as fast as possible
FILE_REQUESTS = 1000

# a line, and its place in its file from 0 (begin) to 1 (end); None if it keeps its place
_Placed = tuple[str, float | None]


class Request(NamedTuple):
    """A line of a request file, and its timestamp in ms; 0 if the pace does not need it."""

    line: str
    timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How quickly requests are fed: as fast as possible if neither speed nor rate is given.

    Attributes:
        speed: factor to the recorded pace.
        rate: requests a second.
        tick_seconds: length of a tick, the time from one file to the next.
    """

    speed: float | None = None
    rate: float | None = None
    tick_seconds: float = 1.0

    def at(self, tick: int) -> float:
        """When the file of a tick is due, in seconds since the start."""
        return 0.0 if self.speed is None and self.rate is None else (tick + 1) * self.tick_seconds

    def ticks(self, rounds: Iterable[Iterable[Request]]) -> Iterator[tuple[int, str]]:
        """The lines of all rounds, each with its tick; ticks never decrease."""
        if self.speed is not None:
            for moment, line in _recorded(rounds):
                yield int(moment / (1000 * self.speed * self.tick_seconds)), line
            return
        each = FILE_REQUESTS if self.rate is None else self.rate * self.tick_seconds
        for number, request in enumerate(itertools.chain.from_iterable(rounds)):
            yield int(number / each), request.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares of the requests, from 0 to 1, that have a fault.

    Attributes:
        lost: the request never comes.
        late: the request comes 1 to LATE_TICKS ticks after its own tick.
        duplicated: the request comes a second time, 0 to LATE_TICKS ticks after its own tick.
        reordered: the request comes at another place in its file.
    """

    lost: float = 0.0
    late: float = 0.0
    duplicated: float = 0.0
    reordered: float = 0.0

    def copies(self, chance: random.Random) -> list[tuple[int, float | None]]:
        """The copies of a request that come: for each, the ticks by which it is late, and its place in the file or None.

        Each request takes the same number of values from `chance`, so that one share does not change which requests have another fault.
        """
        lost, late, duplicated, reordered, by, again_by, place = (chance.random() for _ in range(7))
        if lost < self.lost:
            return []
        first = 1 + int(by * LATE_TICKS) if late < self.late else 0
        found = [(first, place if reordered < self.reordered else None)]
        if duplicated < self.duplicated:
            found.append((int(again_by * (LATE_TICKS + 1)), None))
        return found


@dataclass(frozen=True, slots=True)
class FedFile:
    """A file to be fed: its tick, when it is due in seconds since the start, and its lines."""

    tick: int
    at: float
    lines: tuple[str, ...]


def plan(rounds: Iterable[Iterable[Request]], pace: Pace, faults: Faults, seed: int) -> Iterator[FedFile]:
    """The files of a feed in the order of their ticks; the same arguments give the same files.

    A tick without requests has no file. At most LATE_TICKS + 1 ticks are in memory at a time.
    """
    chance = random.Random(seed)  # noqa: S311 (faults must be reproducible)
    waiting: dict[int, list[_Placed]] = defaultdict(list)
    for tick, group in itertools.groupby(pace.ticks(rounds), itemgetter(0)):
        yield from _due(waiting, tick, pace)
        for _, line in group:
            for late, place in faults.copies(chance):
                waiting[tick + late].append((line, place))
    yield from _due(waiting, math.inf, pace)


def _due(waiting: dict[int, list[_Placed]], before: float, pace: Pace) -> Iterator[FedFile]:
    """Remove the ticks before `before` from `waiting`, and return their files."""
    for tick in sorted(tick for tick in waiting if tick < before):
        yield FedFile(tick, pace.at(tick), _in_place(waiting.pop(tick)))


def _in_place(lines: list[_Placed]) -> tuple[str, ...]:
    def key(numbered: tuple[int, _Placed]) -> float:
        number, (_, place) = numbered
        return number if place is None else place * len(lines)

    return tuple(line for _, (line, _) in sorted(enumerate(lines), key=key))


def _recorded(rounds: Iterable[Iterable[Request]]) -> Iterator[tuple[int, str]]:
    """The lines of all rounds, each with its moment in ms of the recorded pace since the first line."""
    moment = 0
    for requests in rounds:
        began, first = moment, None
        for request in requests:
            first = request.timestamp if first is None else first
            moment = max(moment, began + request.timestamp - first)
            yield moment, request.line
