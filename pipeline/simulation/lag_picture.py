"""The chart of lag over time, a line for each variant, as a self-contained SVG file for light and dark pages.

Rule: matplotlib draws; a style sheet in the file sets the ink for light and for dark pages. The tooltip of a line has its name.
Surprise: matplotlib gets no text of a user, because its fonts lack letters. It draws placeholders, which the texts replace afterwards.
"""

from __future__ import annotations

import io
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

# pixels
_WIDTH, _HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 34, 60
_TITLE_LINE, _LEGEND_LINE = 22, 20
# greatest numbers of letters in a line of the title, and in a name of the legend
_TITLE_LETTERS, _NAME_LETTERS = 100, 90
_COLOURS = ("#3b7dd8", "#d9822b", "#2f9e62", "#c94f7c", "#8a63d2", "#a8892c", "#3aa6b9", "#d3493f")
# for lines that share a colour
_DASHES: Final[tuple[Any, ...]] = ("solid", (0, (7, 3)), (0, (2, 3)))
_TICKS = 6
_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200, 86_400, 172_800, 864_000)
# placeholder for the colour of the text, which the style sheet sets
_INK = "#0000fe"
_STYLE = "svg{color:#222;background:#fff}@media(prefers-color-scheme:dark){svg{color:#ddd;background:#181a1d}}"
_RC: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lag",
    "text.parse_math": False,
    "font.size": 13,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _INK),
    "grid.alpha": 0.15,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.spines.bottom": False,
    "path.simplify": False,
}
_NAMESPACE = "http://www.w3.org/2000/svg"
_SVG = f"{{{_NAMESPACE}}}"


def lag_picture(title: str, lines: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    """Return the SVG text of the chart; `lines` has the points (ms, lag in messages) of each variant by its name."""
    wrapped = textwrap.wrap(title, _TITLE_LETTERS, max_lines=3, placeholder=" …")
    names = [f"{_short(name)}: {_peak(points)}" for name, points in lines.items()]
    written = io.BytesIO()
    with mpl.rc_context(_RC):
        figure = _figure(len(wrapped), list(lines.values()))
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    texts = {f"title{number}": line for number, line in enumerate(wrapped)} | {f"name{number}": name for number, name in enumerate(names)}
    tooltips = [f"{name}: {_peak(points)}" for name, points in lines.items()]
    return _with_texts(written.getvalue().decode().replace(_INK, "currentColor"), title, texts, tooltips)


def _figure(title_lines: int, lines: Sequence[Sequence[tuple[int, int]]]) -> Figure:
    """Return the figure: the lines of the title, the axes, and a row of the legend for each line of the chart."""
    above, below = _TITLE_LINE * title_lines, _LEGEND_LINE * len(lines)
    height = above + _HEIGHT + below
    figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
    box = (_LEFT, below + _BOTTOM, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM)
    axes = figure.add_axes((box[0] / _WIDTH, box[1] / height, box[2] / _WIDTH, box[3] / height))
    _draw(axes, lines)
    for number in range(title_lines):
        text = figure.text(16 / _WIDTH, 1 - _TITLE_LINE * (number + 1) / height, f"title{number}", fontsize=16, fontweight="bold")
        text.set_gid(text.get_text())
    for number, line in enumerate(axes.lines):
        y = (_LEGEND_LINE * (len(lines) - number) - _LEGEND_LINE / 2) / height
        key = ((_LEFT - 10) / _WIDTH, (_LEFT + 14) / _WIDTH)
        figure.add_artist(Line2D(key, (y, y), color=line.get_color(), linestyle=line.get_linestyle(), linewidth=4))
        figure.text((_LEFT + 22) / _WIDTH, y, f"name{number}", verticalalignment="center")
    return figure


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LETTERS else f"{name[:_NAME_LETTERS]}…"


def _peak(points: Sequence[tuple[int, int]]) -> str:
    return f"at most {max((lag for _, lag in points), default=0):,} behind"


def _draw(axes: Axes, lines: Sequence[Sequence[tuple[int, int]]]) -> None:
    ended = max((points[-1][0] for points in lines if points), default=0) / 1000 or 1
    for number, points in enumerate(lines):
        [line] = axes.plot([at / 1000 for at, _ in points], [lag for _, lag in points], linewidth=2, gid=f"line{number}")
        line.set_color(_COLOURS[number % len(_COLOURS)])
        line.set_linestyle(_DASHES[number // len(_COLOURS) % len(_DASHES)])
    axes.set_xlim(0, ended)
    axes.set_ylim(0, max((lag for points in lines for _, lag in points), default=0) or 1)
    axes.grid(visible=True, axis="y")
    axes.tick_params(length=0, pad=8)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=_TICKS, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda lag, _: f"{lag:,.0f}"))
    axes.xaxis.set_major_locator(MultipleLocator(next((one for one in _SECONDS if ended / one <= 2 * _TICKS), _SECONDS[-1])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _clock(round(seconds))))
    axes.set_title("messages behind", loc="left", fontsize=13, x=-(_LEFT - 16) / (_WIDTH - _LEFT - _RIGHT))
    axes.set_xlabel("virtual time", loc="right")


def _with_texts(svg: str, title: str, texts: Mapping[str, str], tooltips: Sequence[str]) -> str:
    """Return the picture with the texts of the user: in place of the placeholders, as its title, and as tooltips of the lines."""
    ET.register_namespace("", _NAMESPACE)
    root = ET.fromstring(svg)  # noqa: S314 (matplotlib has just written it)
    for name in ("width", "height"):
        del root.attrib[name]
    for element in list(_elements(root, "text")):
        element.text = texts.get(element.text or "", element.text)
    for number, tooltip in enumerate(tooltips):
        line = next(one for one in _elements(root, "g") if one.get("id") == f"line{number}")
        ET.SubElement(line, f"{_SVG}title").text = tooltip
    root.set("role", "img")
    for name, content in (("style", _STYLE), ("title", title)):
        first = ET.Element(f"{_SVG}{name}")
        first.text = content
        root.insert(0, first)
    return ET.tostring(root, encoding="unicode") + "\n"


def _elements(root: ET.Element, name: str) -> Iterator[ET.Element]:
    return root.iter(f"{_SVG}{name}")


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours}h" if not minute else f"{hours}h{minute:02}"
    return f"{minute}m" if minute and not second else f"{minute}m{second:02}" if minute else f"{second}s"
