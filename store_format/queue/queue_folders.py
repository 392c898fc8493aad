"""The folders of the consume queues: one for each topic, and in it one for each queue.

Broker source (4.9.3): DefaultMessageStore.loadConsumeQueue.
Surprise: names that Integer.parseInt refuses are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from store_format.errors import CorruptStoreError
from store_format.files.files import Entry


def topics_of(entries: Iterable[Entry]) -> list[str]:
    """The topics with a folder among the entries below consumequeue, in their order."""
    return [entry.name for entry in entries if entry.is_folder]


def queue_ids_of(folder: str, entries: Iterable[Entry]) -> list[int]:
    """The queues with a folder among the entries of a topic's `folder`, in ascending order.

    Raises:
        CorruptStoreError: a number in other digits than the broker writes.
    """
    found = []
    for entry in entries:
        digits = entry.name[1:] if entry.name[:1] in {"+", "-"} else entry.name
        # parseInt takes the decimal digits of every script, as int does
        if entry.is_folder and digits.isdecimal() and -(2**31) <= int(entry.name) < 2**31:
            if str(int(entry.name)) != entry.name:
                raise CorruptStoreError(f"{folder}/{entry.name}", "a queue's number as the broker writes it", repr(entry.name))
            found.append(int(entry.name))
    return sorted(found)
