"""Moments as stores and tables have them: ms since 1970, UTC."""

from __future__ import annotations

import datetime as dt

# the last ms that calendars have; clocks may say any time, and sums of what lies beyond need not be numbers
LAST_OF_YEAR_9999 = 253_402_300_799_999
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def milliseconds(time: dt.datetime) -> int:
    """A moment in whole ms since 1970; one without a zone is in UTC."""
    return (time.replace(tzinfo=time.tzinfo or dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)
