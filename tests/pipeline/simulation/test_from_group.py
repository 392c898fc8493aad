"""`simulate --from-group` prints a scenario that simulate reads, whatever names and gaps a lake has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.commands.cli import cli
from pipeline.commands.engine import Engine
from pipeline.main import run
from pipeline.simulation.scenario import read_scenario
from tests.makers.plain_lakes import plain_lake

SECOND = 1_000_000
BEAT = {"event": "HEART_BEAT", "source": "s", "sourceDigest": "d", "requestId": "r"}


def made(
    root: Path, *, tags: Sequence[str | None], captured: bool, wanted: str = "*", topic: str = "orders", group: str = "g", retried: int = 0
) -> Path:
    """A lake in which the group has consumed 60 of 100 messages, which came in 99 seconds, and sent some back.

    With a capture it consumed them in 20 seconds, by two clients.
    """
    queue = {"brokerName": "b", "topic": topic, "queueId": 0}
    stamps = [{**queue, "queueOffset": number, "storeTimestamp": 1000 * number, "size": 300} for number in range(100)]
    log = [
        {
            **queue,
            "queueOffset": number,
            "tags": tags[number % len(tags)],
            "storeSize": 91 + len(topic.encode()) + 10 + 50,
            "propertiesRaw": b"x" * 10,
        }
        for number in range(100)
    ]
    back = {"brokerName": "b", "topic": f"%RETRY%{group}", "queueId": 0, "properties": [("RETRY_TOPIC", topic)]}
    log += [{**back, "queueOffset": number} for number in range(retried)]
    found: dict[str, list[dict[str, Any]]] = {
        "broker": [{"brokerName": "b", "maxStoreTimestamp": 99_000, "minPhyOffset": 0}],
        "queue": [{**queue, "minOffset": 0, "maxOffset": 100}],
        "consumer_offset": [{**queue, "consumerGroup": group, "consumerOffset": 60}],
        "consume_queue": stamps,
        "consume_queue_segment": [{**queue, "fileFirstOffset": 0, "entryBytes": 30_000, "entryCount": 100}],
        "commit_log": log,
    }
    if captured:
        of_group = {**queue, "consumerGroup": group}
        found["subscription"] = [
            {**of_group, **BEAT, "connection": f"c{number}", "client": "x", "clientId": f"id{number}", "sequence": number, "micros": number}
            | {"messageModel": "CLUSTERING", "subString": wanted, "expressionType": "TAG", "subVersion": 1}
            for number in (1, 2)
        ]
        found["offset_history"] = [
            {**of_group, "origin": "UPDATE_CONSUMER_OFFSET", "micros": number * SECOND, "consumerOffset": 3 * number, "sequence": number}
            | {"connection": "c1", "client": "x", "source": "s", "sourceDigest": "d", "requestId": "r"}
            for number in range(21)
        ]
    return plain_lake(root / "lake", found)


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "session", lambda *_, **__: pytest.fail("Spark was started"))


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = run(["simulate", *map(str, words)])
    return code, *capsys.readouterr()


def test_figures_come_from_store_and_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = made(tmp_path, tags=["a", "a", "b", None], captured=True, wanted="b || a || gone")
    code, out, _ = printed(capsys, "--lake", lake, "--from-group", "g")
    assert code == 0
    scenario = read_scenario(out, "printed", ())[0].scenario
    assert scenario.messages.rate == ((0, 1.0),)
    assert (scenario.messages.backlog, scenario.messages.queues, scenario.messages.body) == (40, 1, (50, 50))
    assert dict(scenario.messages.tags) == {"b": 25, "a": 50, "no-tag": 25}
    assert scenario.subscription == "b || a"  # nobody sent the third
    assert scenario.clients[0].count == 2
    # 60 offsets in 20 seconds, 40 threads
    assert scenario.listener.takes.first == pytest.approx(40 / 3 * SECOND, rel=0.005)
    assert "a guess" not in out


def test_the_command_in_the_first_comment_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = printed(capsys, "--lake", made(tmp_path, tags=["a"], captured=False), "--from-group", "g")
    [told] = re.findall(r"^# +pullsim (simulate .*)$", out, re.MULTILINE)
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(out, "utf-8")
    _, *words = told.replace("LAKE", str(tmp_path / "lake")).replace("THIS-FILE", str(scenario)).split()
    with cli.commands["simulate"].make_context("simulate", words) as context:
        assert (context.params["lake"], context.params["scenario"]) == (str(tmp_path / "lake"), str(scenario))


def test_the_share_of_failures_is_that_of_the_store_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 60 consumed messages the group wants a third, and it sent 5 back; how many were committed during the capture does not matter."""
    for captured in (False, True):
        lake = made(tmp_path / str(captured), tags=["a", "b", "c"], captured=captured, wanted="a", retried=5)
        code, out, err = printed(capsys, "--lake", lake, "--from-group", "g")
        assert code == 0, err
        consumed = 60 * 34 / 100 if captured else 60  # without a capture no filter is known: a is the tag of 34 of 100 messages
        assert read_scenario(out, "printed", ())[0].scenario.listener.fails == pytest.approx(5 / (consumed + 5), rel=0.005)


def test_names_do_not_leave_their_comment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = 'g\nuntil = "1s"\x1b[2J'
    code, out, err = printed(capsys, "--lake", made(tmp_path, tags=["a"], captured=False, group=group), "--from-group", group)
    assert code == 0, err
    assert "\x1b" not in out
    read = tomllib.loads(out)
    assert (read["group"], read["until"]) == (group, "30m")


def test_what_the_lake_does_not_tell_is_called_a_guess(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(capsys, "--lake", made(tmp_path, tags=[None], captured=False), "--from-group", "g")
    assert code == 0
    guessed = [line.partition(" ")[0] for line in out.splitlines() if "# a guess" in line]
    assert guessed == ["subscription", "takes", "count"]
    assert read_scenario(out, "printed", ())[0].scenario.messages.backlog == 40


@pytest.mark.parametrize("tag", ['"; x = 1 #', "a\\b", "it's", "\x7f", "🤦", "no-tag", "new\tline"])
def test_hostile_tags_stay_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str], tag: str) -> None:
    lake = made(tmp_path, tags=[tag, *(f"t{number}" for number in range(24))], captured=True, wanted=tag)
    code, out, _ = printed(capsys, "--lake", lake, "--from-group", "g")
    assert code == 0
    tags = dict(read_scenario(out, "printed", ())[0].scenario.messages.tags)
    assert (tags[tag], len(tags), sum(tags.values())) == (4, 21, 100)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from-group", "h"), "the nearest known: 'g'"),
        (("--from-group", "g", "--topic", "order"), "the nearest known: 'orders'"),
        (("--from-group", "g", "--broker", "c"), "expected broker 'c', found 'b'"),
        (("--from-group", "g", "--scenario", "x.toml"), "--from-group cannot be combined with --scenario"),
        (("--from-group", "g", "--out", "x.svg"), "--from-group cannot be combined with --out"),
        (("--topic", "orders", "--scenario", "x.toml"), "--topic cannot be used without --from-group"),
        ((), "expected --scenario FILE, or --from-group NAME"),
    ],
)
def test_bad_options_end_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str) -> None:
    code, out, err = printed(capsys, "--lake", made(tmp_path, tags=["a"], captured=False), *words)
    assert (code, out) == (2, "")
    assert told in err
