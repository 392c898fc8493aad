"""The page of the report in headless Chromium: no script runs, nothing is fetched, it fits a phone and paper, and has a dark form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.asking import Row
from pipeline.report import forms
from pipeline.report.answered import Fact, Report, Section
from pipeline.report.build import QUESTIONS
from pipeline.report.page import page
from pipeline.report.scope import Scope
from pipeline.report.window import Window
from tests.makers.report_lakes import HOSTILE, START
from tests.runs.browsers import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WINDOW = Window(START, 10_000, 30)
SCOPE = Scope("'my lake'", ("broker-a", HOSTILE[0]), imported=True, stored=WINDOW, observed=WINDOW, captured=WINDOW, replayed=True)
NAMES = {
    *("brokerName", "consumerGroup", "topic", "status", "why", "reason", "outcome", "expression", "expressionType", "basis"),
    *("originTopic", "messageModel"),
}
COLUMNS = (
    *("messagesBehind", "retriesBehind", "dlqMessages", "lagBytes", "lagMillisMax", "queues", "queuesUnknown", "queuesNegative", "groups"),
    *("queuesUnknownInAll",),
    *("groupsBehind", "bin", "lag", "queueId", "lagMillis", "catchUpMillis", "pulls", "share", "pullsInAll", "held", "pullsForNothing"),
    *("shareForNothing", "offsetsPassed", "messageCount", "efficiency", "corrections", "lostOffsets", "firstStarts", "offsets"),
    *("readAgain", "last", "correctionsInAll", "unknown", "deletedAt", "sentBack", "dead", "everDead", "oldestMillis", "readers"),
    *("deadInAll", "groupsDead", "sentBackInAll", "clients", "connected", "seen", "gone", "busiestShare", "groupsWithout", "groupsUnsure"),
    *("bytesPerMessage", "rate", "peakRate", "peakAt", "messagesInAll", "bytesInAll", "topics"),
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
    facts = [Fact("brokers", "Brokers", [HOSTILE[1]], forms.names), Fact("made", "Made", START, forms.moment)]
    return page(Report(SCOPE, facts, sections, {}))


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
    """The page as a browser shows it, and the browser's requests and complaints."""
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
    shown = "narrow" if width <= 640 else "wide" if width < 1280 else "broad"
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
          const tones = ['good', 'plain', 'warn', 'bad'];
          const names = ['paper', 'card', 'ink', 'soft', 'link', 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7', ...tones];
          for (const tone of tones) for (let number = 0; number < 4; number++) names.push(tone + number);
          return Object.fromEntries(names.map(name => [name, style.getPropertyValue('--' + name).trim()]));
        }"""
    )
    for name in ("ink", "soft", "link", "good", "plain", "warn", "bad"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
        assert contrast(colours[name], colours["card"]) >= 4.5, name
    for name in [name for name in colours if name[-1].isdecimal()]:
        assert contrast(colours[name], colours["paper"]) >= 2, name


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
    titles = view.locator("#statuses svg.broad title").all_text_contents()
    assert len(titles) == WINDOW.bins
    assert all("UTC" in title for title in titles)


@pytest.mark.parametrize("width", [390, 1000, 1600])
def test_no_bar_runs_through_digits_and_all_begin_at_one_place(browser: Browser, report: Path, width: int) -> None:
    view, _ = opened(browser, report, viewport={"width": width, "height": 900})
    found = view.evaluate(
        """[...document.querySelectorAll('table')].map(table => [...table.querySelectorAll('.measure')].map(measure => {
          const [track, bar, digits] = [measure.firstElementChild, measure.querySelector('.bar'), measure.lastElementChild]
            .map(one => one.getBoundingClientRect());
          return {start: track.left, width: track.width, free: digits.left - bar.right, high: bar.height};
        })).filter(table => table.length)"""
    )
    assert len(found) > 5
    for table in found:
        assert min(cell["free"] for cell in table) >= 4
        assert min(cell["width"] for cell in table) >= 24
        assert min(cell["high"] for cell in table) > 5
        for edge in ("start", "width"):
            assert max(cell[edge] for cell in table) - min(cell[edge] for cell in table) < 1, "bars can be compared"


def test_a_phone_shows_that_a_table_goes_on_and_keeps_the_names(browser: Browser, report: Path) -> None:
    view, _ = opened(browser, report, viewport={"width": 390, "height": 844})
    assert view.locator("#behind .hint").is_visible()
    moved = view.evaluate(
        """() => {
          const rows = document.querySelector('#behind .rows');
          const name = rows.querySelector('td:first-child');
          const before = name.getBoundingClientRect().left;
          rows.scrollLeft = 200;
          return [rows.scrollLeft, name.getBoundingClientRect().left - before, rows.scrollWidth - rows.clientWidth];
        }"""
    )
    assert moved[0] == 200
    assert moved[1] == 0
    assert moved[2] > 200
    view.set_viewport_size({"width": 1600, "height": 900})
    assert not view.locator("#behind .hint").is_visible()


def test_the_contents_lead_to_each_question_and_say_how_it_stands(browser: Browser, report: Path) -> None:
    view, _ = opened(browser, report, viewport={"width": 1600, "height": 900})
    links = view.locator("nav a")
    assert [link.get_attribute("href") for link in links.all()] == ["#summary", *(f"#{question.anchor}" for question in QUESTIONS)]
    assert view.locator("nav").bounding_box()["x"] + 200 < view.locator("main").bounding_box()["x"]  # type: ignore[index]
    assert view.locator("main").bounding_box()["width"] > 1200  # type: ignore[index]
    links.last.click()
    assert view.locator("nav").bounding_box()["y"] >= 0, "the contents stay"  # type: ignore[index]
    badges = view.locator("h2 .badge").all_text_contents()
    assert len(badges) == len(QUESTIONS)
    assert set(badges) <= {"trouble", "look at it", "fine", "for your information"}


def test_it_prints_without_cutting_a_table_off(browser: Browser, report: Path) -> None:
    view, _ = opened(browser, report)
    view.emulate_media(media="print", color_scheme="dark")
    view.set_viewport_size({"width": 680, "height": 960})  # A4 between its margins
    assert view.evaluate("document.documentElement.scrollWidth") <= 680
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white in the dark too"
    assert len(view.pdf(format="A4")) > 10_000
