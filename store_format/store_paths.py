"""The names of the files and folders of a store.

Broker source (4.9.3): StorePathConfigHelper, DefaultMessageStore.createTempFile and the constructor that takes the lock.
Rule: the abort file exists while a broker runs, and a clean shutdown removes it. A store with an abort file was killed.
Surprise: a clean shutdown removes the abort file only if every message is dispatched. The lock file stays for ever and means nothing.
"""

from __future__ import annotations

from typing import Final

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"  # has a folder for each topic, which has a folder for each queue
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"  # folders as in consumequeue
INDEX: Final = "index"
CONFIG: Final = "config"

# a folder with any of these is a store
STORE_FOLDERS: Final = frozenset({COMMIT_LOG, CONSUME_QUEUE, CONFIG, INDEX})

CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"  # empty
LOCK_FILE: Final = "lock"
LOCK: Final = b"lock"  # all bytes of the lock file

_NAMED: Final = frozenset({COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CONFIG, CHECKPOINT_FILE, ABORT_FILE, LOCK_FILE})


def kind_of(path: tuple[str, ...]) -> str:
    """The kind of the file at a path below the root: the first name of the path, or `other` for a file that no broker writes."""
    return path[0] if path[0] in _NAMED else "other"
