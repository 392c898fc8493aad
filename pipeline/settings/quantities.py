"""Counts, sizes, durations, rates, shares and times as people write and read them: 64M, 500ms, 1.5 KiB, 3 d 4 h; times are in ms, UTC."""

from __future__ import annotations

import datetime as dt
import re
from decimal import ROUND_HALF_UP, Decimal

_SIZE = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,6})?)(?P<unit>[KMGTP]?)(?:i?B)?", re.IGNORECASE)
_SIZE_UNITS = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# The last ms of the year 9999, the greatest time that datetime and Spark can format. Clocks may give later ones, and sums may overflow.
LAST_OF_YEAR_9999 = 253_402_300_799_999
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SHOWN_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


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


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun, in the singular or in the plural.

    Args:
        number: how many there are.
        one: the noun in the singular.
        more: the noun in the plural; `one` with an s by default.
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def size_text(size: float) -> str:
    """Return a number of bytes as a text, in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "B" or abs(size) >= 100 else f"{size:,.1f} {unit}"


def duration_text(millis: int) -> str:
    """Return a number of ms as a text, in the two units that fit."""
    rest, sign = abs(millis), "-" if millis < 0 else ""
    if rest < 1000:
        return f"{sign}{rest} ms"
    parts = []
    for unit, size in _SHOWN_UNITS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number:,} {unit}")
    return sign + " ".join(parts[:2])


def rate_text(rate: float) -> str:
    """Return a rate in messages a second as a text; a small rate is not rounded to 0."""
    if 0 < abs(rate) < 0.05:
        return "< 0.1/s"
    return f"{rate:,.1f}/s" if abs(rate) < 10 else f"{rate:,.0f}/s"


def percent_text(share: float) -> str:
    """Return a share in percent as a text; a small share is not rounded to 0 %, a large one not to 100 %. Halves are rounded up."""
    # through the shortest decimals: 0.0445 is 4.45 %, in binary a little less
    percent = Decimal(repr(float(share))) * 100
    if 0 < percent < Decimal("0.1"):
        return "< 0.1 %"
    if Decimal("99.9") < percent < 100:
        return "> 99.9 %"
    return f"{percent.quantize(Decimal('0.1') if 0 < percent < 10 else Decimal(1), ROUND_HALF_UP)} %"


def utc_time(millis: int) -> dt.datetime | None:
    """Return ms since 1970 as a time in UTC; None before 1970 and after the year 9999."""
    return _EPOCH + dt.timedelta(milliseconds=millis) if 0 <= millis <= LAST_OF_YEAR_9999 else None


def moment_text(millis: int) -> str:
    """Return ms since 1970 as a text in UTC; the number itself before 1970 and after the year 9999."""
    time = utc_time(millis)
    return str(millis) if time is None else f"{time:%Y-%m-%d %H:%M:%S}"
