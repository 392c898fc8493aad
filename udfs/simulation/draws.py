"""Random numbers by what they are for: the message, the try, the purpose. No order of events changes them.

No code of the broker. Surprise: a message that is delivered twice takes as long the second time and ends the same way, as it is the same
try.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store_format.compiled import bare
from store_format.made.made_values import GAMMA, mixed

ARRIVAL: Final = 0
MATCH: Final = 1
BODY: Final = 2
RETRY_QUEUE: Final = 3
SERVICE_TIME: Final = 4  # a time has two numbers
FAILURE: Final = 6
POISONED: Final = 7
LOCAL_TRANSACTION_TIME: Final = 8
DECISION_TIME: Final = 10
LOCAL_TRANSACTION: Final = 12
DECISION: Final = 13
TAG: Final = 14
_PURPOSES: Final = 16


@bare
def message_stream(seed, queue, offset):  # type: ignore[no-untyped-def]
    """The random number of a message, from which those of its tries come."""
    of_queue = mixed(np.uint64(seed) + GAMMA * np.uint64(queue + 1))
    return mixed(of_queue + GAMMA * np.uint64(offset + 1))


@bare
def draw(stream, tries, purpose):  # type: ignore[no-untyped-def]
    """A random number, uint64, for one purpose of one try of a message.

    Args:
        stream: of `message_stream`.
        tries: how often it was tried before.
        purpose: one of the constants above.
    """
    return mixed(stream + GAMMA * np.uint64(tries * _PURPOSES + purpose + 1))
