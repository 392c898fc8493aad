"""Calls the kernels of the index with bytes of every kind. test_index_file.py runs it with NUMBA_BOUNDSCHECK=1."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np

from store_format.errors import CorruptStoreError
from store_format.files.mapped_files import MappedFile
from store_format.index.index_file import IndexSizes, indexed_messages
from store_format.index.index_service import IndexService, load_index, query_offset
from store_format.index.index_sizes import infer_index_sizes, sizes_agree
from store_format.queue.consume_queue_ext import recover

ROUNDS = 1500


def some_bytes(digits: random.Random, length: int) -> np.ndarray:
    """Bytes of mostly small numbers, so that chains and sizes lead to places in the file."""
    numbers = [digits.choice([0, 1, 2, 3, digits.randrange(-3, 40), 2**31 - 1, -(2**31)]) for _ in range(length // 4 + 1)]
    return np.array(numbers, ">i4").view(np.uint8)[:length].copy()


def use_all(digits: random.Random) -> int:
    """Call every kernel; returns the number of offsets found."""
    sizes = IndexSizes(hash_slot_num=digits.randint(1, 5), index_num=digits.randint(2, 9))
    content = some_bytes(digits, digits.choice([sizes.file_length, digits.randint(0, 300)]))
    loaded = load_index([("7", content)], sizes, writable=True).files
    found = 0
    for key in "abc":
        try:
            found += len(query_offset(loaded, "T", key, digits.randint(0, 9), -(2**63), 2**63 - 1).phy_offsets)
            infer_index_sizes([("7", content)])
        except CorruptStoreError:
            pass
    sizes_agree(loaded[0])
    service = IndexService(sizes=sizes, files=list(loaded))
    keys = [[f"T#{digits.choice('abc')}" for _ in range(digits.randint(0, 3))] for _ in range(9)]
    service.build_index(indexed_messages([(digits.choice([0, 9, 2**62]), digits.randint(-5, 9000), one) for one in keys]))
    file = MappedFile(name="0", from_offset=0, length=len(content) or 1, wrote=len(content))
    with suppress(CorruptStoreError):
        recover([file], lambda _: content.view(np.uint8))
    return found + sum(len(query_offset(service.files, "T", "a", 9, 0, 2**63 - 1).phy_offsets) for _ in "x" if service.created)


def main() -> None:
    digits = random.Random(20260102)
    found = 0
    for _ in range(ROUNDS):
        try:
            found += use_all(digits)
        except CorruptStoreError:
            continue
    print(f"offsets found: {found}")


if __name__ == "__main__":
    main()
