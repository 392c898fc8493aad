"""Joins the lines of the verdict that a command prints below a table."""

from __future__ import annotations


def on_one_line(out: str) -> str:
    """The output with the lines of its verdict joined: "head: note; note"."""
    told = out.replace(":\n- ", ": ").replace("\n\n- ", "\n\n").replace("\n- ", "; ")
    return " ".join(told.split())
