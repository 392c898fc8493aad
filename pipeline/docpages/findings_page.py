"""Generates docs/findings.md from the codes of findings: what each means, what it follows from, what the broker does, what to do."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from pipeline.docpages.tables_page import cell
from pipeline.verify.finding_codes import CODES, REBUILD, SEVERITIES, FindingCode, Severity

PAGE = Path("docs/findings.md")

_HEAD = """\
# Findings of verify

`pullsim verify STORE` gives each finding a code. `python -m pipeline.docpages.findings_page` generates this page from the codes.

Below the findings, the command shows their causes: a finding that follows from another one is folded below it. It also computes what the
broker's start would do to the store: what load cuts and deletes, which messages it dispatches again, and whether it starts at all.
`--format json` has the same as objects, a line each.

A finding follows from one about the commit log where its first entry points into the damaged stretch, and from others where they are of
the same queue, or, for some codes, of the same store. No finding is folded below one that is less bad. This is a guess by position, not a
proof; all findings are listed themselves.
"""
_TAIL = f"""
## Build the queues again

{fill(REBUILD, 140)}
"""


def findings_page() -> str:
    """The text of docs/findings.md."""
    return "".join([_HEAD, *map(_section, SEVERITIES), _TAIL])


def _section(severity: Severity) -> str:
    rows = "".join(_row(code) for code in CODES.values() if code.severity is severity)
    what = severity.value.partition(": ")[2]
    return f"\n## {severity.name}\n\n{what[0].upper()}{what[1:]}.\n\n| code | what | broker | do |\n| --- | --- | --- | --- |\n{rows}"


def _row(code: FindingCode) -> str:
    causes = [*(("a finding about that place of the commit log",) if code.from_log else ())]
    causes += [f"`{one}` of its queue" for one in code.from_queue] + [f"`{one}`" for one in code.from_store]
    follows = f" May follow from {', '.join(causes)}." if causes else ""
    do = "[Build the queues again](#build-the-queues-again)." if code.do == REBUILD else cell(code.do)
    return f"| `{code.code}` | {cell(code.what)}{follows} | {cell(code.broker)} | {do} |\n"


if __name__ == "__main__":
    PAGE.write_text(findings_page(), "utf-8")
