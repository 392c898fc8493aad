"""The text of `pullsim upgrade`: its sentences on files, and names from a store that a terminal would take as commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from pipeline.commands.engine import Engine
from pipeline.embedded.database import EmbeddedLake
from pipeline.main import run
from pipeline.report.answered import Report
from pipeline.report.page import page
from pipeline.report.scope import Scope
from pipeline.upgrade import upgrade_text
from pipeline.upgrade.asked_pulls import Source
from pipeline.upgrade.changed_settings import MEANING, ChangedSetting
from pipeline.upgrade.compared_pulls import ComparedPulls, RuleCount
from pipeline.upgrade.moved_groups import MovedGroups
from pipeline.upgrade.other_version import OtherVersion, lines_of
from pipeline.upgrade.started_files import ComparedStarts, StartedFiles
from pipeline.upgrade.upgrade_job import Upgrade
from pipeline.upgrade.upgrade_section import upgrade_section
from pipeline.upgrade.upgrade_text import WIDTH, show, verdict
from store_format.broker_version import BrokerVersion
from tests.makers.plain_lakes import plain_lake
from tests.truth.golden5 import needs_golden5, unpacked
from tests.truth.places import PROJECT
from udfs.broker.version_changes import OWN_FILES

# a colour, a change of direction, and letters that are two columns wide
NAME = "\x1b[31m\u202e" + "注文" * 30
ANSWER = {"status": "OFFSET_OVERFLOW_BADLY", "nextBeginOffset": 0}
REQUEST = {"group": NAME, "topic": NAME, "queueId": 0, "offset": 3, "maxMsgNums": 1}
RULE = RuleCount(
    rule="overflow_badly_goes_to_max",
    pulls=1,
    seen=1,
    outcomes=[("OFFSET_OVERFLOW_BADLY", "OFFSET_OVERFLOW_BADLY", 1)],
    fields={"nextBeginOffset": 1},
    examples=[{"seq": 2, "request": REQUEST, "before": ANSWER, "after": ANSWER | {"nextBeginOffset": 2}}],
)
MOVED = {"consumerGroup": NAME, "topic": NAME, "queueId": 0, "committed": 3, "goesOnBefore": 0, "goesOnAfter": 2, "messages": 2}
SETTING = ChangedSetting(name="s", kind=MEANING, given=NAME, before="one", after="two", matters=True, source="S; T")
OK = StartedFiles(load=True, start="ok", log_min=0, log_max=9, dispatched=0, deleted=(), changed=(), queues={})
FAILS, HANGS = replace(OK, load=False, start=None), replace(OK, start="timeout")
FOUND = Upgrade(
    broker="b",
    earlier=BrokerVersion.V4_9_3,
    later=BrokerVersion.V5_5_0,
    imported=None,
    source=Source.FILE,
    at="snapshot",
    rules=(RULE.rule,),
    pulls=ComparedPulls(pulls=1, differ=1, seen=1, unseen=(), fields=RULE.fields, rules=[RULE]),
    groups=MovedGroups(committed=1, again=0, again_messages=0, skipped=1, skipped_messages=2, most=[MOVED]),
    settings=[SETTING],
    new_settings=0,
    knows_settings=True,
    starts=ComparedStarts(before=OK, after=OK, queues_differ=1, queues=[{"topic": NAME, "queueId": 0, "before": (0, 1), "after": None}]),
    lost=[],
    deleted=0,
    odd_entries=0,
)


def test_names_are_cut_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = replace(FOUND, groups=replace(FOUND.groups, most=[MOVED | {"consumerGroup": "a-group-with-a-long-name"}]))
    show(found)
    assert "a-group-with-a-long-name" in capsys.readouterr().out
    monkeypatch.setattr(upgrade_text, "is_terminal", lambda: True)
    show(found)
    shown = capsys.readouterr().out
    assert "a-group-with-a-lo…" in shown
    assert "a-group-with-a-long-name" not in shown


def test_names_from_a_store_reach_no_terminal_as_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(upgrade_text, "is_terminal", lambda: True)
    show(FOUND)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert max(map(cell_len, lines)) <= WIDTH
    # JSON escapes the colour itself, a table and the request escape the direction
    text = re.sub(r"\s+", "", "".join(lines))
    assert text.count(r"\x1b[31m\u202e注") == 4
    assert text.count(r"\u001b[31m\u202e" + NAME[6:]) == 2


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (OK, OK, "Files: both versions start the store; 1,000 queues have other bounds afterwards, the commit log is the same."),
        (FAILS, FAILS, "Files: each version does not load the store."),
        (HANGS, HANGS, "Files: each version never ends its start."),
        (HANGS, OK, "Files: 4.9.3 never ends its start, 5.5.0 starts the store."),
        (OK, FAILS, "Files: 4.9.3 starts the store, 5.5.0 does not load the store."),
    ],
)
def test_the_sentence_on_files_says_which_version_starts_the_store(before: StartedFiles, after: StartedFiles, says: str) -> None:
    starts = ComparedStarts(before=before, after=after, queues_differ=1000, queues=[])
    assert verdict(replace(FOUND, starts=starts))[3] == says


CUT = replace(OK, log_max=5, queues={("t", 0): (0, 3)})
SAME_LOG = replace(OK, queues={("t", 0): (0, 3)})


@pytest.mark.parametrize(
    ("after", "log"),
    [(CUT, "goes from 0 to 9 under 4.9.3, from 0 to 5 under 5.5.0"), (SAME_LOG, "is the same")],
)
def test_a_start_that_cuts_queues_says_that_pulls_are_compared_without_it(after: StartedFiles, log: str) -> None:
    starts = ComparedStarts(before=replace(OK, queues={("t", 0): (0, 4)}), after=after, queues_differ=1, queues=[])
    assert verdict(replace(FOUND, starts=starts))[3] == (
        f"Files: both versions start the store; one queue has other bounds afterwards. The commit log {log}; the queues have 4 entries "
        "under 4.9.3, 3 under 5.5.0. Pulls and groups are compared without this difference, on the store as it was imported."
    )


def test_defaults_are_called_defaults_where_no_settings_are_known() -> None:
    known, unknown = (verdict(replace(FOUND, knows_settings=knows))[2] for knows in (True, False))
    assert unknown == f"{known} No settings of this broker are known: give --properties; the defaults are taken."


def test_a_store_of_another_version_is_told_first() -> None:
    first, *others = verdict(replace(FOUND, imported=BrokerVersion.V4_9_8))
    assert first.startswith("Store: its files or settings say that broker 4.9.8 wrote it, not 4.9.3; ")
    assert others == verdict(FOUND) == verdict(replace(FOUND, imported=BrokerVersion.V4_9_3))


def test_files_that_one_version_alone_deletes_or_changes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    log = tuple(f"commitlog/{number:020}" for number in range(7))
    before, after = replace(OK, changed=("checkpoint", "index/1")), replace(OK, changed=("checkpoint",), deleted=log)
    show(replace(FOUND, starts=ComparedStarts(before=before, after=after, queues_differ=0, queues=[])))
    text = " ".join(capsys.readouterr().out.split())
    assert f"only 5.5.0 deletes {', '.join(log[:5])}, and 2 more only 4.9.3 changes or makes index/1 a broker 5.5.0 also makes" in text
    assert "timerwheel" in text
    show(replace(FOUND, later=BrokerVersion.V4_9_8, starts=ComparedStarts(before=before, after=before, queues_differ=0, queues=[])))
    text = capsys.readouterr().out
    assert "only 4" not in text
    assert "timerwheel" not in text


@needs_golden5
def test_files_of_a_later_broker_are_those_that_a_real_one_left() -> None:
    live = unpacked("live") / "live"
    assert [path for path in OWN_FILES[BrokerVersion.V5_5_0] if not (live / "store" / path).exists()] == []
    loaded = json.loads((live / "load-4.9.3.json").read_text("utf-8"))
    assert (loaded["loaded"], set(map(tuple, loaded["filesChanged"].values()))) == (True, {()})


def test_the_page_on_upgrades_has_the_sentence_on_a_store_without_groups() -> None:
    shown = (PROJECT / "docs" / "upgrading.md").read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    nobody = MovedGroups(committed=0, again=0, again_messages=0, skipped=0, skipped_messages=0, most=[])
    assert verdict(replace(FOUND, groups=nobody))[1] in " ".join(shown.split())


def test_a_report_has_the_rules_and_the_verdict() -> None:
    html = page(Report(Scope("lake", ["b"]), [], [upgrade_section(FOUND)], {}))
    assert "What would an upgrade to 5.5.0 change?" in html
    assert "<b>1</b> of 1 pulls end otherwise in 5.5.0 than in 4.9.3, and <b>1</b> of 1 committed offsets lead on elsewhere." in html
    assert html.count("<td>overflow_badly_goes_to_max</td>") == 1
    assert verdict(FOUND)[3] in html


def test_a_report_of_an_upgrade_needs_spark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["report", "--lake", str(tmp_path), "--out", str(tmp_path / "r.html"), "--upgrade-to", "5.5.0", "--engine", "duckdb"]) == 2
    assert "--upgrade-to cannot be combined with --engine duckdb" in capsys.readouterr().err


def test_report_adds_the_section_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake = plain_lake(tmp_path / "lake", {"broker": [{"brokerName": "b"}]})

    @contextmanager
    def session(*_: Any, **__: Any) -> Iterator[None]:
        yield None

    opened = SimpleNamespace(properties=lambda: {"rulesVersion": "4.9.8"})
    monkeypatch.setattr(Engine, "session", session)
    monkeypatch.setattr("pipeline.lake.lake.Lake", lambda _, root: SimpleNamespace(require=lambda: EmbeddedLake(root)))
    monkeypatch.setattr("pipeline.lake.views.asking", lambda embedded: embedded.asked)
    monkeypatch.setattr("pipeline.lake.opened_broker.OpenedBroker.of", lambda *_: opened)
    asked: list[Any] = []

    def run_upgrade(*_: Any, versions: Any, **__: Any) -> Any:
        asked.append(versions)
        return FOUND

    monkeypatch.setattr("pipeline.upgrade.upgrade_job.run_upgrade", run_upgrade)
    words = ["report", "--lake", str(lake), "--out", str(tmp_path / "r.html"), "--upgrade-to"]
    assert run([*words, "5.5.0"]) == 0
    assert asked == [(BrokerVersion.V4_9_8, BrokerVersion.V5_5_0)]
    assert 'id="upgrade"' in (tmp_path / "r.html").read_text("utf-8")
    assert run([*words, "4.9.8"]) == 2
    assert "expected a later version than 4.9.8, that of the import, found 4.9.8" in capsys.readouterr().err


def test_another_version_is_told_without_commands_of_a_terminal() -> None:
    rule = replace(RULE, examples=[RULE.examples[0] | {"after": {"error": NAME + "\x9b"}}])
    compared = replace(FOUND.pulls, rules=[rule])
    other = OtherVersion(version=FOUND.later, earlier=FOUND.earlier, later=FOUND.later, compared=compared)
    told = "".join(lines_of(other)).replace("\n", "")
    assert told.isprintable()
    assert "\\x9b" in told
