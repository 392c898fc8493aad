"""What runs at the moment and how much of it is done, for a display of progress: tasks of Spark, and parts of this process's own work."""

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
    """Let `running` call `look` until the block ends; a call that another thread has begun may end a little later."""
    # no lock: a garbage collection while it is held could end another block, which would wait for the lock for ever
    _LOOKS.append(look)
    try:
        yield
    finally:
        _LOOKS.remove(look)


def one_by_one(items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items; each counts as a task, which is done when the caller takes the next item."""
    done = 0

    def look() -> tuple[Running, ...]:
        return (Running(look, done, len(items)),)

    with watched(look):
        for item in items:
            yield item
            done += 1
