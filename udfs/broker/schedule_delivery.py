"""When the broker delivers delayed messages: a timer task reads the queue of each level again and again.

Broker source (4.9.3): ScheduleMessageService (start, queueId2DelayLevel) and its DeliverDelayedMessageTimerTask (executeOnTimeup,
correctDeliverTimestamp, syncDeliver); PutResultProcess.getNextOffset.
Rules: each level's queue has its own task. The task first runs a second after the start, and again 100 ms after each run has ended. A run
reads from the entry where the last run stopped to the first entry that is not due, at most to the end of the queue's file.
Surprises: an entry is due at the time in its tagsCode. If that is more than the level's delay from now, because the clock was set back, it
is due at once. All entries after an entry that is not due wait for it. The offset written to delayOffset.json is not where the run stopped,
but the offset where it began plus 1. A restarted broker therefore delivers all but the first message of the last run a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from store_format.compiled import compiled

FIRST_DELAY_TIME: Final = 1000  # ms from the start to the first run
DELAY_FOR_A_WHILE: Final = 100  # ms from one run to the next


def correct_deliver_timestamp(deliver_timestamp: int, now: int, delay: int) -> int:
    """Return when an entry is due, in ms: `deliver_timestamp`, or `now` if that is more than the level's `delay` after `now`."""
    return now if deliver_timestamp > now + delay else deliver_timestamp


def due_messages(deliver_timestamps: Sequence[int], now: int, delay: int) -> int:
    """Return how many messages a run at `now` delivers; times in ms. The model `tests/models/slow_group.py` uses it.

    `deliver_timestamps` are the tagsCodes of the entries from where the last run stopped, to the end of the queue or of the queue's file.
    """
    for number, timestamp in enumerate(deliver_timestamps):
        if correct_deliver_timestamp(timestamp, now, delay) > now:
            return number
    return len(deliver_timestamps)


@compiled
def look_after(started: int, due: int) -> int:
    """Return the time of the first run at or after `due`, if runs take no time; `started` is when the broker started; times in ms."""
    first = started + FIRST_DELAY_TIME
    return first + max(0, -((first - due) // DELAY_FOR_A_WHILE)) * DELAY_FOR_A_WHILE
