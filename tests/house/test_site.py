"""The site of the pages under docs/: it builds without a warning, and works when its files are opened without a server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from tests.runs.browsers import chromium
from tests.runs.doc_commands import PAGES
from tests.truth.places import PROJECT

LOADED = {"script": "src", "img": "src", "link": "href"}


class Page(HTMLParser):
    """The links of a page, what it loads, and the names that a link can jump to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(file.read_text("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif LOADED.get(tag, "") in given and given.get("rel") not in {"canonical", "prev", "next"}:
            self.loads.append(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("needs mkdocs and mkdocs-material: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("site")
    words: list[str | Path] = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    built = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


def test_each_page_is_a_file_and_loads_nothing_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    assert {site / f"{page.stem}.html" for page in PAGES[1:]} <= pages.keys()
    assert all(page.loads for page in pages.values())
    assert {place for page in pages.values() for place in page.loads if urlsplit(place).netloc} == set()


def leads_nowhere(address: str, pages: dict[Path, Page]) -> bool:
    """Whether a file:// address leads to no file, or to no place on its page. A browser shows a folder as a list of files."""
    parts = urlsplit(address)
    file = Path(unquote(parts.path))
    if not file.is_file():
        return True
    return bool(parts.fragment) and (file not in pages or unquote(parts.fragment) not in pages[file].names)


def test_each_link_leads_to_a_place_when_the_pages_are_opened_as_files(pages: dict[Path, Page]) -> None:
    lost: dict[str, set[str]] = defaultdict(set)
    followed = 0
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # a server shows it for any address, so its links begin at the site's root
        for link in {*page.links, *page.loads}:
            address = urljoin(file.as_uri(), link)
            if address.startswith("file:"):
                followed += 1
                if leads_nowhere(address, pages):
                    lost[file.name].add(link)
    assert lost == {}
    assert followed > 1_000


def test_search_works_when_the_pages_are_opened_as_files(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((site / "guide.html").as_uri())
        page.fill("input.md-search__input", "delayLevel")
        page.wait_for_selector(".md-search-result__item")
        page.click(".md-search-result__link >> nth=0")
        page.wait_for_url(re.compile(r"^file://.*/tables\.html"))
        assert page.locator("h1").count() == 1
        assert errors == []
