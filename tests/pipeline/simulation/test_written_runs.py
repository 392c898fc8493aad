"""Stores of simulated runs: each message that the simulation reports is in the store at the reported place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.generate.workload import DEFAULT_START
from pipeline.main import run
from pipeline.settings.settings import BrokerSettings
from pipeline.simulation.plans import plan_of
from pipeline.simulation.scenario import GroupScenario, read_scenario
from pipeline.simulation.simulation_rows import SimulationRun, rows_of
from pipeline.simulation.written_run import write_run
from store_format.config.config_files import decode_consumer_offsets, decode_delay_offsets
from store_format.record.message import Message
from tests.makers.appended import messages_of
from udfs.simulation.group_plan import GroupPlan, Rates, Transactions
from udfs.simulation.half_messages import BODY, OFFSET, QUEUE, half_messages
from udfs.simulation.transactions import TransactionFigures, transacted

Stored = dict[tuple[str, int], list[Message]]
Row = dict[str, Any]

SMALL = BrokerSettings({"mappedFileSizeCommitLog": 65_536, "maxHashSlotNum": 100, "maxIndexNum": 600})
SCENARIO = """\
group = "g"
topic = "orders"
until = "2h"
consumption = true
[messages]
rate = 20
lasts = "20s"
queues = 2
backlog = 10
body = [0, 300]
tags = { paid = 1, sent = 2 }
[listener]
takes = "30ms"
fails = 0.2
poison = 0.05
[consumer]
maxReconsumeTimes = 2
[[clients]]
count = 2
"""
TRANSACTIONS = """\
[transactions]
commits = 0.6
rolls_back = 0.1
takes = { mean = "20s" }
decides = "150s"
[broker]
transactionCheckMax = 2
"""


def scenario_of(text: str) -> GroupScenario:
    (variant,) = read_scenario(text, "here")
    return variant.scenario


def written(folder: Path, text: str) -> tuple[GroupPlan, Stored, list[Row]]:
    """The plan, the messages of each queue of the written store, and the rows that the simulation gives."""
    scenario = scenario_of(text)
    told = write_run(str(folder / "store"), scenario, "here", SMALL)
    stored: Stored = {}
    logged = messages_of(folder / "store")
    times = [one.message.store_timestamp for one in logged]
    assert times == sorted(times)
    for one in logged:
        stored.setdefault((one.message.topic.decode(), one.message.queue_id), []).append(one.message)
    for messages in stored.values():
        assert [one.queue_offset for one in messages] == list(range(len(messages)))
    assert told.messages == sum(map(len, stored.values()))
    plan = plan_of(scenario, scenario.seed, "here")
    return plan, stored, [row for batch in rows_of(SimulationRun(0, scenario.seed, plan)) for row in batch.to_pylist()]


def of_table(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["tableName"] == name]


def key_of(message: Message) -> str:
    return message.properties_map()["KEYS"]


def assert_consumed_is_stored(stored: Stored, rows: list[Row]) -> None:
    """Assert that each message that a listener got is in the store at its place, with its number of tries."""
    consumed = of_table(rows, "consumption")
    assert consumed
    for row in consumed:
        message = stored[row["topic"], row["queueId"]][row["queueOffset"]]
        assert message.reconsume_times == row["reconsumeTimes"]
        assert message.store_timestamp - DEFAULT_START <= row["pulledMicros"] // 1000
        if row["topic"] != "orders":
            first = stored["orders", row["firstQueueId"]][row["firstQueueOffset"]]
            assert (key_of(message), message.body) == (key_of(first), first.body)
            assert message.properties_map()["RETRY_TOPIC"] == "orders"


def test_tries_and_dead_letters_stand_where_the_simulation_has_them(tmp_path: Path) -> None:
    plan, stored, rows = written(tmp_path, 'network = "5ms"\n' + SCENARIO)
    assert_consumed_is_stored(stored, rows)
    (figures,) = of_table(rows, "simulation_run")
    retries, dead = stored["%RETRY%g", 0], stored["%DLQ%g", 0]
    assert figures["consumedAll"]
    assert len(retries) == figures["sentBack"] > 50
    letters = of_table(rows, "dead_letter")
    assert [key_of(one) for one in dead] == [f"{row['queueId']}-{row['queueOffset']}" for row in letters]
    assert [one.store_timestamp - DEFAULT_START for one in dead] == [row["atMillis"] for row in letters]
    assert len(dead) > 10
    waited = {name: messages for name, messages in stored.items() if name[0] == "SCHEDULE_TOPIC_XXXX"}
    assert {queue + 1 for _, queue in waited} == {3, 4}
    assert sum(map(len, waited.values())) == len(retries)
    assert isinstance(plan.messages, Rates)
    sizes = {(row[QUEUE], row[OFFSET]): row[BODY] for row in half_messages_of(plan)}
    for queue in range(2):
        assert [len(one.body) for one in stored["orders", queue]] == [sizes[queue, one.queue_offset] for one in stored["orders", queue]]
    assert Counter(one.properties_map()["TAGS"] for one in stored["orders", 0])["sent"] == pytest.approx(137, rel=0.2)
    config = tmp_path / "store" / "config"
    offsets = decode_consumer_offsets((config / "consumerOffset.json").read_bytes(), "here").offsetTable
    assert offsets == {"orders@g": {queue: len(stored["orders", queue]) for queue in range(2)}, "%RETRY%g@g": {0: len(retries)}}
    delays = decode_delay_offsets((config / "delayOffset.json").read_bytes(), "here").offsetTable
    assert delays == {queue + 1: len(messages) for (_, queue), messages in waited.items()}


def half_messages_of(plan: GroupPlan) -> list[list[int]]:
    found: list[list[int]] = half_messages(plan, plan.transactions or Transactions(commits=1.0)).tolist()
    return found


def test_transactions_leave_half_and_op_messages(tmp_path: Path) -> None:
    text = SCENARIO.replace("[listener]", TRANSACTIONS + "[listener]").replace("rate = 20", "rate = 4").replace('"20s"', '"200s"', 1)
    plan, stored, rows = written(tmp_path, text)
    assert_consumed_is_stored(stored, rows)
    assert plan.transactions
    recorded, _ = transacted(plan, plan.transactions)
    for queue in range(2):
        times = recorded.times[recorded.first[queue] : recorded.first[queue + 1]]
        assert [one.store_timestamp - DEFAULT_START for one in stored["orders", queue]] == [max(time, 0) // 1000 for time in times.tolist()]
    figures = figures_at_the_end(plan, rows)
    halves, ops = stored["RMQ_SYS_TRANS_HALF_TOPIC", 0], stored["RMQ_SYS_TRANS_OP_HALF_TOPIC", 0]
    assert len(halves) == figures.sent + figures.checked
    assert Counter(one.properties_map().get("TRANSACTION_CHECK_TIMES") for one in halves).keys() == {None, "1", "2"}
    assert len(stored["TRANS_CHECK_MAX_TIME_TOPIC", 0]) == figures.given_up > 5
    committed = [one for queue in range(2) for one in stored["orders", queue] if one.sys_flag & 0xC == 0x8]
    assert len(committed) == figures.committed + figures.committed_again
    assert figures.committed_again > 5
    of_log = {one.physic_offset: one for one in halves}
    assert all(key_of(of_log[one.prepared_transaction_offset]) == key_of(one) for one in committed)
    ended = [key_of(halves[int(one.body)]) for one in ops]
    assert Counter(key_of(one) for one in committed) <= Counter(ended)
    assert len(set(ended)) == figures.committed + figures.rolled_back
    offsets = decode_consumer_offsets((tmp_path / "store" / "config" / "consumerOffset.json").read_bytes(), "here").offsetTable
    checked = offsets["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"][0]
    done = {*ended, *map(key_of, stored["TRANS_CHECK_MAX_TIME_TOPIC", 0]), *map(key_of, halves[checked:])}
    assert {key_of(one) for one in halves[:checked]} <= done
    assert checked > 400


def figures_at_the_end(plan: GroupPlan, rows: list[Row]) -> TransactionFigures:
    """The figures of transactions at the end of the run, not at `until`."""
    (figures,) = of_table(rows, "simulation_run")
    assert plan.transactions
    return transacted(replace(plan, until=figures["endedMillis"] * 1000), plan.transactions)[1]


def test_messages_with_a_delay_level_wait_in_its_queue(tmp_path: Path) -> None:
    _, stored, rows = written(tmp_path, SCENARIO.replace("backlog = 10", "backlog = 10\ndelay = 2"))
    assert_consumed_is_stored(stored, rows)
    waiting = stored["SCHEDULE_TOPIC_XXXX", 1]
    came = [one for queue in range(2) for one in stored["orders", queue] if one.store_timestamp > DEFAULT_START]
    assert sorted(map(key_of, waiting)) == sorted(map(key_of, came))
    first = {key_of(one): one.store_timestamp for one in waiting}
    assert all(5000 <= one.store_timestamp - first[key_of(one)] <= 5100 for one in came)


def test_the_same_scenario_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        write_run(str(tmp_path / name), scenario_of(SCENARIO.replace('"20s"', '"2s"')), "here", SMALL)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        found.append({path.relative_to(tmp_path / name): (path.read_bytes(), path.stat().st_mtime_ns) for path in files})
    assert found[0] == found[1]
    assert len(found[0]) > 8


@pytest.mark.parametrize(
    ("changed", "to", "says"),
    [
        ("queues = 2", "brokers = [\"a\", \"b\"]", "line 8, messages, brokers: expected one broker"),
        ("fails = 0.2", "orderly = true", "line 14, listener, orderly: expected a concurrent listener"),
        ("rate = 20", "rate = 20_000", "line 6, messages, rate: expected 200,000 messages at most with the backlog"),
        ("body = [0, 300]", "body = 4_194_304", "line 10, messages, body: expected 4,190,208 bytes at most"),
        ("", "", "expected an empty folder, or none"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: str, to: str, says: str
) -> None:
    scenario, store = tmp_path / "scenario.toml", tmp_path / "store"
    scenario.write_text(SCENARIO.replace(changed, to, 1), "utf-8")
    if not changed:
        store.mkdir()
        (store / "mine").write_text("", "utf-8")
    given = ["simulate", "--lake", str(tmp_path / "lake"), "--scenario", str(scenario), "--write-store", str(store)]
    assert run(given) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("messageDelayLevel=1s", "broker, messageDelayLevel: expected '1s' as in --set or --properties"),
        ("mappedFileSizeCommitLog=5000", "line 10, messages, body: expected 904 bytes at most"),
        ("brokerRole=SLAVE", "a master without enableMultiDispatch"),
    ],
)
def test_settings_with_which_the_run_cannot_be_written_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, says: str
) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO.replace("[0, 300]", "1000"), "utf-8")
    asked = ["simulate", "--lake", str(tmp_path / "lake"), "--scenario", str(scenario), "--set", given]
    assert run([*asked, "--write-store", str(tmp_path / "store")]) == 2
    assert says in capsys.readouterr().err
    assert run(asked) == 2
    assert "--set and --properties cannot be used without --write-store" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scenario.toml"]


def test_one_run_is_written_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO, "utf-8")
    given = ["simulate", "--lake", str(tmp_path / "lake"), "--scenario", str(scenario), "--write-store", str(tmp_path / "store")]
    assert run([*given, "--seeds", "2"]) == 2
    assert "one variant and one seed, found 1 and 2" in capsys.readouterr().err
