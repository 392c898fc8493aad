"""Generates docs/rules.md from the rules that differ between versions of the broker: the variants of each, and their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.docpages.tables_page import cell
from store_format.broker_version import Rule
from udfs.version_rules import RULES_BY_SUBJECT

PAGE = Path("docs/rules.md")

_HEAD = """\
# Rules by version

The rules of the broker that differ between 4.9.3, 4.9.8 and 5.5.0, as pullsim knows them. `--rules` chooses a version. A version has the
variant of its own row, or else of the nearest row above it. The source is a class and method of the broker in that version. A release
between them may have either variant. `python -m pipeline.docpages.rules_page` generates this page from the rules' definitions.
"""


def rules_page() -> str:
    """The text of docs/rules.md."""
    parts = [_HEAD]
    for subject, rules in RULES_BY_SUBJECT.items():
        parts.append(f"\n## {subject}\n\n| rule | since | what | source |\n| --- | --- | --- | --- |\n")
        parts += [_rows(name, rule) for name, rule in rules.items()]
    return "".join(parts)


def _rows(name: str, rule: Rule[Any]) -> str:
    first, *others = [f"{one.since.value} | {cell(one.meaning)} | {cell(one.source)} |\n" for one in rule.variants]
    return f"| `{name}`: {cell(rule.term)} | {first}" + "".join(f"| | {other}" for other in others)


if __name__ == "__main__":
    PAGE.write_text(rules_page(), "utf-8")
