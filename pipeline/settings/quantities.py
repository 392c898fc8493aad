"""Parse sizes such as 64M and durations such as 500ms, and convert times to ms since 1970, UTC."""

from __future__ import annotations

import datetime as dt
import re

_SIZE = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,6})?)(?P<unit>[KMGTP]?)(?:i?B)?", re.IGNORECASE)
_SIZE_UNITS = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# The last ms of the year 9999, the greatest time that datetime and Spark can format. Clocks may give later ones, and sums may overflow.
LAST_OF_YEAR_9999 = 253_402_300_799_999
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def size_in_bytes(text: str) -> int:
    """Return the bytes of a text such as 500G, 1.5T or 64KiB; units are powers of 1024.

    Raises:
        ValueError: the text is no size.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        message = f"expected bytes such as 500G or 1.5T (of 1024), found {text!r}"
        raise ValueError(message)
    return int(float(found["number"]) * _SIZE_UNITS[found["unit"].upper()])


def duration_in_seconds(text: str) -> float | None:
    """Return the seconds of a text such as 500ms, 2s, 5m, 1h or 3d; None if the text is no duration."""
    found = _DURATION.fullmatch(text)
    return float(found["number"]) * _SECONDS[found["unit"]] if found else None


def milliseconds(time: dt.datetime) -> int:
    """Return a time in whole ms since 1970; a time without a zone is in UTC."""
    return (time.replace(tzinfo=time.tzinfo or dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)
