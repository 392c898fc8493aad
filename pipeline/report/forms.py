"""How values are formatted on the page: names, counts, bytes, durations, times.

Texts from a store or a capture are not trusted. These functions return Markup, which escapes its parts. Names are in <bdi>, so that
right-to-left letters do not move the text around them. Control characters are shown as visible symbols.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Final

from markupsafe import Markup

from pipeline.report.tone import Tone, outcome_tone, status_tone
from pipeline.settings.quantities import counted as count_text
from pipeline.settings.quantities import duration_text, percent_text, rate_text, size_text, utc_time

# shown for a missing figure; the page explains why it is missing
NOTHING: Final = Markup('<span class="none">–</span>')


def visible(text: str) -> str:
    """Return a text without control characters: those of ASCII become symbols, others and marks of text direction become U+FFFD."""
    return "".join(map(_seen, text))


def _seen(char: str) -> str:
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\ufffd" if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else char


def name(value: Any) -> Markup:
    """Return the markup of a name of a group, topic or filter, as it is spelled in the lake."""
    return NOTHING if value is None else Markup("<bdi>{}</bdi>").format(visible(str(value)))


def names(values: Any) -> Markup:
    """Return the markup of several names."""
    return Markup(", ").join(map(name, values)) or NOTHING


def words(value: Any) -> Markup:
    """Return the markup of a plain text."""
    return NOTHING if value is None else Markup("{}").format(visible(str(value)))


def _badge(tone: Tone, text: str) -> Markup:
    return Markup('<span class="badge {}">{}</span>').format(tone, visible(text))


def status(value: Any) -> Markup:
    """Return the markup of a status of group_status, in the colour of its tone."""
    return NOTHING if value is None else _badge(status_tone(str(value)), str(value))


def outcome(value: Any) -> Markup:
    """Return the markup of an ending of a pull, in the colour of its tone."""
    return NOTHING if value is None else _badge(outcome_tone(str(value)), str(value))


def count(value: Any) -> Markup:
    """Return the markup of a whole number with commas."""
    return NOTHING if value is None else Markup("{}").format(f"{int(value):,}")


def counted(value: int | None, one: str, more: str = "") -> Markup:
    """Return the markup of a number with its noun, in the singular or in the plural; arguments are those of `quantities.counted`."""
    return NOTHING if value is None else Markup("{}").format(count_text(value, one, more))


def _figure(text: str) -> Markup:
    """Return the markup of a number with its unit, which does not wrap."""
    return Markup("{}").format(text.replace(" ", "\N{NO-BREAK SPACE}"))


def size(value: Any) -> Markup:
    """Return the markup of a number of bytes, in the unit that fits."""
    if value is None:
        return NOTHING
    return _figure(size_text(float(value)))


def duration(value: Any) -> Markup:
    """Return the markup of a number of ms, in the two units that fit."""
    if value is None:
        return NOTHING
    return _figure(duration_text(int(value)))


def share(value: Any) -> Markup:
    """Return the markup of a share in percent."""
    return NOTHING if value is None else _figure(percent_text(float(value)))


def times(value: Any) -> Markup:
    """Return the markup of a factor."""
    return NOTHING if value is None else _figure(f"{float(value):,.1f} ×")


def rate(value: Any) -> Markup:
    """Return the markup of a rate in messages a second."""
    return NOTHING if value is None else _figure(rate_text(float(value)))


def moment(value: Any) -> Markup:
    """Return the markup of ms since 1970 as a time in UTC."""
    time = None if value is None else utc_time(int(value))
    return NOTHING if time is None else Markup('<span class="time">{}</span>').format(f"{time:%Y-%m-%d %H:%M:%S}")


def change(value: Any) -> Markup:
    """Return the markup of a difference of whole numbers, with its sign."""
    return NOTHING if value is None else Markup("{}").format(f"{int(value):+,}" if value else "0")


def span(value: Any) -> Markup:
    """Return the markup of two times in ms since 1970."""
    return Markup("{} to {}").format(*map(moment, value))


def clock(millis: int) -> str:
    """Return the time of day of ms since 1970, for a place below a date."""
    time = utc_time(millis)
    return "–" if time is None else f"{time:%m-%d %H:%M:%S}"
