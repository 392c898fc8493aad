"""The order in which Java's hash maps iterate over string keys, which decides bytes that the broker writes.

Source: java.util.HashMap.putVal, resize, treeifyBin; java.util.concurrent.ConcurrentHashMap.putVal, addCount, transfer (JDK 8 to 17).
The broker (4.9.3) writes in this order: Message.properties in MessageDecoder.messageProperties2String and RemotingCommand.extFields
in both header forms (HashMap); the tables of topics, groups and offsets in ConfigManager.persist (ConcurrentHashMap).
Rule: iteration goes by bucket. A key's bucket is the low bits of its hash code, into which the high half was folded.
Surprises: a HashMap doubles when more than three quarters of its buckets are in use, a ConcurrentHashMap when exactly three quarters are.
A HashMap of fewer than 64 buckets also doubles with the ninth key of one bucket. A HashMap that grows keeps the keys of a bucket in the
order in which they were put; a ConcurrentHashMap reverses most of them.
Not covered: the trees that Java makes of buckets with nine keys or more once a map has 64 buckets.
"""

from __future__ import annotations

from collections.abc import Iterable

from store_format.java.string_hash import string_hash

_DEFAULT_INITIAL_CAPACITY = 16
_TREEIFY_THRESHOLD = 8
_MIN_TREEIFY_CAPACITY = 64

_Node = tuple[int, str]  # folded hash code and key
_Buckets = list[list[_Node]]


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The distinct keys in the iteration order of a `new HashMap()` into which they were put in the given order."""
    buckets: _Buckets = [[] for _ in range(_DEFAULT_INITIAL_CAPACITY)]
    for size, key in enumerate(dict.fromkeys(keys), 1):
        bucket = _put(buckets, key)
        if len(bucket) > _TREEIFY_THRESHOLD and len(buckets) < _MIN_TREEIFY_CAPACITY:
            buckets = _resized(buckets)
        if size * 4 > len(buckets) * 3:
            buckets = _resized(buckets)
    return _keys(buckets)


def concurrent_hash_map_order(keys: Iterable[str], initial_capacity: int) -> list[str]:
    """The distinct keys in the iteration order of a `new ConcurrentHashMap(initial_capacity)` into which they were put in the given order.

    Not covered: an initial capacity below 32 gives fewer than 64 buckets, and then the ninth key of one bucket makes Java's map grow.
    """
    buckets: _Buckets = [[] for _ in range(1 << (initial_capacity + initial_capacity // 2).bit_length())]
    for size, key in enumerate(dict.fromkeys(keys), 1):
        _put(buckets, key)
        if size * 4 >= len(buckets) * 3:
            buckets = _transferred(buckets)
    return _keys(buckets)


def _put(buckets: _Buckets, key: str) -> list[_Node]:
    code = string_hash(key) & 0xFFFFFFFF
    folded = code ^ (code >> 16)
    bucket = buckets[folded & (len(buckets) - 1)]
    bucket.append((folded, key))
    return bucket


def _keys(buckets: _Buckets) -> list[str]:
    return [key for bucket in buckets for _, key in bucket]


def _resized(buckets: _Buckets) -> _Buckets:
    """HashMap.resize: twice as many buckets, the order within a bucket kept."""
    grown: _Buckets = [[] for _ in range(2 * len(buckets))]
    for bucket in buckets:
        for node in bucket:
            grown[node[0] & (len(grown) - 1)].append(node)
    return grown


def _transferred(buckets: _Buckets) -> _Buckets:
    """ConcurrentHashMap.transfer: twice as many buckets; the last nodes with one target stay in order, all others are put in front."""
    split = len(buckets)
    grown: _Buckets = [[] for _ in range(2 * split)]
    for number, bucket in enumerate(buckets):
        run = len(bucket)
        while run > 1 and bucket[run - 2][0] & split == bucket[-1][0] & split:
            run -= 1
        last_run, others = bucket[max(run - 1, 0) :], bucket[: max(run - 1, 0)]
        for high in (0, split):
            kept = [node for node in last_run if node[0] & split == high]
            grown[number + high] = [node for node in reversed(others) if node[0] & split == high] + kept
    return grown
