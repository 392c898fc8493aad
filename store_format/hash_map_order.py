"""The order in which Java's hash maps give their keys, where the broker writes a map out.

Broker source (4.9.3): MessageDecoder.messageProperties2String over Message.properties (java.util.HashMap), ConfigManager.persist over the
tables of topics, groups and offsets (java.util.concurrent.ConcurrentHashMap). Not the broker's own rule, but part of the bytes it writes.
Rule: by bucket, and by age within a bucket; a table of 2**n buckets doubles where more than three quarters of it are in use.
Surprise: a HashMap of up to 12 keys has 16 buckets, one of 13 has 32, so that one more key moves others. Buckets of nine keys or more,
which Java may turn into trees, are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable

from store_format.string_hash import string_hash

HASH_MAP_BUCKETS = 16  # HashMap.DEFAULT_INITIAL_CAPACITY


def hash_map_order(names: Iterable[str], buckets: int = HASH_MAP_BUCKETS) -> list[str]:
    """The keys of a map as it gives them.

    Args:
        names: in the order in which they were put.
        buckets: that the map begins with, a power of two: 16 for `new HashMap()`; for `new ConcurrentHashMap(n)` see there.
    """
    known = list(dict.fromkeys(names))
    while len(known) > buckets * 3 // 4:
        buckets *= 2
    return sorted(known, key=lambda name: _spread(string_hash(name)) & (buckets - 1))


def _spread(code: int) -> int:
    return (code & 0xFFFFFFFF) ^ ((code & 0xFFFFFFFF) >> 16)


def concurrent_hash_map_buckets(capacity: int) -> int:
    """Buckets of `new ConcurrentHashMap(capacity)`: half as many again and one, rounded up to a power of two."""
    return 1 << (capacity + capacity // 2).bit_length()
