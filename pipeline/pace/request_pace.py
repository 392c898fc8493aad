"""Which requests go into which file of a folder that a stream reads, and at which moment: a pure function of a pace and of faults.

Not the broker's own. Rule: time is cut into ticks, and what falls into a tick is one file, put there at the tick's end. The requests of a
recorded pace keep the order of their file: one whose time goes back counts as made with the one before. The next round of a loop begins
with the last request of the round before.
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

# a late request, or a second copy of one, comes at most so many ticks after its own
LATE_TICKS = 10
# in a file, where requests are fed as fast as possible
FILE_REQUESTS = 1000

# a line, and where it goes among those of its file: from 0, its begin, to 1; None where it keeps its place
_Placed = tuple[str, float | None]


class Request(NamedTuple):
    """A line of a file of requests, and its time in ms; 0 where no pace asks for it."""

    line: str
    timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How quickly requests are fed: as fast as possible where neither speed nor rate is given.

    Attributes:
        speed: so many times the recorded pace.
        rate: so many requests a second.
        tick_seconds: from one file to the next.
    """

    speed: float | None = None
    rate: float | None = None
    tick_seconds: float = 1.0

    def at(self, tick: int) -> float:
        """When the file of a tick is due, in seconds from the start on."""
        return 0.0 if self.speed is None and self.rate is None else (tick + 1) * self.tick_seconds

    def ticks(self, rounds: Iterable[Iterable[Request]]) -> Iterator[tuple[int, str]]:
        """The lines of all rounds with the tick that each falls into; ticks never go back."""
        if self.speed is not None:
            for moment, line in _recorded(rounds):
                yield int(moment / (1000 * self.speed * self.tick_seconds)), line
            return
        each = FILE_REQUESTS if self.rate is None else self.rate * self.tick_seconds
        for number, request in enumerate(itertools.chain.from_iterable(rounds)):
            yield int(number / each), request.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What may happen to a request on its way: the share of the requests, from 0 to 1, to which each does.

    Attributes:
        lost: it never comes.
        late: it comes 1 to LATE_TICKS ticks after its own.
        duplicated: it comes once more, 0 to LATE_TICKS ticks after its own.
        reordered: it comes at another place in its file.
    """

    lost: float = 0.0
    late: float = 0.0
    duplicated: float = 0.0
    reordered: float = 0.0

    def copies(self, chance: random.Random) -> list[tuple[int, float | None]]:
        """The copies of a request that come: how many ticks late, and at which place.

        Each takes the same numbers from `chance`, so that no share changes to whom another fault happens.
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
    """A file to be fed: its tick, when it is due in seconds from the start on, and its lines."""

    tick: int
    at: float
    lines: tuple[str, ...]


def plan(rounds: Iterable[Iterable[Request]], pace: Pace, faults: Faults, seed: int) -> Iterator[FedFile]:
    """The files, in the order of their ticks; a tick that nothing falls into has none. No more than LATE_TICKS ticks are held at a time.

    The same arguments give the same files.
    """
    chance = random.Random(seed)  # noqa: S311 (faults that can be had again)
    waiting: dict[int, list[_Placed]] = defaultdict(list)
    for tick, group in itertools.groupby(pace.ticks(rounds), itemgetter(0)):
        yield from _due(waiting, tick, pace)
        for _, line in group:
            for late, place in faults.copies(chance):
                waiting[tick + late].append((line, place))
    yield from _due(waiting, math.inf, pace)


def _due(waiting: dict[int, list[_Placed]], before: float, pace: Pace) -> Iterator[FedFile]:
    """The files of the ticks before this one, which leave `waiting`."""
    for tick in sorted(tick for tick in waiting if tick < before):
        yield FedFile(tick, pace.at(tick), _in_place(waiting.pop(tick)))


def _in_place(lines: list[_Placed]) -> tuple[str, ...]:
    def key(numbered: tuple[int, _Placed]) -> float:
        number, (_, place) = numbered
        return number if place is None else place * len(lines)

    return tuple(line for _, (line, _) in sorted(enumerate(lines), key=key))


def _recorded(rounds: Iterable[Iterable[Request]]) -> Iterator[tuple[int, str]]:
    """The lines of all rounds with the moment of each, in ms of the recorded pace from the first one on."""
    moment = 0
    for requests in rounds:
        began, first = moment, None
        for request in requests:
            first = request.timestamp if first is None else first
            moment = max(moment, began + request.timestamp - first)
            yield moment, request.line
