"""When the broker delivers delayed messages: it looks at the queue of each level again and again.

Broker source (4.9.3): ScheduleMessageService (start, queueId2DelayLevel) and its DeliverDelayedMessageTimerTask (executeOnTimeup,
correctDeliverTimestamp, syncDeliver); PutResultProcess.getNextOffset.
Rules: the queue of each level has looks of its own, the first a second after the start, each later one 100 ms after the one before has
ended. A look goes from where the last one stopped to the first entry that is not due, at most to the end of the queue's file.
Surprises: an entry is due when it says, but never later than its level's delay from now on: where the clock was set back it is due at once.
Whatever is behind an entry that is not due waits for it. The offset that is written to delayOffset.json is not where the look stopped but
one behind where it began, so that a broker that is started again delivers all but the first message of its last look a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from store_format.compiled import compiled

FIRST_DELAY_TIME: Final = 1000  # ms from the start to the first look
DELAY_FOR_A_WHILE: Final = 100  # ms from one look to the next


def correct_deliver_timestamp(deliver_timestamp: int, now: int, delay: int) -> int:
    """When an entry is due, as a look takes it; all in ms, `delay` that of its level."""
    return now if deliver_timestamp > now + delay else deliver_timestamp


def due_messages(deliver_timestamps: Sequence[int], now: int, delay: int) -> int:
    """How many messages a look delivers.

    Args:
        deliver_timestamps: tagsCodes of the entries from where the last look stopped, to the end of the queue or of the queue's file.
        now: when the broker looks, ms.
        delay: of the level, ms.
    """
    for number, timestamp in enumerate(deliver_timestamps):
        if correct_deliver_timestamp(timestamp, now, delay) > now:
            return number
    return len(deliver_timestamps)


@compiled
def look_after(started: int, due: int) -> int:
    """When the first look from a moment on is, where looks take no time; all in ms.

    Args:
        started: when the broker started.
        due: the moment.
    """
    first = started + FIRST_DELAY_TIME
    return first + max(0, -((first - due) // DELAY_FOR_A_WHILE)) * DELAY_FOR_A_WHILE
