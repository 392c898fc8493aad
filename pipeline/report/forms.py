"""How values are written on the page: names, counts, bytes, durations, moments.

Nothing that comes from a store or a wire is trusted. Whatever is put together here is Markup, which escapes what goes into it; names stand
in <bdi>, so that letters that run from right to left move nothing around them, and control characters are shown as pictures of themselves.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from typing import Any, Final

from markupsafe import Markup

from pipeline.settings.quantities import LAST_OF_YEAR_9999

# no such figure; the page says why
NOTHING: Final = Markup('<span class="none">–</span>')
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def visible(text: str) -> str:
    """A text without control characters: those of ASCII as their pictures, all others, and those that turn text around, as U+FFFD."""
    return "".join(map(_seen, text))


def _seen(char: str) -> str:
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\ufffd" if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else char


def name(value: Any) -> Markup:
    """A name of a group, a topic, a filter, as whoever chose it spelled it."""
    return NOTHING if value is None else Markup("<bdi>{}</bdi>").format(visible(str(value)))


def words(value: Any) -> Markup:
    """Plain text."""
    return NOTHING if value is None else Markup("{}").format(visible(str(value)))


def count(value: Any) -> Markup:
    """A whole number with commas."""
    return NOTHING if value is None else Markup("{}").format(f"{int(value):,}")


def _figure(text: str) -> Markup:
    """A number with its unit, which no line parts."""
    return Markup("{}").format(text.replace(" ", "\N{NO-BREAK SPACE}"))


def size(value: Any) -> Markup:
    """Bytes, in the unit that fits."""
    if value is None:
        return NOTHING
    rest = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(rest) < 1024 or unit == "TiB":
            break
        rest /= 1024
    return _figure(f"{rest:,.0f} {unit}" if unit == "B" or abs(rest) >= 100 else f"{rest:,.1f} {unit}")


def duration(value: Any) -> Markup:
    """Milliseconds, in the two units that fit."""
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
    """A part of 1 in percent; little is not called nothing, and most is not called all."""
    if value is None:
        return NOTHING
    percent = float(value) * 100
    if 0 < percent < 0.1:
        return _figure("< 0.1 %")
    if 99.9 < percent < 100:
        return _figure("> 99.9 %")
    return _figure(f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %")


def times(value: Any) -> Markup:
    """A factor."""
    return NOTHING if value is None else _figure(f"{float(value):,.1f} ×")


def rate(value: Any) -> Markup:
    """Messages in a second."""
    if value is None:
        return NOTHING
    if 0 < abs(value) < 0.05:  # little is not called nothing
        return _figure("< 0.1/s")
    return Markup("{}/s").format(f"{float(value):,.1f}" if abs(value) < 10 else f"{float(value):,.0f}")


def utc(millis: int) -> dt.datetime | None:
    """A stamp as a time; None where no calendar has it."""
    return _EPOCH + dt.timedelta(milliseconds=millis) if 0 <= millis <= LAST_OF_YEAR_9999 else None


def moment(value: Any) -> Markup:
    """Milliseconds since 1970 as a time in UTC."""
    time = None if value is None else utc(int(value))
    return NOTHING if time is None else Markup('<span class="time">{}</span>').format(f"{time:%Y-%m-%d %H:%M:%S}")


def clock(millis: int) -> str:
    """The time of a stamp alone, for what stands below a date."""
    time = utc(millis)
    return "–" if time is None else f"{time:%m-%d %H:%M:%S}"
