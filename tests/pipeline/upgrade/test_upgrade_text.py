"""The text of `pullsim upgrade`: its sentences on files, and names from a store that a terminal would take as commands."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from pipeline.upgrade.asked_pulls import Source
from pipeline.upgrade.changed_settings import MEANING, ChangedSetting
from pipeline.upgrade.compared_pulls import ComparedPulls, RuleCount
from pipeline.upgrade.moved_groups import MovedGroups
from pipeline.upgrade.started_files import ComparedStarts, StartedFiles
from pipeline.upgrade.upgrade_job import Upgrade
from pipeline.upgrade.upgrade_text import WIDTH, show, verdict
from store_format.broker_version import BrokerVersion

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
    source=Source.FILE,
    at="snapshot",
    rules=(RULE.rule,),
    pulls=ComparedPulls(pulls=1, differ=1, seen=1, unseen=(), fields=RULE.fields, rules=[RULE]),
    groups=MovedGroups(committed=1, again=0, again_messages=0, skipped=1, skipped_messages=2, most=[MOVED]),
    settings=[SETTING],
    new_settings=0,
    starts=ComparedStarts(before=OK, after=OK, queues_differ=1, queues=[{"topic": NAME, "queueId": 0, "before": (0, 1), "after": None}]),
    lost=[],
    odd_entries=0,
)


def test_names_from_a_store_reach_no_terminal_as_commands(capsys: pytest.CaptureFixture[str]) -> None:
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
