"""The order in which a java.util.HashMap of strings gives its keys.

Broker source (4.9.3): RemotingCommand.extFields is a HashMap, and both header forms write it in the map's own order.
Rule: by bucket, which is the hash code's low bits after its high half was folded in; within a bucket by time of arrival.
Surprise: the number of buckets doubles above three quarters, and, as long as there are fewer than 64, with the ninth key in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from store_format.string_hash import string_hash

_DEFAULT_CAPACITY = 16
_TREEIFY_THRESHOLD = 8
_MIN_TREEIFY_CAPACITY = 64


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The keys, each once, as a HashMap that got them in the given order iterates over them.

    Not told: the order in a bucket that Java has made a tree, which takes 64 buckets and nine keys whose hash codes fall into one of them.
    """
    arrived = list(dict.fromkeys(keys))
    codes = {key: _spread(key) for key in arrived}
    capacity, filled = _DEFAULT_CAPACITY, Counter[int]()
    for size, key in enumerate(arrived, 1):
        bucket = codes[key] & (capacity - 1)
        filled[bucket] += 1
        crowded = filled[bucket] > _TREEIFY_THRESHOLD and capacity < _MIN_TREEIFY_CAPACITY
        for grows in (crowded, size * 4 > (capacity << crowded) * 3):
            if grows:
                capacity *= 2
                filled = Counter(codes[one] & (capacity - 1) for one in arrived[:size])
    return sorted(arrived, key=lambda one: codes[one] & (capacity - 1))


def _spread(key: str) -> int:
    code = string_hash(key) & 0xFFFFFFFF
    return code ^ (code >> 16)
