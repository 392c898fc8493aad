"""Finds the version of the broker's rules from the files of a store."""

from __future__ import annotations

from pipeline.files.store_files import StoreFiles
from store_format.errors import StoreError
from store_format.files.files import FilePath
from store_format.store.written_by import CONSUMER_OFFSETS, WrittenBy, written_by


def told_rules(store: str) -> WrittenBy | None:
    """The version that the files of the store in a directory or URI show, None if they show none or cannot be read.

    Raises:
        NotAStoreError: there is no such directory.
    """
    files = StoreFiles(store)
    files.check_exists()

    def has(path: FilePath) -> bool:
        return any(entry.name == path[-1] for entry in files.folder(*path[:-1]))

    # the broker reads the .bak if the file is missing or empty
    try:
        return written_by(files.read_config(CONSUMER_OFFSETS) or files.read_config(f"{CONSUMER_OFFSETS}.bak"), has)
    except StoreError:  # the code that needs the file reports what is wrong with it
        return None
