"""Things that are costly to open, the last used of which stay so."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def last_used(known: OrderedDict[str, T], key: str, make: Callable[[], T], *, most: int, close: Callable[[T], None] = lambda _: None) -> T:
    """What `known` has for a key, made where it has nothing; of more than `most` the one not used for longest gives way."""
    if key not in known:
        if len(known) >= most:
            close(known.popitem(last=False)[1])
        known[key] = make()
    known.move_to_end(key)
    return known[key]
