"""Random numbers as functions of message, try and purpose, so that the order of events does not change them.

No code of the broker. Surprise: a message that is delivered twice in one try takes the same time and has the same result both times.
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
    """Return the random number of a message, from which `draw` makes all other random numbers of the message."""
    of_queue = mixed(np.uint64(seed) + GAMMA * np.uint64(queue + 1))
    return mixed(of_queue + GAMMA * np.uint64(offset + 1))


@bare
def draw(stream, tries, purpose):  # type: ignore[no-untyped-def]
    """Return a random number, uint64, for one purpose of one try of a message.

    Args:
        stream: result of `message_stream` for the message.
        tries: how often the message was sent back before.
        purpose: a constant above, or that of a time plus 1.
    """
    return mixed(stream + GAMMA * np.uint64(tries * _PURPOSES + purpose + 1))
