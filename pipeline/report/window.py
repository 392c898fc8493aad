"""Time spans divided into bins of round widths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.settings.quantities import LAST_OF_YEAR_9999

_MOST_BINS: Final = 60
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_WIDTHS: Final = (
    *(100, 200, 500, _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 15 * _SECOND, 30 * _SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY),
)


@dataclass(frozen=True, slots=True)
class Window:
    """A time span divided into bins of one width.

    Attributes:
        start: begin of the first bin, ms since 1970.
        width: width of a bin, ms.
        bins: number of bins.
    """

    start: int
    width: int
    bins: int

    @property
    def end(self) -> int:
        """End of the last bin, ms since 1970."""
        return self.start + self.width * self.bins


def window_of(first: int, last: int) -> Window:
    """Return the window with both times (ms since 1970); its bins begin at multiples of their width."""
    width = _width(first, last, _MOST_BINS)
    start = first // width * width
    return Window(start, width, (last - start) // width + 1)


def ticks(window: Window, most: int) -> range:
    """Return round times within a window, ms since 1970, at most `most`; the last bin may end after the year 9999."""
    width = _width(window.start, window.end, most)
    return range(-(-window.start // width) * width, min(window.end, LAST_OF_YEAR_9999) + 1, width)


def _width(first: int, last: int, most: int) -> int:
    """Return the least round width that divides the span into at most `most` bins; above 30 days, any number of whole days."""
    fits = (width for width in _WIDTHS if last // width - first // width < most)
    return next(fits, None) or ((last - first) // (most - 1) // _DAY + 1) * _DAY
