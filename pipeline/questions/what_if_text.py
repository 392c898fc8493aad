"""The result of `pullsim whatif` as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from pipeline.questions.drain import SIDES, Drained
from pipeline.questions.what_if import WhatIf
from pipeline.replay.replay import At
from pipeline.settings.quantities import counted, percent_text
from pipeline.terminal import safe_text, say, show_table

# columns of the CSV: part of the result, name of the value, value of each side, number of pulls
CSV_COLUMNS = ("part", "name", *SIDES, "pulls")


_SEEN: Final[dict[At, str]] = {
    "snapshot": "all of the store",
    "request-time": "the store as of its own time",
    "recorded-max": "its queue up to the recorded maxOffset",
}


def as_json(result: WhatIf) -> dict[str, Any]:
    """The result as a JSON object."""
    return {
        "settings": {name: _pair(values) for name, values in result.settings.items()},
        "notes": list(result.notes),
        "at": result.at,
        "pulls": result.pulls,
        "leftOut": result.left_out,
        "changed": result.changed,
        "measures": {name: _pair(values) for name, values in result.measures.items()},
        "outcomes": [dict(zip((*SIDES, "pulls", "changed"), row, strict=True)) for row in result.outcomes],
        "fields": result.fields,
        "drained": None if result.drained is None else {name: _pair(values) for name, values in _drained(result.drained)},
        "first": result.first,
    }


def _pair(values: tuple[Any, Any]) -> dict[str, Any]:
    return dict(zip(SIDES, values, strict=True))


def csv_text(result: WhatIf) -> str:
    """The result as CSV, with a row for each number, without the first pulls that differ."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerow(("pulls", "answered", "", "", result.pulls))
    writer.writerow(("pulls", "changed", "", "", result.changed))
    writer.writerows(("left out", reason, "", "", pulls) for reason, pulls in result.left_out.items())
    writer.writerows(("setting", name, *map(_text, values), "") for name, values in result.settings.items())
    writer.writerows(("measure", name, *map(_text, values), "") for name, values in result.measures.items())
    writer.writerows(("outcome", "", before, after, pulls) for before, after, pulls, _ in result.outcomes)
    writer.writerows(("field", name, "", "", pulls) for name, pulls in result.fields.items())
    writer.writerows(("drained", name, *values, "") for name, values in _drained(result.drained))
    return out.getvalue()


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _drained(drained: tuple[Drained, Drained] | None) -> Iterator[tuple[str, tuple[int, int]]]:
    if drained is None:
        return
    first, second = drained
    yield "chains of pulls", (first.chains, second.chains)
    yield "that get stuck", (first.stuck, second.stuck)
    yield "pulls", (first.pulls, second.pulls)
    yield "pulls that find messages", (first.found, second.found)
    yield "messages", (first.messages, second.messages)
    yield "bytes", (first.bytes, second.bytes)
    yield "pulls whose last entry read lies on disk", (first.from_disk, second.from_disk)


def show(result: WhatIf) -> None:
    """Print the result as text."""
    for note in result.notes:
        say(safe_text(f"note: {note}"))
    if result.notes:
        say("")
    show_table(("setting", *SIDES), [(name, *map(_text, values)) for name, values in result.settings.items()])
    share = f" ({percent_text(result.changed / result.pulls)})" if result.pulls else ""
    say(f"\n{counted(result.pulls, 'pull')}, {result.changed:,} answered differently{share}")
    for reason, pulls in result.left_out.items():
        say(safe_text(f"left out: {counted(pulls, 'pull')}, {reason}"))
    say(f"each pull sees {_SEEN[result.at]}\n")
    show_table(("", *SIDES, "change"), [_compared(name, *values) for name, values in result.measures.items()])
    if result.changed:
        say("")
        changed = [(before, after, f"{count:,}") for before, after, _, count in result.outcomes if count]
        show_table(("current status", "proposed status", "pulls that differ"), changed)
        say("")
        show_table(("differs in", "pulls"), [(name, f"{pulls:,}") for name, pulls in result.fields.items()])
    messages = result.measures["messages"]
    if result.drained is None and messages[0] != messages[1]:
        say("\nmessages that a pull no longer brings come with a later pull; --drain counts the pulls that it takes")
    if result.drained is not None:
        say("\nreading from the first requested offset to the last message, each pull from the nextBeginOffset of the one before:")
        show_table(("", *SIDES, "change"), [_compared(name, *values) for name, values in _drained(result.drained)])
        if result.drained[0].messages != result.drained[1].messages:
            say("the last pull of a chain may bring more than the last message: no message is lost where the sums differ")
    for one in result.first:
        which = f"line {one['line']}" if "line" in one else f"captured pull {one['requestId']}"
        say(safe_text(f"\n{which} differs in {', '.join(one['fields'])}"))
        say(safe_text(f"  request: {json.dumps(one['request'], ensure_ascii=False)}"))
        for side in SIDES:
            say(safe_text(f"  {side + ':':<9} {json.dumps(_folded(one[side]), ensure_ascii=False)}"))


def _folded(answer: Any) -> Any:
    """An answer in which consecutive offsets of messages are folded to "first..last"."""
    if not isinstance(answer, dict) or "messages" not in answer:
        return answer
    runs = [[offset for _, offset in run] for _, run in groupby(enumerate(answer["messages"]), key=lambda pair: pair[1] - pair[0])]
    return answer | {"messages": ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)}


def _compared(name: str, before: Any, after: Any) -> tuple[str, str, str, str]:
    change = ""
    if before is not None and after is not None and before != after:
        change = f"{round(after - before, 3):+,}" + (f" ({100 * (after - before) / before:+.1f} %)" if before else "")
    return name, _number(before), _number(after), change


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}"
