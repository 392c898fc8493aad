"""How values are formatted on the page: names, counts, bytes, durations, times.

Texts from a store or a capture are not trusted. These functions return Markup, which escapes its parts. Names are in <bdi>, so that
right-to-left letters do not move the text around them. Control characters are shown as visible symbols.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from typing import Any, Final

from markupsafe import Markup

from pipeline.settings.quantities import LAST_OF_YEAR_9999

# shown for a missing figure; the page explains why it is missing
NOTHING: Final = Markup('<span class="none">–</span>')
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def visible(text: str) -> str:
    """Return a text without control characters: ASCII ones become their symbols, others and those that change direction U+FFFD."""
    return "".join(map(_seen, text))


def _seen(char: str) -> str:
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\ufffd" if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else char


def name(value: Any) -> Markup:
    """Return the markup of a name of a group, topic or filter, as it is spelled in the lake."""
    return NOTHING if value is None else Markup("<bdi>{}</bdi>").format(visible(str(value)))


def words(value: Any) -> Markup:
    """Return the markup of a plain text."""
    return NOTHING if value is None else Markup("{}").format(visible(str(value)))


def count(value: Any) -> Markup:
    """Return the markup of a whole number with commas."""
    return NOTHING if value is None else Markup("{}").format(f"{int(value):,}")


def _figure(text: str) -> Markup:
    """Return the markup of a number with its unit, which does not wrap."""
    return Markup("{}").format(text.replace(" ", "\N{NO-BREAK SPACE}"))


def size(value: Any) -> Markup:
    """Return the markup of a number of bytes, in the unit that fits."""
    if value is None:
        return NOTHING
    rest = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(rest) < 1024 or unit == "TiB":
            break
        rest /= 1024
    return _figure(f"{rest:,.0f} {unit}" if unit == "B" or abs(rest) >= 100 else f"{rest:,.1f} {unit}")


def duration(value: Any) -> Markup:
    """Return the markup of a number of ms, in the two units that fit."""
    if value is None:
        return NOTHING
    rest, sign = abs(int(value)), "-" if value < 0 else ""
    if rest < 1000:
        return _figure(f"{sign}{rest} ms")
    parts = []
    for unit, millis in _UNITS:
        number, rest = divmod(rest, millis)
        if number:
            parts.append(f"{number:,} {unit}")
    return _figure(sign + " ".join(parts[:2]))


def share(value: Any) -> Markup:
    """Return the markup of a share in percent; a small share is not rounded to 0 %, a large one not to 100 %."""
    if value is None:
        return NOTHING
    percent = float(value) * 100
    if 0 < percent < 0.1:
        return _figure("< 0.1 %")
    if 99.9 < percent < 100:
        return _figure("> 99.9 %")
    return _figure(f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %")


def times(value: Any) -> Markup:
    """Return the markup of a factor."""
    return NOTHING if value is None else _figure(f"{float(value):,.1f} ×")


def rate(value: Any) -> Markup:
    """Return the markup of a rate in messages a second."""
    if value is None:
        return NOTHING
    if 0 < abs(value) < 0.05:  # a small rate is not rounded to 0
        return _figure("< 0.1/s")
    return Markup("{}/s").format(f"{float(value):,.1f}" if abs(value) < 10 else f"{float(value):,.0f}")


def utc(millis: int) -> dt.datetime | None:
    """Return ms since 1970 as a time in UTC; None before 1970 and after the year 9999."""
    return _EPOCH + dt.timedelta(milliseconds=millis) if 0 <= millis <= LAST_OF_YEAR_9999 else None


def moment(value: Any) -> Markup:
    """Return the markup of ms since 1970 as a time in UTC."""
    time = None if value is None else utc(int(value))
    return NOTHING if time is None else Markup('<span class="time">{}</span>').format(f"{time:%Y-%m-%d %H:%M:%S}")


def clock(millis: int) -> str:
    """Return the time of day of ms since 1970, for a place below a date."""
    time = utc(millis)
    return "–" if time is None else f"{time:%m-%d %H:%M:%S}"
