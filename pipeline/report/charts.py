"""Charts of the report: matplotlib's SVG, adapted to dark and light pages and to phones.

Rule: matplotlib places axes, ticks and marks. Colours become variables of the page's style sheet. Each bin of time has its figures in a
<title>, which browsers show as a tooltip without a script. Each chart is on the page twice, wide and narrow; the style sheet shows one.
Surprise: names of groups and topics are never passed to matplotlib, which reads a text with dollar signs as a formula. They are in the
legend and in titles.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from pipeline.report import forms
from pipeline.report.window import Window, ticks

# width and height in pixels at 1:1
_SIZES: Final = {"wide": (880, 260), "narrow": (370, 240)}
_INK, _GRID = "#0000fe", "#0000fd"
# placeholders for --s0, --s1, ... of the style sheet; not black, because matplotlib leaves out black as the default of SVG
_COLOURS: Final = tuple(f"#0000{160 + number:02x}" for number in range(8))
_VARIABLES: Final = {_INK: "var(--ink)", _GRID: "var(--grid)"} | {one: f"var(--s{number})" for number, one in enumerate(_COLOURS)}
_RC: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "grid.color": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "path.simplify": False,
}
_COLOUR = re.compile(r"#0000[0-9a-f]{2}")
_SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, slots=True)
class Series:
    """A line or a layer of a chart: a value for each bin, None if it is unknown."""

    label: str
    values: Sequence[int | None]


def layers(window: Window, by_label: Mapping[str, Counter[int | None]]) -> list[Series]:
    """Return a layer of a stacked chart for each label, with 0 for a bin without a count."""
    return [Series(label, tuple(bins[number] for number in range(window.bins))) for label, bins in by_label.items()]


def line_chart(anchor: str, unit: str, window: Window, series: Sequence[Series]) -> Markup:
    """Return a chart of lines over time, with a point at the end of each bin.

    Args:
        anchor: anchor of the question; makes the ids of the chart's elements unique.
        unit: unit of the values.
        window: the bins.
        series: the lines, at most as many as there are colours.
    """

    def draw(axes: Axes) -> None:
        ends = _edges(window)[1:]
        for one, colour in zip(series, _COLOURS, strict=False):
            values = np.array([np.nan if value is None else value for value in one.values], float)
            marks: dict[str, Any] = {"marker": "o", "markersize": 2.5} if len(values) < 90 else {}
            axes.plot(ends, values, color=colour, linewidth=1.8, solid_joinstyle="round", **marks)

    last = [next((value for value in reversed(one.values) if value is not None), None) for one in series]
    return _pictures(anchor, unit, window, series, draw) + _legend("In the end", series, last)


def stacked_chart(anchor: str, unit: str, window: Window, series: Sequence[Series]) -> Markup:
    """Return a chart of stacked bars over time; the arguments are those of `line_chart`."""

    def draw(axes: Axes) -> None:
        edges = _edges(window)
        floor = np.zeros(window.bins)
        for one, colour in zip(series, _COLOURS, strict=False):
            values = np.array([value or 0 for value in one.values], float)
            axes.bar(edges[:-1], values, width=np.diff(edges) * 0.92, bottom=floor, align="edge", color=colour, linewidth=0)
            floor += values

    return _pictures(anchor, unit, window, series, draw) + _legend(
        "In all", series, [sum(value or 0 for value in one.values) for one in series]
    )


def _edges(window: Window) -> Any:
    millis = np.arange(window.bins + 1) * window.width + window.start
    return date2num(millis.astype("datetime64[ms]"))


def _pictures(anchor: str, unit: str, window: Window, series: Sequence[Series], draw: Callable[[Axes], None]) -> Markup:
    return Markup("").join(_svg(f"{anchor}-{form}", form, unit, window, series, draw) for form in _SIZES)


def _svg(name: str, form: str, unit: str, window: Window, series: Sequence[Series], draw: Callable[[Axes], None]) -> Markup:
    width, height = _SIZES[form]
    with mpl.rc_context(_RC | {"svg.hashsalt": name}):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.set_title(unit, loc="left", fontsize=12)
        axes.set_axisbelow(True)
        axes.grid(visible=True, axis="y", linewidth=0.8)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(bottom=0)
        axes.set_xlim(*_edges(window)[[0, -1]])
        axes.margins(x=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        locator = FixedLocator(date2num(np.array(ticks(window, 9 if form == "wide" else 5)).astype("datetime64[ms]")))
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        written = io.BytesIO()
        canvas.print_svg(written, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        box = axes.get_window_extent()
    root = ET.fromstring(written.getvalue())  # noqa: S314 (matplotlib has just written it)
    _make_ours(root, name)
    root.attrib |= {"class": f"chart {form}", "role": "img", "aria-label": f"{unit} over time; the legend has the figures"}
    _add_titles(root, (box.x0, height - box.y1, box.width, box.height), window, series)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 (a tree that was serialized)


def _make_ours(root: ET.Element, name: str) -> None:
    """Remove elements that a page does not need, and make all ids unique on the page; HTML has no namespaces."""
    for parent in root.iter():
        for child in [child for child in parent if child.tag.rpartition("}")[2] == "metadata"]:
            parent.remove(child)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            if key.endswith("href"):
                element.attrib["href"] = value.replace("#", f"#{name}-", 1)
            elif key != "id":
                coloured = _COLOUR.sub(lambda found: _VARIABLES.get(found[0], found[0]), value)
                element.attrib[key] = coloured.replace("url(#", f"url(#{name}-")
            elif value in used:
                element.attrib[key] = f"{name}-{value}"
    for unwanted in ("width", "height", "version"):
        root.attrib.pop(unwanted, None)


def _add_titles(root: ET.Element, box: tuple[float, float, float, float], window: Window, series: Sequence[Series]) -> None:
    """Add a transparent strip over each bin, with a title that has the bin's figures."""
    left, top, width, height = box
    for number in range(window.bins):
        lines = [f"{forms.clock(window.start + number * window.width)} – {forms.clock(window.start + (number + 1) * window.width)} UTC"]
        lines += [f"{forms.visible(one.label)}: {one.values[number]:,}" for one in series if one.values[number]]
        if len(lines) == 1 and not any(one.values[number] == 0 for one in series):
            continue
        place = {"x": left + width * number / window.bins, "y": top, "width": width / window.bins, "height": height}
        strip = ET.SubElement(root, "rect", {"class": "bin", **{key: f"{value:.2f}" for key, value in place.items()}})
        ET.SubElement(strip, "title").text = "\n".join(lines)


def _legend(what: str, series: Sequence[Series], figures: Sequence[int | None]) -> Markup:
    entries = [
        Markup('<li><span class="key s{}"></span>{}<span class="figure">{}</span></li>').format(
            number, forms.name(one.label), forms.count(figure)
        )
        for number, (one, figure) in enumerate(zip(series[: len(_COLOURS)], figures, strict=False))
    ]
    return Markup('<ul class="legend"><li class="figure">{}:</li>{}</ul>').format(what, Markup("").join(entries))
