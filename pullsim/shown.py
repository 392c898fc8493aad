"""Answers that are more than rows: a page of the report, and the explanation of a pull."""

from __future__ import annotations

import os
from html import escape
from typing import Any


class Page:
    """A page of HTML; a notebook shows it in a frame of its own.

    >>> page = pullsim.open("lake").report()
    >>> page.html[:15]
    '<!DOCTYPE html>'
    >>> page.save("report.html")
    """

    def __init__(self, html: str) -> None:
        """Take the HTML of a whole page."""
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file.

        Raises:
            pullsim.Error: the file cannot be written.
        """
        from pipeline.files.output_file import write_text

        write_text(os.fspath(path), lambda: self.html)

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters; save(path) writes it)"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: 80vh; border: 0"></iframe>'


class Explained:
    """The explanation of the answer to a pull.

    Attributes:
        text: what `pullsim explain` prints.
        facts: the object that `pullsim explain --format json` prints.
    """

    def __init__(self, text: str, facts: dict[str, Any]) -> None:
        """Take the explanation as text and as an object of JSON."""
        self.text, self.facts = text, facts

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"
