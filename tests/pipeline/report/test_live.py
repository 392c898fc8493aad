"""`pullsim serve`: which requests are answered, how an address narrows the page, and the page in a browser, with names to click on."""

from __future__ import annotations

import datetime as dt
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults

import pytest

from pipeline.main import run
from pipeline.report.live import LiveReport
from pipeline.schema import tables as t
from pipeline.serving.http_server import serving
from tests.makers.report_lakes import BROKER, HOSTILE, START, hostile_rows, report_lake
from tests.runs.browsers import chromium
from tests.runs.sampling import slow_proof

if TYPE_CHECKING:
    from playwright.sync_api import Page

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
GROUP = HOSTILE[4]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_lake(tmp_path_factory.mktemp("live") / "lake", hostile_rows())


@pytest.fixture(scope="module")
def live(lake: Path) -> LiveReport:
    return LiveReport(str(lake), lambda: NOON)


def asked(live: LiveReport, path: str = "/", query: str = "", method: str = "GET") -> tuple[str, str]:
    """The status and the body of an answer."""
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    setup_testing_defaults(environ)
    told: list[str] = []
    headers: dict[str, str] = {}

    def start(status: str, found: list[tuple[str, str]]) -> None:
        told.append(status)
        headers.update(found)

    body = b"".join(live(environ, start))
    assert headers["Cache-Control"] == "no-store"
    assert method == "HEAD" or int(headers["Content-Length"]) == len(body)
    assert method != "HEAD" or int(headers["Content-Length"]) > 1000, "that of the page"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    return told[0], body.decode()


@pytest.mark.parametrize(
    ("request_of", "status", "told"),
    [
        ({"method": "POST"}, "405 Method Not Allowed", "only GET is answered"),
        ({"path": "/etc/passwd"}, "404 Not Found", "the report is at / and /report.json"),
        ({"path": "/../"}, "404 Not Found", "the report is at"),
        ({"query": "group=javascript"}, "404 Not Found", "the lake knows no consumer group 'javascript'"),
        ({"query": "broker=c"}, "404 Not Found", "expected broker 'c'"),
        ({"query": "from=now"}, "400 Bad Request", "from: expected ms since 1970 or a time such as"),
        ({"query": "from=-1"}, "400 Bad Request", "from: expected ms since 1970 or a time such as"),
        ({"query": "from=1969-12-31"}, "400 Bad Request", "from: expected a time from 1970 to the year 9999, found -86400000 ms"),
        ({"query": "to=99999999999999999999"}, "400 Bad Request", "to: expected a time from 1970 to the year 9999"),
        ({"query": "from=5&to=5"}, "400 Bad Request", "from: expected a time before that of to"),
        ({"query": "refresh=1"}, "400 Bad Request", "refresh: expected seconds from 2"),
        ({"query": f"refresh={'9' * 5000}"}, "400 Bad Request", "refresh: expected seconds from 2"),
        ({"query": "&".join(f"a{n}=1" for n in range(25))}, "400 Bad Request", "expected at most 20 fields"),
        ({"query": "refresh=5;url=//evil.example"}, "400 Bad Request", "refresh: expected seconds from 2"),
    ],
)
def test_what_is_not_answered(live: LiveReport, request_of: dict[str, str], status: str, told: str) -> None:
    found, body = asked(live, **request_of)
    assert (found, told in body) == (status, True), body


def test_a_damaged_lake_is_no_fault_of_who_asks(tmp_path: Path) -> None:
    damaged = LiveReport(str(report_lake(tmp_path / "lake", {t.QUEUE: []})), lambda: NOON)
    for log in (tmp_path / "lake" / "queue" / "_delta_log").iterdir():
        log.write_text("{", "utf-8")
    assert asked(damaged)[0] == "500 Internal Server Error"


def test_an_address_narrows_the_figures(live: LiveReport) -> None:
    query = urlencode({"group": GROUP, "from": START + 4000, "to": START + 7000, "topic": "", "unknown": "x"})
    status, body = asked(live, "/report.json", query)
    assert status == "200 OK"
    found = json.loads(body)
    assert found["only"] == {"group": GROUP, "from": START + 4000, "to": START + 7000}
    statuses = next(one for one in found["questions"] if one["id"] == "statuses")
    assert statuses["finding"].startswith("3 pulls were captured")
    assert asked(live, "/report.json", query, method="HEAD") == ("200 OK", "")


def test_the_page_is_made_again_when_the_lake_has_changed(live: LiveReport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = list[str]()
    monkeypatch.setattr("pipeline.report.live.report", lambda *_, only, **__: made.append(only.group))
    monkeypatch.setattr("pipeline.report.live.page", lambda *_: f"page {len(made)}")
    rows = {t.CONSUMER_OFFSET: hostile_rows()[t.CONSUMER_OFFSET]}
    changing = LiveReport(str(report_lake(tmp_path / "lake", rows)), lambda: NOON)
    query = urlencode({"group": GROUP})
    assert [asked(changing, query=one)[1] for one in ("", query, "", query)] == ["page 1", "page 2", "page 1", "page 2"]
    report_lake(tmp_path / "lake", rows, version=2)
    assert [asked(changing, query=one)[1] for one in ("", "")] == ["page 3", "page 3"]
    assert made == [None, GROUP, None]


@pytest.fixture(scope="module")
def view(live: LiveReport) -> Iterator[tuple[Page, list[str]]]:
    heard: list[str] = []
    with chromium() as browser, serving("0", live, "the report") as authority:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.goto(f"http://{authority}/")
        yield page, heard


@slow_proof
def test_a_click_on_a_group_narrows_the_page_to_it_and_the_form_shows_it(view: tuple[Page, list[str]]) -> None:
    page, heard = view
    assert page.locator("#behind tbody tr").count() == len(HOSTILE)
    page.locator("#behind td a").get_by_text(GROUP, exact=True).click()
    page.wait_for_load_state()
    assert page.locator("#behind tbody tr").count() == 1
    assert page.locator("input[name=group]").input_value() == GROUP
    assert page.locator("input[name=topic]").input_value() == ""
    page.locator("input[name=from]").fill("2023-11-14T22:13:24")
    page.locator("input[name=refresh]").fill("600")
    page.get_by_role("button").click()
    page.wait_for_load_state()
    assert page.locator("meta[http-equiv=refresh]").get_attribute("content") == "600"
    assert "16 pulls were captured" in page.locator("#statuses .finding").inner_text()
    assert page.locator(".only").inner_text().startswith("Only")
    page.get_by_role("link", name="All", exact=True).click()
    page.wait_for_load_state()
    assert page.locator("#behind tbody tr").count() == len(HOSTILE)
    assert heard == []
    assert BROKER in page.locator(".facts").inner_text()


def test_the_command_serves_until_it_is_told_to_stop(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def told_at_once() -> Iterator[threading.Event]:
        stop = threading.Event()
        stop.set()
        yield stop

    monkeypatch.setattr("pipeline.files.stopping.told_to_stop", told_at_once)
    assert run(["serve", "--lake", str(lake), "--listen", "0"]) == 0
    assert re.search(r"the report is at http://127\.0\.0\.1:\d+/$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--lake", "none"), "expected a lake"),
        (("--listen", "here"), "here: expected PORT or HOST:PORT to serve the report from"),
        (("--listen", "99999"), "expected a port that is free, to serve the report from"),
    ],
)
def test_what_cannot_be_served_ends_with_2(
    lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", *(() if "--lake" in words else ("--lake", str(lake))), *words]) == 2
    assert told in capsys.readouterr().err
