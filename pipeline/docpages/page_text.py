"""Texts in the tables of the generated pages."""

from __future__ import annotations


def cell(text: str) -> str:
    """A text as a cell of a Markdown table: on one line, nothing in it taken for markup."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
