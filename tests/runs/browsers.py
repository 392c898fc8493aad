"""Opens a headless Chromium for pages: the one of the machine, or Playwright's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OWN = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Without Chromium it skips the calling test."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    own = next(filter(None, map(shutil.which, OWN)), None)
    with api.sync_playwright() as playwright:
        try:
            # a container may have no user namespaces for Chromium's sandbox; the pages are ours
            browser = playwright.chromium.launch(executable_path=own, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"needs Chromium: apt-get install chromium, or playwright install chromium ({str(error).splitlines()[0]})")
        yield browser
        browser.close()
