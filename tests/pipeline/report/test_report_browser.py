"""The page of the report in headless Chromium: nothing runs, nothing is fetched, it fits a phone and paper, and is read in the dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from markupsafe import Markup

from pipeline.report import forms
from pipeline.report.build import QUESTIONS
from pipeline.report.page import Section, page
from pipeline.report.question import Row, Scope
from pipeline.report.window import Window
from tests.makers.report_lakes import HOSTILE, START
from tests.runs.browsers import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WINDOW = Window(START, 10_000, 30)
SCOPE = Scope("'my lake'", ("broker-a", HOSTILE[0]), imported=True, observed=WINDOW, captured=WINDOW, replayed=True)
NAMES = {
    *("brokerName", "consumerGroup", "topic", "status", "why", "reason", "outcome", "expression", "expressionType", "basis"),
}
COLUMNS = (
    *("messagesBehind", "retriesBehind", "dlqMessages", "lagBytes", "lagMillisMax", "queues", "queuesUnknown", "queuesNegative", "groups"),
    *("queuesUnknownInAll",),
    *("groupsBehind", "bin", "lag", "queueId", "lagMillis", "catchUpMillis", "pulls", "share", "pullsInAll", "held", "pullsForNothing"),
    *("shareForNothing", "offsetsPassed", "messageCount", "efficiency", "corrections", "lostOffsets", "firstStarts", "offsets"),
    *("readAgain", "last", "correctionsInAll", "unknown", "deletedAt"),
    *("lostMessages", "messagesToLoss", "timeToLossMillis", "lostInAll", "queuesInAll", "queuesLost", "messages", "bytes"),
    *("messagesShare", "timesFairShare", "messagesPerSecond", "place"),
)


def row(number: int) -> Row:
    """A row that every question can read, with hostile names."""
    texts: dict[str, Any] = {name: HOSTILE[(number + place) % len(HOSTILE)] for place, name in enumerate(sorted(NAMES))}
    return (
        {name: 17 * number + place for place, name in enumerate(COLUMNS)} | texts | {"bin": number % WINDOW.bins, "brokerName": "broker-a"}
    )


def html() -> str:
    """The page of all questions, with an answer to each."""
    rows: Sequence[Row] = [row(number) for number in range(1, 40)]
    sections = []
    for question in QUESTIONS:
        queries = question.queries(SCOPE)
        sections.append(Section(question, queries, question.answer(SCOPE, [rows] * len(queries))))
    return page(SCOPE, [("Brokers", forms.name(HOSTILE[1])), ("As of", Markup("noon"))], sections)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html(), "utf-8")
    return file


def opened(browser: Browser, file: Path, **options: Any) -> tuple[Page, list[str]]:
    """The page as a browser has it, and what it asked for or complained of."""
    heard: list[str] = []
    view = browser.new_page(**options)
    view.on("request", lambda request: heard.append(request.url))
    view.on("console", lambda message: heard.append(message.text))
    view.on("pageerror", lambda error: heard.append(str(error)))
    view.goto(file.as_uri())
    return view, heard


def test_nothing_runs_and_nothing_is_fetched(browser: Browser, report: Path) -> None:
    view, heard = opened(browser, report)
    view.wait_for_timeout(200)
    assert heard == [report.as_uri()]
    assert view.title() == "pullsim report: broker-a and " + HOSTILE[0]
    assert view.locator("script, img, iframe, object, link").count() == 0
    assert HOSTILE[0] in view.locator("bdi").all_text_contents()


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
def test_the_page_is_never_wider_than_the_window(browser: Browser, report: Path, width: int) -> None:
    view, _ = opened(browser, report, viewport={"width": width, "height": 800})
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    shown = "narrow" if width <= 640 else "wide"
    assert {chart.get_attribute("class") for chart in view.locator("svg:visible").all()} == {f"chart {shown}"}
    sizes = view.evaluate(
        """[...document.querySelectorAll('svg')].filter(svg => svg.checkVisibility())
          .flatMap(svg => [...svg.querySelectorAll('text')].map(text => text.getBoundingClientRect().height))"""
    )
    assert min(sizes) >= 9, "text of pictures can be read"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Browser, report: Path, scheme: Any) -> None:
    view, _ = opened(browser, report, color_scheme=scheme)
    colours = view.evaluate(
        """() => {
          const style = getComputedStyle(document.documentElement);
          const names = ['paper', 'card', 'ink', 'soft', 'link', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7'];
          return Object.fromEntries(names.map(name => [name, style.getPropertyValue('--' + name).trim()]));
        }"""
    )
    for name in ("ink", "soft", "link"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
        assert contrast(colours[name], colours["card"]) >= 4.5, name
    for number in range(8):
        assert contrast(colours[f"s{number}"], colours["paper"]) >= 2, number


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 has it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_bin_of_a_picture_tells_its_figures(browser: Browser, report: Path) -> None:
    view, _ = opened(browser, report)
    titles = view.locator("#statuses svg.wide title").all_text_contents()
    assert len(titles) == WINDOW.bins
    assert all("UTC" in title for title in titles)


def test_it_prints_without_cutting_a_table_off(browser: Browser, report: Path) -> None:
    view, _ = opened(browser, report)
    view.emulate_media(media="print", color_scheme="dark")
    view.set_viewport_size({"width": 680, "height": 960})  # A4 between its margins
    assert view.evaluate("document.documentElement.scrollWidth") <= 680
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white in the dark too"
    assert len(view.pdf(format="A4")) > 10_000
