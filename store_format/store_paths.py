"""Where the parts of a store lie below its root.

Broker source (4.9.3): StorePathConfigHelper, DefaultMessageStore.createTempFile and the constructor that takes the lock.
Rule: the abort file is there while a broker runs and is removed by a clean shutdown, so one that is found means a kill.
Surprise: a clean shutdown removes it only if every message is dispatched; the lock file stays for ever and says nothing.
"""

from __future__ import annotations

from typing import Final

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"  # below it a folder a topic, below that a folder a queue
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"  # folders as in consumequeue
INDEX: Final = "index"
CONFIG: Final = "config"

# any of these in a folder says that it is a store
STORE_FOLDERS: Final = frozenset({COMMIT_LOG, CONSUME_QUEUE, CONFIG, INDEX})

CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"  # empty
LOCK_FILE: Final = "lock"  # four bytes, "lock"

_NAMED: Final = frozenset({COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CONFIG, CHECKPOINT_FILE, ABORT_FILE, LOCK_FILE})


def kind_of(path: tuple[str, ...]) -> str:
    """What a file is, by its path below the root: the broker's word for its place, `other` for a file that no broker writes."""
    return path[0] if path[0] in _NAMED else "other"
