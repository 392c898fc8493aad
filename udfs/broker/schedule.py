"""Delayed messages: the table of delay levels, and when a message of a level is delivered.

Broker source (4.9.3): ScheduleMessageService.parseDelayLevel and computeDeliverTimestamp; messageDelayLevel.
Rule: level 1 is the first delay of the setting; the time of delivery becomes the tagsCode of the message's entry in the
queue of its level in SCHEDULE_TOPIC_XXXX.
Surprise: a message of a level that the table does not have is due a second after it was stored. computeDeliverTimestamp returns this
time for a level above the last one too, but CommitLog replaces that level by the last one first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from store_format.java.numbers import to_long
from store_format.log.dispatch_request import DeliverTimestamp
from udfs.sql_definition import SqlFunction

DEFAULT_MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY: Final = 1000  # ms

_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Long.parseLong: an optional sign, then digits of any script, if each digit is one UTF-16 unit
_NUMBER: Final = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")


class DelayLevelError(ValueError):
    """A messageDelayLevel with which the broker does not start; `level` is the number of the wrong level, from 1, `found` is its text."""

    def __init__(self, setting: str, level: int, found: str) -> None:
        super().__init__(setting, level, found)
        self.setting = setting
        self.level = level
        self.found = found

    def __str__(self) -> str:
        return (
            f"messageDelayLevel {self.setting!r}, level {self.level}: expected a whole number and one of "
            f"{', '.join(_UNITS)}, found {self.found!r}; separate levels by one space, as in '1s 5s 10s'"
        )


def parse_delay_level(setting: str) -> tuple[int, ...]:
    """Return the delays of messageDelayLevel in ms, level 1 first.

    Raises:
        DelayLevelError: a level is not a number with a unit. Two spaces in a row, or one at the beginning, make an empty level.
    """
    levels = setting.split(" ")
    while len(levels) > 1 and not levels[-1]:  # String.split drops empty parts at the end
        levels.pop()
    if not levels[-1] and setting:
        return ()
    return tuple(_delay(setting, number, level) for number, level in enumerate(levels, 1))


def _delay(setting: str, number: int, level: str) -> int:
    amount, unit = level[:-1], _UNITS.get(level[-1:])
    if unit is None or not _NUMBER.fullmatch(amount) or to_long(int(amount)) != int(amount):
        raise DelayLevelError(setting, number, level)
    return to_long(unit * int(amount))


DEFAULT_DELAYS: Final = parse_delay_level(DEFAULT_MESSAGE_DELAY_LEVEL)


def deliver_timestamp(level: int, store_timestamp: int, delays: Sequence[int] = DEFAULT_DELAYS) -> int:
    """Return when a message of a delay level is due, in ms since the epoch; `delays` is from `parse_delay_level`."""
    delay = delays[level - 1] if 1 <= level <= len(delays) else UNKNOWN_LEVEL_DELAY
    return to_long(store_timestamp + delay)


def deliver_timestamp_of(delays: Sequence[int] | None) -> DeliverTimestamp | None:
    """Return the function that gives CommitLog the time at which a message of a level is due; None if there are no delays."""
    if not delays:
        return None
    return lambda level, stored: deliver_timestamp(min(level, len(delays)), stored, delays)


_DELAY_SQL: Final = (
    f"CASE WHEN level BETWEEN 1 AND {len(DEFAULT_DELAYS)} "
    f"THEN get(array({', '.join(f'{delay}L' for delay in DEFAULT_DELAYS)}), level - 1) "
    f"WHEN level IS NOT NULL THEN {UNKNOWN_LEVEL_DELAY}L END"
)

_MILLIS_SQL: Final = (
    "CASE right(delay, 1) " + " ".join(f"WHEN '{unit}' THEN {millis}L" for unit, millis in _UNITS.items()) + " END"  # NULL for others
)

SQL_FUNCTIONS: Final = (
    SqlFunction(
        name="message_delay",
        parameters="messageDelayLevel STRING, level INT",
        returns="STRING",
        body=f"""nullif(get(split(coalesce(messageDelayLevel, '{DEFAULT_MESSAGE_DELAY_LEVEL}'), ' '), try_subtract(level, 1)), '')""",
        comment=(
            "Delay of a level in the setting messageDelayLevel, as text such as 10s. The default levels count if the "
            "setting is NULL. NULL if the setting lacks the level"
        ),
    ),
    SqlFunction(
        name="delay_millis",
        parameters="delay STRING",
        returns="BIGINT",
        body=f"try_multiply(try_cast(substring(delay, 1, length(delay) - 1) AS BIGINT), {_MILLIS_SQL})",
        comment="Milliseconds of a delay such as 10s or 2h. NULL if the text is no delay or if no BIGINT holds the result",
    ),
    SqlFunction(
        name="deliver_timestamp",
        parameters="level INT, storeTimestamp BIGINT",
        returns="BIGINT",
        # a sum past the greatest BIGINT wraps, as Java's does
        body=f"""coalesce(
  try_add(storeTimestamp, {_DELAY_SQL}),
  storeTimestamp - 9223372036854775807 + {_DELAY_SQL} - 9223372036854775807 - 2)""",
        comment="When a message of this delay level is due, in ms since 1970, by the default levels. NULL if an argument is NULL",
    ),
)
