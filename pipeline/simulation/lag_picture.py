"""The chart of lag over time, a line for each variant, as a self-contained SVG file for light and dark pages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import count

_WIDTH, _HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 34, 60
_TITLE_LINE, _LEGEND_LINE = 22, 20
# greatest numbers of letters in a line of the title, and in a name of the legend
_TITLE_LETTERS, _NAME_LETTERS = 100, 90
_COLOURS = ("#3b7dd8", "#d9822b", "#2f9e62", "#c94f7c", "#8a63d2", "#a8892c", "#3aa6b9", "#d3493f")
# dash patterns for lines that share a colour
_DASHES = ("none", "7 3", "2 3")
_TICKS = 6
_STEPS = (1, 2, 5)
_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200, 86_400, 172_800, 864_000)
_STYLE = (
    "svg{color:#222;background:#fff;font:13px sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd;background:#181a1d}}"
    ".grid{stroke:currentColor;stroke-opacity:.15}text{fill:currentColor}.title{font-size:16px;font-weight:bold}polyline{fill:none;stroke-width:2;stroke-linejoin:round}"
)


def lag_picture(title: str, lines: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    """Return the SVG text of the chart; `lines` has the points (ms, lag in messages) of each variant by its name."""
    ended = max((points[-1][0] for points in lines.values() if points), default=0) or 1
    most = max((lag for points in lines.values() for _, lag in points), default=0) or 1
    wrapped = textwrap.wrap(title, _TITLE_LETTERS, max_lines=3, placeholder=" …")
    above, below = _TITLE_LINE * len(wrapped), _LEGEND_LINE * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {above + _HEIGHT + below}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        *(f'<text class="title" x="16" y="{_TITLE_LINE * (number + 1)}">{escape(line)}</text>' for number, line in enumerate(wrapped)),
        f'<g transform="translate(0 {above})">',
        *_axes(ended, most),
    ]
    for number, (name, points) in enumerate(lines.items()):
        stroke = f'stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-dasharray="{_DASHES[number // len(_COLOURS) % len(_DASHES)]}"'
        where = " ".join(f"{_x(at, ended):.1f},{_y(lag, most):.1f}" for at, lag in points)
        peak = f"at most {max((lag for _, lag in points), default=0):,} behind"
        parts.append(f'<polyline {stroke} points="{where}"><title>{escape(name)}: {peak}</title></polyline>')
        y = _HEIGHT + _LEGEND_LINE * number
        shown = name if len(name) <= _NAME_LETTERS else f"{name[:_NAME_LETTERS]}…"
        parts.append(
            f'<path {stroke} stroke-width="4" d="M{_LEFT - 10} {y - 4}h24"/><text x="{_LEFT + 22}" y="{y}">{escape(shown)}: {peak}</text>'
        )
    return "".join([*parts, "</g></svg>\n"])


def _x(at: float, ended: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / ended


def _y(lag: float, most: int) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * lag / most


def _axes(ended: int, most: int) -> Iterator[str]:
    step = _count_step(most)
    for lag in range(0, most + 1, step):
        y = _y(lag, most)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{lag:,}</text>'
    seconds = next((one for one in _SECONDS if ended / 1000 / one <= 2 * _TICKS), _SECONDS[-1])
    for at in range(0, ended + 1, seconds * 1000):
        yield f'<text x="{_x(at, ended):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{_clock(at // 1000)}</text>'
    yield f'<text x="16" y="{_TOP - 16}">messages behind</text>'
    yield f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - _BOTTOM + 38}" text-anchor="end">virtual time</text>'


def _count_step(most: int) -> int:
    """Return the distance of the grid lines: 1, 2 or 5 times a power of ten, for about five lines up to `most`."""
    steps = (one * 10**power for power in count() for one in _STEPS)
    found: int = next(step for step in steps if most / step <= _TICKS)
    return found


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours}h" if not minute else f"{hours}h{minute:02}"
    return f"{minute}m" if minute and not second else f"{minute}m{second:02}" if minute else f"{second}s"
