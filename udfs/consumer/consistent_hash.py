"""The hash ring that assigns names to clients.

Broker source (4.9.3): common.consistenthash.ConsistentHashRouter (addNode, routeNode, MD5Hash), VirtualNode.
Rule: each client has as many places on the ring as it has virtual nodes: the MD5 of `client-0`, `client-1`, and so on. A name belongs to
the client of the first place at or after the name's own MD5, around the ring.
Surprises: only the first four bytes of the MD5 count, as an unsigned number. A client that is listed twice has twice as many places,
because its numbers continue. If two places coincide, the later one replaces the earlier.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_HASH_BYTES: Final = 4
_REMEMBERED: Final = 1 << 16


@lru_cache(_REMEMBERED)
def hash_of(key: str) -> int:
    """Return the place of a key on the ring, from 0 to 2**32 - 1."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_HASH_BYTES], "big")


class ConsistentHashRouter:
    """A hash ring of clients, each with `virtual_nodes` places, added in the order of `clients`."""

    def __init__(self, clients: Iterable[str], virtual_nodes: int) -> None:
        ring: dict[int, str] = {}
        places: Counter[str] = Counter()  # number of each client's places that no later place has replaced
        for client in clients:
            first = places[client]
            for replica in range(first, first + virtual_nodes):
                place = hash_of(f"{client}-{replica}")
                if place in ring:
                    places[ring[place]] -= 1
                ring[place] = client
                places[client] += 1
        self._places = sorted(ring)
        self._clients = [ring[place] for place in self._places]

    def route(self, name: str) -> str | None:
        """Return the client to which a name belongs, None on an empty ring."""
        if not self._places:
            return None
        at = bisect_left(self._places, hash_of(name))
        return self._clients[at % len(self._clients)]
