"""Charts of the report: matplotlib's SVG, adapted to dark and light pages and to phones.

Rule: matplotlib places axes, ticks and marks. Colours become variables of the page's style sheet: the colour of a name means nothing,
the colour of a status means a tone. Each bin of time has its figures in a <title>, which browsers show as a tooltip without a script. Each
chart is on the page three times, for wide windows, for others and for phones; the style sheet shows one. All ticks of a time axis have one
form.
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
from enum import Enum
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator

from pipeline.report import forms
from pipeline.report.tone import Tone
from pipeline.report.window import Window, ticks
from pipeline.settings.quantities import utc_time

# width and height in pixels at 1:1, and the greatest number of ticks on the axis of time
_SIZES: Final = {"broad": (1280, 280, 12), "wide": (880, 260, 8), "narrow": (370, 240, 4)}
_INK, _GRID = "#0000fe", "#0000fd"
# variables of the style sheet for series without a tone, and for those of each tone, in the order of the series
_NAMED: Final = tuple(f"s{number}" for number in range(8))
_TONED: Final = {tone: tuple(f"{tone}{number}" for number in range(4)) for tone in Tone}
# placeholders for these variables; not black, because matplotlib leaves out black as the default of SVG
_PLACEHOLDERS: Final = {
    name: f"#0000{160 + place:02x}" for place, name in enumerate((*_NAMED, *(name for names in _TONED.values() for name in names)))
}
_VARIABLES: Final = {_INK: "var(--ink)", _GRID: "var(--grid)"} | {colour: f"var(--{name})" for name, colour in _PLACEHOLDERS.items()}
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
_SECOND, _MINUTE, _DAY = 1000, 60_000, 86_400_000
_COLOUR = re.compile(r"#0000[0-9a-f]{2}")
# a third of a picture, which is removed: fonts, because the page sets them, and digits after a hundredth of a pixel
_NEEDLESS = re.compile(r"font-family: [^;]*; |(?<=\.\d\d)\d+")
_SVG = "{http://www.w3.org/2000/svg}"


class Shape(Enum):
    """How the values of a chart are drawn."""

    LINES = "lines"
    STACKED = "stacked bars"


@dataclass(frozen=True, slots=True)
class Series:
    """A line or a layer of a chart: a value for each bin, None if it is unknown; with a tone if it is a status."""

    label: str
    values: Sequence[int | None]
    tone: Tone | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Figures over time.

    Attributes:
        shape: lines, with a point at the end of each bin, or stacked bars.
        unit: unit of the values.
        window: the bins.
        series: the lines or layers; at most as many are drawn as there are colours.
    """

    shape: Shape
    unit: str
    window: Window
    series: Sequence[Series]


def layers(by_label: Mapping[str, Counter[int | None]], window: Window, tone: Callable[[str], Tone] | None = None) -> list[Series]:
    """Return a layer of a stacked chart for each label, with 0 for a bin without a count."""
    return [
        Series(label, tuple(bins[number] for number in range(window.bins)), None if tone is None else tone(label))
        for label, bins in by_label.items()
    ]


def drawn(anchor: str, chart: Chart) -> Markup:
    """Return the markup of a chart and its legend.

    Args:
        anchor: anchor of the question; makes the ids of the chart's elements unique.
        chart: the figures.
    """
    coloured = list(zip(chart.series, _colours(chart.series), strict=False))
    pictures = Markup("").join(_svg(f"{anchor}-{form}", form, chart, coloured) for form in _SIZES)
    return pictures + _legend(chart.shape, coloured)


def _colours(series: Sequence[Series]) -> Sequence[str]:
    """Return the variable of the style sheet for each series; series after the last colour get none."""
    used = Counter[Tone | None]()
    names = []
    for one in series[: len(_NAMED)]:
        palette = _NAMED if one.tone is None else _TONED[one.tone]
        names.append(palette[used[one.tone] % len(palette)])
        used[one.tone] += 1
    return names


def _draw_lines(axes: Axes, window: Window, coloured: Sequence[tuple[Series, str]]) -> None:
    ends = _edges(window)[1:]
    for one, colour in coloured:
        values = np.array([np.nan if value is None else value for value in one.values], float)
        marks: dict[str, Any] = {"marker": "o", "markersize": 2.5} if len(values) < 90 else {}
        axes.plot(ends, values, color=_PLACEHOLDERS[colour], linewidth=1.8, solid_joinstyle="round", **marks)


def _draw_layers(axes: Axes, window: Window, coloured: Sequence[tuple[Series, str]]) -> None:
    """Draw each layer as one path: a patch for each bar takes most of the report's time."""
    edges = _edges(window)
    left, right = edges[:-1], edges[:-1] + np.diff(edges) * 0.92
    floor = np.zeros(window.bins)
    for one, colour in coloured:
        top = floor + np.array([value or 0 for value in one.values], float)
        corners = np.stack([(left, floor), (left, top), (right, top), (right, floor)]).transpose(2, 0, 1)[top > floor]
        bars = PathPatch(Path.make_compound_path_from_polys(corners), color=_PLACEHOLDERS[colour], linewidth=0)
        bars.set_in_layout(False)  # the axes have room for all bars
        axes.add_artist(bars)
        axes.update_datalim(corners.reshape(-1, 2))
        floor = top
    axes.autoscale_view()


def _edges(window: Window) -> Any:
    millis = np.arange(window.bins + 1) * window.width + window.start
    return date2num(millis.astype("datetime64[ms]"))


def _svg(name: str, form: str, chart: Chart, coloured: Sequence[tuple[Series, str]]) -> Markup:
    width, height, most = _SIZES[form]
    window = chart.window
    with mpl.rc_context(_RC | {"svg.hashsalt": name}):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        (_draw_lines if chart.shape is Shape.LINES else _draw_layers)(axes, window, coloured)
        axes.set_title(chart.unit, loc="left", fontsize=12)
        axes.set_axisbelow(True)
        axes.grid(visible=True, axis="y", linewidth=0.8)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(bottom=0)
        axes.set_xlim(*_edges(window)[[0, -1]])
        axes.margins(x=0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        marks = ticks(window, most)
        texts, label = tick_texts(marks)
        axes.xaxis.set_major_locator(FixedLocator(date2num(np.array(marks).astype("datetime64[ms]"))))
        axes.xaxis.set_major_formatter(FixedFormatter(texts))
        axes.set_xlabel(label, loc="right", fontsize=12)
        written = io.BytesIO()
        canvas.print_svg(written, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        box = axes.get_window_extent()
    root = ET.fromstring(written.getvalue())  # noqa: S314 (matplotlib has just written it)
    _make_ours(root, name)
    root.attrib |= {"class": f"chart {form}", "role": "img", "aria-label": f"{chart.unit} over time; the legend has the figures"}
    _add_titles(root, (box.x0, height - box.y1, box.width, box.height), window, chart.series)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 (a tree that was serialized)


def tick_texts(marks: range) -> tuple[list[str], str]:
    """Return the texts of ticks (ms since 1970), all of one form, and the label of the axis: UTC, with the day if the texts lack it."""
    times = [time for mark in marks if (time := utc_time(mark)) is not None]
    days = {time.date() for time in times}
    if marks.step % _DAY == 0:
        return [f"{time:%Y-%m-%d}" for time in times], "UTC"
    clock = "%H:%M" if marks.step % _MINUTE == 0 else "%H:%M:%S" if marks.step % _SECOND == 0 else "%H:%M:%S.%f"
    if len(days) > 1:
        clock = f"%m-%d {clock}"
    texts = [time.strftime(clock) for time in times]
    cut = -3 if clock.endswith("%f") else None
    return [text[:cut] for text in texts], f"{days.pop():%Y-%m-%d}, UTC" if len(days) == 1 else "UTC"


def _make_ours(root: ET.Element, name: str) -> None:
    """Remove what a page does not need, replace colours by variables, make ids unique on the page; HTML has no namespaces."""
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
                coloured = _COLOUR.sub(lambda found: _VARIABLES.get(found[0], found[0]), _NEEDLESS.sub("", value))
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


def _legend(shape: Shape, coloured: Sequence[tuple[Series, str]]) -> Markup:
    """Return the names of the series with their colours, and the last known value of a line or the sum of a layer."""
    entry = Markup('<li><span class="key" style="--key: var(--{})"></span>{}<span class="figure">{}</span></li>')
    whole = _last if shape is Shape.LINES else _sum
    entries = [entry.format(colour, forms.name(one.label), forms.count(whole(one.values))) for one, colour in coloured]
    what = "In the end" if shape is Shape.LINES else "In all"
    return Markup('<ul class="legend"><li class="figure">{}:</li>{}</ul>').format(what, Markup("").join(entries))


def _last(values: Sequence[int | None]) -> int | None:
    return next((value for value in reversed(values) if value is not None), None)


def _sum(values: Sequence[int | None]) -> int:
    return sum(value or 0 for value in values)
