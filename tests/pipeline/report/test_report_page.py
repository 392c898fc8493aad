"""The page of the report without Spark: how values are written, bins of time, pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from pipeline.report import forms
from pipeline.report.charts import Chart, Series, Shape, drawn, tick_texts
from pipeline.report.tone import Tone
from pipeline.report.window import Window, ticks, window_of
from pipeline.settings.quantities import LAST_OF_YEAR_9999, utc_time

NONE = str(forms.NOTHING)


@pytest.mark.parametrize(
    ("form", "value", "written"),
    [
        (forms.count, None, NONE),
        (forms.count, 1_234_567, "1,234,567"),
        (forms.count, -3, "-3"),
        (forms.size, 0, "0 B"),
        (forms.size, 1023, "1,023 B"),
        (forms.size, 1024, "1.0 KiB"),
        (forms.size, 300 * 1024**2, "300 MiB"),
        (forms.size, 5 * 1024**5, "5,120 TiB"),
        (forms.duration, None, NONE),
        (forms.duration, 0, "0 ms"),
        (forms.duration, 999, "999 ms"),
        (forms.duration, 61_000, "1 min 1 s"),
        (forms.duration, 3_600_000 + 999, "1 h"),
        (forms.duration, 90_061_000, "1 d 1 h"),
        (forms.duration, -1500, "-1 s"),
        (forms.duration, 9 * 10**18, "104,166,666,666 d 16 h"),
        (forms.share, 0, "0 %"),
        (forms.share, 0.0001, "&lt; 0.1 %"),
        (forms.share, 0.9999, "&gt; 99.9 %"),
        (forms.share, 1, "100 %"),
        (forms.share, 0.034, "3.4 %"),
        (forms.share, 0.0425, "4.3 %"),
        (forms.share, 0.0445, "4.5 %"),
        (forms.share, 0.145, "15 %"),
        (forms.moment, 0, '<span class="time">1970-01-01 00:00:00</span>'),
        (forms.moment, 2**62, NONE),
        (forms.moment, -1, NONE),
        (forms.name, "<b>&'\"", "<bdi>&lt;b&gt;&amp;&#39;&#34;</bdi>"),
        (forms.name, "a\x00\u202eb\nc", "<bdi>a\u2400\ufffdb\u240ac</bdi>"),
        (forms.words, Markup("<b>"), "&lt;b&gt;"),
        (forms.times, 2.349, "2.3 ×"),
        (forms.rate, 0.25, "0.2/s"),
        (forms.rate, 0.04, "&lt; 0.1/s"),
        (forms.rate, 0, "0.0/s"),
    ],
)
def test_values_are_written_so(form: Any, value: Any, written: str) -> None:
    assert str(form(value)).replace("\N{NO-BREAK SPACE}", " ") == written


@given(st.text())
def test_no_name_becomes_markup(name: str) -> None:
    text = str(forms.name(name)).removeprefix("<bdi>").removesuffix("</bdi>")
    assert not set("<>\"'\0\u202e") & set(text)


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 253_402_300_799_999))
def test_bins_are_few_and_hold_the_whole_stretch(one: int, other: int) -> None:
    first, last = sorted((one, other))
    window = window_of(first, last)
    assert 1 <= window.bins <= 60
    assert window.start <= first
    assert window.start % window.width == 0
    assert window.end - window.width <= last < window.end


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 253_402_300_799_999), st.integers(3, 9))
def test_ticks_are_some_round_moments_within_the_stretch(one: int, other: int, most: int) -> None:
    window = window_of(*sorted((one, other)))
    marks = ticks(window, most)
    assert len(marks) <= most
    assert all(window.start <= mark <= window.end for mark in marks)


@pytest.mark.parametrize("span", [0, 1000, 150_000, 7_200_000, 86_400_000, 40 * 86_400_000, 3000 * 86_400_000, 250_000_000_000_000])
def test_an_axis_of_any_length_can_be_drawn(span: int) -> None:
    window = window_of(0, span)
    assert "<svg" in drawn("x", Chart(Shape.LINES, "Messages", window, [Series("a", (1,) * window.bins)]))


@pytest.mark.parametrize(
    ("span", "first", "label"),
    [
        (500, "00:00:00.000", "1970-01-01, UTC"),
        (9_000, "00:00:00", "1970-01-01, UTC"),
        (3 * 3_600_000, "00:00", "1970-01-01, UTC"),
        (30 * 3_600_000, "01-01 00:00", "UTC"),
        (40 * 86_400_000, "1970-01-01", "UTC"),
        (3000 * 86_400_000, "1970-01-01", "UTC"),
    ],
)
@pytest.mark.parametrize("most", [4, 8, 12])
def test_all_ticks_of_an_axis_have_one_form(span: int, first: str, label: str, most: int) -> None:
    marks = ticks(window_of(0, span), most)
    texts, told = tick_texts(marks)
    assert (texts[0], told, len(texts)) == (first, label, len(marks))
    assert len({re.sub(r"\d", "0", text) for text in texts}) == 1
    assert len(set(texts)) == len(texts)


def test_the_colours_of_statuses_are_those_of_their_tones_and_of_nothing_else() -> None:
    window = window_of(0, 1000)
    tones = (Tone.GOOD, None, Tone.BAD, Tone.BAD, None)
    chart = Chart(Shape.STACKED, "Pulls", window, [Series(str(place), (1,) * window.bins, tone) for place, tone in enumerate(tones)])
    picture = str(drawn("x", chart))
    assert re.findall(r"--key: var\(--(\w+)\)", picture) == ["good0", "s0", "bad0", "bad1", "s1"]
    assert set(re.findall(r"fill: var\(--(\w+)\)", picture)) - {"ink", "grid"} == {"good0", "s0", "bad0", "bad1", "s1"}


def test_an_axis_whose_last_bin_ends_behind_the_last_year_can_be_drawn() -> None:
    window = window_of(0, LAST_OF_YEAR_9999)
    assert window.end > LAST_OF_YEAR_9999
    assert all(utc_time(mark) for most in range(3, 10) for mark in ticks(window, most))
    for shape in Shape:
        assert "<svg" in drawn("x", Chart(shape, "Messages", window, [Series("a", (1,) * window.bins)]))


WINDOW = Window(1_700_000_000_000, 10_000, 12)
SERIES = [
    Series("$\\frac{", (None, None, *range(10))),
    Series("<b>", tuple(range(0, 1200, 100))),
    Series("_hidden", (None,) * 12),
    Series("{0}", (0,) * 12),
]


@pytest.mark.parametrize("shape", Shape)
def test_a_picture_is_well_formed_scales_and_takes_its_colours_from_the_page(shape: Shape) -> None:
    picture = str(drawn("x", Chart(shape, "Messages", WINDOW, SERIES)))
    svgs = re.findall(r"<svg .*?</svg>", picture, re.DOTALL)
    assert len(svgs) == 3
    for svg in svgs:
        root = ET.fromstring(svg)  # noqa: S314 (our own)
        assert {"viewBox", "role", "aria-label", "class"} <= root.attrib.keys()
        assert not {"width", "height"} & root.attrib.keys()
        titles = [title.text or "" for title in root.iter("title")]
        assert len(titles) == WINDOW.bins
        assert "<b>: 1,100" in titles[-1]
        assert "$\\frac{: 9" in titles[-1]
        assert "Messages" in [text.text for text in root.iter("text")], "text is text"
    assert "var(--s1)" in picture
    assert "#000" not in picture.replace("&#0", "")
    ids = re.findall(r' id="([^"]*)"', picture)
    assert len(ids) == len(set(ids))
    assert all(f'"{used}"' in picture for used in re.findall(r"url\(#([^)]+)\)", picture))


def test_the_same_figures_give_the_same_picture() -> None:
    chart = Chart(Shape.LINES, "Messages", WINDOW, SERIES)
    assert drawn("x", chart) == drawn("x", chart)
