"""The result of `pullsim upgrade` as text of at most 100 columns, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len, set_cell_size

from pipeline.terminal import is_terminal, safe_text, say, show_table, wrapped
from pipeline.upgrade.asked_pulls import Source
from pipeline.upgrade.changed_settings import MEANING, VANISHED, ChangedSetting
from pipeline.upgrade.compared_pulls import RuleCount
from pipeline.upgrade.started_files import ComparedStarts
from pipeline.upgrade.upgrade_job import Upgrade
from store_format.broker_version import BrokerVersion
from udfs.broker.broker_rules import BROKER_RULES
from udfs.broker.version_changes import OWN_FILES
from udfs.version_rules import said_of

WIDTH = 100
_NAME_WIDTH = 18
_SHOWN_FILES = 5
_PULLS = {
    Source.FILE: "pulls of the file",
    Source.CAPTURED: "captured pulls",
    Source.MADE: "pulls made for the groups of the lake",
}


def verdict(result: Upgrade) -> list[str]:
    """The answer in sentences: an unexpected version, pulls, groups, settings, files, return."""
    told = [_of_pulls(result), _of_groups(result), _of_settings(result), _of_files(result), _of_return(result)]
    if result.imported is None or result.imported == result.earlier:
        return told
    return [_of_import(result.imported, result.earlier), *told]


def _of_import(imported: BrokerVersion, earlier: BrokerVersion) -> str:
    return (
        f"Store: its files or settings say that broker {imported.value} wrote it, not {earlier.value}; "
        f"the comparison is for a broker {earlier.value} with the same messages and groups."
    )


def _of_pulls(result: Upgrade) -> str:
    pulls, later = result.pulls, result.later.value
    counted = pulls.differ - pulls.seen
    seen = f"{pulls.seen:,}" if pulls.seen else "none"
    text = f"Pulls: {later} answers {seen} of {pulls.pulls:,} {_PULLS[result.source]} otherwise than {result.earlier.value}."
    if counted:
        text += f" {counted:,} more differ only in what no client sees ({', '.join(pulls.unseen)})."
    if result.deleted:
        text += (
            f" Files from which {result.deleted:,} of them were answered are deleted: they are compared as pulls below the first message"
            " that is left."
        )
    if result.odd_entries:
        text += (
            f" {result.odd_entries:,} entries of the queues point at bytes that are no record: pulls with a SQL92 filter that reach them"
            " may end otherwise, and are compared as if they did not (rule decodes_by_magic_code)."
        )
    return text


def _of_groups(result: Upgrade) -> str:
    groups, later = result.groups, result.later.value
    if not groups.again and not groups.skipped:
        return f"Groups: none of {groups.committed:,} committed offsets makes a group read messages again, or skip any."
    parts = []
    if groups.again:
        parts.append(f"reads {_messages(groups.again_messages)} on {_queues(groups.again)} that {result.earlier.value} does not read")
    if groups.skipped:
        parts.append(f"skips {_messages(groups.skipped_messages)} on {_queues(groups.skipped)} that {result.earlier.value} reads")
    return f"Groups: going on from {groups.committed:,} committed offsets, a group under {later} {', and '.join(parts)}."


def _messages(count: int) -> str:
    return "one message" if count == 1 else f"{count:,} messages"


def _queues(count: int) -> str:
    return "one queue" if count == 1 else f"{count:,} queues"


def _of_settings(result: Upgrade) -> str:
    matter = [one.name for one in result.settings if one.matters]
    others = len(result.settings) - len(matter)
    found = f"{', '.join(matter)} change for this broker" if matter else "no change reaches this broker"
    text = f"Settings: {found}; {others:,} other changes do not. {result.later.value} has {result.new_settings:,} new settings."
    return text if result.knows_settings else f"{text} No settings of this broker are known: give --properties; the defaults are taken."


def _of_files(result: Upgrade) -> str:
    if result.starts is None:
        return "Files: give --store with the directory of the store to compare what the start of each version does to its files."
    before, after, earlier, later = result.starts.before, result.starts.after, result.earlier.value, result.later.value
    ends = [_start(side.load, side.start) for side in (before, after)]
    if ends[0] != ends[1]:
        return f"Files: {earlier} {ends[0]}, {later} {ends[1]}."
    if after.start != "ok":
        return f"Files: each version {ends[0]}."
    bounds = [(side.log_min, side.log_max) for side in (before, after)]
    if not result.starts.queues_differ and bounds[0] == bounds[1]:
        return "Files: both versions start the store, and leave the same commit log and the same bounds of queues."
    differ = result.starts.queues_differ
    text = f"Files: both versions start the store; {_queues(differ)} {'has' if differ == 1 else 'have'} other bounds afterwards"
    if before.ends == after.ends:
        return f"{text}, the commit log is the same."
    (least, most), (least_after, most_after) = bounds
    log = (
        "is the same"
        if bounds[0] == bounds[1]
        else f"goes from {least} to {most} under {earlier}, from {least_after} to {most_after} under {later}"
    )
    return (
        f"{text}. The commit log {log}; the queues have {before.entries:,} entries under {earlier}, {after.entries:,} under {later}."
        " Pulls and groups are compared without this difference, on the store as it was imported."
    )


def _start(load: bool, start: str | None) -> str:
    return "does not load the store" if not load else "starts the store" if start == "ok" else "never ends its start"


def _of_return(result: Upgrade) -> str:
    earlier = result.earlier.value
    held = [one for one in result.lost if one.messages]
    if not result.lost:
        return f"Return: {result.earlier.value} understands all that {result.later.value} writes; its rules come back."
    count = sum(one.messages or 0 for one in held)
    now = (
        f"the topics of such state have {_messages(count)} in this lake, past ones among them"
        if held
        else "this lake has no such messages yet"
    )
    return f"Return: {earlier} does not understand {len(result.lost)} kinds of state that {result.later.value} keeps; {now}."


def as_json(result: Upgrade) -> dict[str, Any]:
    """The result as a JSON object."""
    return {
        "broker": result.broker,
        "from": result.earlier.value,
        "to": result.later.value,
        "verdict": verdict(result),
        "pulls": {
            "source": result.source.value,
            "at": result.at,
            "fromDeletedFiles": result.deleted,
            **asdict(result.pulls),
            "rules": [
                asdict(one)
                | {"outcomes": [dict(zip(("before", "after", "pulls"), row, strict=True)) for row in one.outcomes]}
                | _told(result, one.rule)
                for one in result.pulls.rules
            ],
        },
        "groups": asdict(result.groups),
        "settings": [asdict(one) for one in result.settings],
        "newSettings": result.new_settings,
        "files": None if result.starts is None else result.starts.as_json() | {"ownFiles": _own_files(result)},
        "return": [
            {
                "what": one.state.what,
                "topic": one.state.topic or None,
                "messages": one.messages,
                "sourceBefore": one.state.source_before,
                "sourceAfter": one.state.source_after,
            }
            for one in result.lost
        ],
        "rules": {name: _told(result, name) for name in result.rules},
    }


def _told(result: Upgrade, rule: str) -> dict[str, dict[str, str]]:
    return said_of(rule, (result.earlier, result.later))


def show(result: Upgrade) -> None:
    """Print the result as text."""
    for sentence in verdict(result):
        _say(sentence)
    if result.pulls.rules:
        say("\nPULLS BY RULE (a pull may count for several rules)")
        show_table(("rule", result.earlier.value, result.later.value, "pulls"), list(_rule_rows(result.pulls.rules)))
        for rule in result.pulls.rules:
            _show_rule(result, rule)
    if around := [name for name in result.rules if name in BROKER_RULES]:
        say("")
        _say(f"{len(around):,} more rules of the broker around its store differ, and are not compared here: docs/rules.md lists them.")
    if result.groups.most:
        say("\nGROUPS THAT GO ON AT ANOTHER OFFSET")
        names = ("group", "topic", "queue", "committed", f"on in {result.earlier.value}", f"on in {result.later.value}", "messages")
        shown = ("consumerGroup", "topic", "queueId", "committed", "goesOnBefore", "goesOnAfter", "messages")
        show_table(names, [[_short(row[name]) for name in shown] for row in result.groups.most])
    say("\nSETTINGS")
    show_table(("setting", "this broker", result.earlier.value, result.later.value, "matters"), list(map(_setting_row, result.settings)))
    for one in result.settings:
        if one.kind == MEANING:
            _say(f"{one.name}: before {result.later.value}, {one.before}. Since then, {one.after}. {one.source}")
    if result.starts is not None:
        _show_starts(result, result.starts)
    if result.lost:
        say(f"\nA RETURN TO {result.earlier.value}")
        for lost in result.lost:
            past = ", past ones among them" if lost.messages else ""
            held = "" if lost.messages is None else f" ({_messages(lost.messages)} in {lost.state.topic}{past})"
            _say(f"- {lost.state.what}{held}. {lost.state.source_before} in {result.earlier.value}; {lost.state.source_after}")


def _say(text: str) -> None:
    for line in wrapped(safe_text(text), WIDTH, indent=4):
        say(line)


def _short(value: Any) -> Any:
    """A value that fits into a table on a terminal; in a pipe a name stays whole, so that it can be copied."""
    if not is_terminal() or not isinstance(value, str) or cell_len(text := safe_text(value)) <= _NAME_WIDTH:
        return value
    return set_cell_size(text, _NAME_WIDTH - 1) + "…"


def outcome_rows(rules: Sequence[RuleCount]) -> Iterator[tuple[str, str, str, int]]:
    """Yield rows of rule, outcome in each version, pulls. A rule's last row has the pulls in which clients see no difference."""
    for rule in rules:
        name = rule.rule or "several rules together"
        yield from ((name, *outcome) for outcome in rule.outcomes)
        if rule.pulls > rule.seen:
            yield name, "not seen by clients", "", rule.pulls - rule.seen


def _rule_rows(rules: Sequence[RuleCount]) -> Iterator[tuple[str, str, str, str]]:
    """The rows of `outcome_rows`, with the name of a rule in its first row only."""
    last = None
    for name, before, after, pulls in outcome_rows(rules):
        yield "" if name == last else name, before, after, f"{pulls:,}"
        last = name


def _show_rule(result: Upgrade, rule: RuleCount) -> None:
    told = _told(result, rule.rule)
    if told:
        say("")
        before, after = told.values()
        _say(f"{rule.rule}: in {result.earlier.value}, {before['says']}. In {result.later.value}, {after['says']}.")
        _say(f"  {before['source']}; {after['source']}")
    _say(f"  changes {', '.join(f'{name} of {pulls:,}' for name, pulls in rule.fields.items())}")
    for example in rule.examples[:1]:
        where = {
            Source.FILE: f"line {example['seq']}",
            Source.CAPTURED: f"captured pull {example.get('requestId')}",
            Source.MADE: "made pull",
        }[result.source]
        _say(f"  {where}: {json.dumps(example['request'], ensure_ascii=False)}")
        for side, version in (("before", result.earlier), ("after", result.later)):
            _say(f"  {version.value}: {json.dumps(example[side], ensure_ascii=False)}")


def _setting_row(one: ChangedSetting) -> tuple[Any, ...]:
    given = "" if one.given is None else _short(str(one.given))
    if one.kind == MEANING:
        return one.name, given, "other meaning", "see below", "yes" if one.matters else "no"
    return one.name, given, one.before, "vanished" if one.kind == VANISHED else one.after, "yes" if one.matters else "no"


def _show_starts(result: Upgrade, starts: ComparedStarts) -> None:
    say("\nTHE START OF THE STORE")
    sides = [side for _, side in starts.sides()]
    rows = [
        ("load", *("ok" if side.load else "fails" for side in sides)),
        ("start", *(side.start or "" for side in sides)),
        ("commit log from", *(side.log_min for side in sides)),
        ("commit log to", *(side.log_max for side in sides)),
        ("entries of all queues", *(side.entries for side in sides)),
        ("messages dispatched again", *(side.dispatched for side in sides)),
        ("files deleted", *(len(side.deleted) for side in sides)),
        ("files changed or new", *(len(side.changed) for side in sides)),
    ]
    show_table(("", result.earlier.value, result.later.value), rows)
    versions = [result.earlier.value, result.later.value]
    for what, files in (("deletes", [side.deleted for side in sides]), ("changes or makes", [side.changed for side in sides])):
        for version, own, other in zip(versions, files, files[::-1], strict=True):
            if alone := [path for path in own if path not in other]:
                _say(f"only {version} {what} {_listed(alone)}")
    if own_files := _own_files(result):
        _say(f"a broker {result.later.value} also makes these, which {result.earlier.value} leaves alone: {', '.join(own_files)}")
    if starts.queues:
        say("\nminOffset and maxOffset of queues that differ")
        shown = [(_short(row["topic"]), row["queueId"], *(_bounds(row[side]) for side in ("before", "after"))) for row in starts.queues]
        show_table(("topic", "queue", result.earlier.value, result.later.value), shown)
        if starts.queues_differ > len(starts.queues):
            say(f"and {starts.queues_differ - len(starts.queues):,} more")


def _own_files(result: Upgrade) -> list[str]:
    """The files and folders that only a broker of the later version makes."""
    return [path for since, paths in OWN_FILES.items() if result.earlier.place < since.place <= result.later.place for path in paths]


def _listed(paths: Sequence[str]) -> str:
    """The first paths, and how many more there are."""
    more = len(paths) - _SHOWN_FILES
    return ", ".join(paths[:_SHOWN_FILES]) + (f", and {more:,} more" if more > 0 else "")


def _bounds(bounds: tuple[int, int] | None) -> str:
    return "no queue" if bounds is None else f"{bounds[0]} to {bounds[1]}"
