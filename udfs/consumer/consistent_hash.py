"""The ring on which names are hashed to clients.

Broker source (4.9.3): common.consistenthash.ConsistentHashRouter (addNode, routeNode, MD5Hash), VirtualNode.
Rule: each client stands at as many places as it has virtual nodes, the MD5 of `client-0`, `client-1`, ...; a name belongs to the client at
the first place from its own MD5 on, round the ring.
Surprises: of the MD5 only the first four bytes count, without a sign. A client that is listed twice stands at twice as many places, because
the second time its numbers go on; where two places coincide the later one takes it.
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
    """The place of a name on the ring, from 0 to 2**32 - 1."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:_HASH_BYTES], "big")


class ConsistentHashRouter:
    """A ring of clients.

    Args:
        clients: in the order in which they are put on the ring.
        virtual_nodes: places of each.
    """

    def __init__(self, clients: Iterable[str], virtual_nodes: int) -> None:
        ring: dict[int, str] = {}
        places: Counter[str] = Counter()  # those that later nodes did not take over
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
        """The client to which a name belongs, None on an empty ring."""
        if not self._places:
            return None
        at = bisect_left(self._places, hash_of(name))
        return self._clients[at % len(self._clients)]
