"""What runs at the moment and how much of it is done, for whoever shows it: tasks of Spark, and parts of the work of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Running:
    """Something that runs: what it is, as a key, and how many of its tasks are done."""

    what: object
    done: int
    tasks: int


Look = Callable[[], Iterable[Running]]
_LOOKS: list[Look] = []


def running() -> list[Running]:
    """What runs at the moment."""
    return [one for look in [*_LOOKS] for one in look()]


@contextmanager
def watched(look: Look) -> Iterator[None]:
    """Let `running` ask `look` for the time of the block; a question of another thread may last a little longer."""
    # no lock: what is collected while it is held may end a block, and wait for it
    _LOOKS.append(look)
    try:
        yield
    finally:
        _LOOKS.remove(look)


def one_by_one(items: Sequence[Item]) -> Iterator[Item]:
    """The items, each of which counts as a task that is done when the next one is asked for."""
    done = 0

    def look() -> tuple[Running, ...]:
        return (Running(look, done, len(items)),)

    with watched(look):
        for item in items:
            yield item
            done += 1
