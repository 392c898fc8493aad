"""`pullsim simulate`, from the scenario file to the tables: the example of docs/simulate.md, and messages of a store."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.makers.lakes import import_as
from tests.runs.in_session import Pullsim, pullsim_in
from tests.runs.sampling import slow_proof
from tests.truth.places import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = PROJECT / "docs" / "simulate.md"


@pytest.fixture
def pullsim(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pullsim:
    return pullsim_in(spark, monkeypatch, capsys)


def asked(pullsim: Pullsim, lake: Path, query: str) -> list[dict[str, str]]:
    code, out, err = pullsim("sql", "--lake", lake, query, "--format", "csv")
    assert code == 0, err
    return list(csv.DictReader(io.StringIO(out)))


@slow_proof  # a minute; those below ask the same of smaller scenarios
def test_the_example_of_the_page_answers_its_question(pullsim: Pullsim, tmp_path: Path) -> None:
    lake, scenario, picture = tmp_path / "lake", tmp_path / "slow.toml", tmp_path / "lag.svg"
    example = re.search(r"```toml\n(question.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert example
    scenario.write_text(example[1].replace("rate = 500", "rate = 50").replace("50_000", "5_000"), "utf-8")
    varied = ("--vary", "clients.count=3,12", "--vary", "consumption=true", "--seeds", "2", "--vary", "consumer.consumeThreadMin=2")
    code, out, err = pullsim("simulate", "--lake", lake, "--scenario", scenario, *varied, "--out", picture, "--format", "json")
    assert code == 0, err
    few, many = map(json.loads, out.splitlines())
    assert (few["given"], few["seeds"]) == ("clients.count=3, consumption=true, consumer.consumeThreadMin=2", 2)
    assert few["consumedAll"]
    # six threads of 80 ms are 75 messages a second: 25 to spare, for a backlog of 5,000, while 50 a second come; 16 beat that by far
    assert few["caughtUpSeconds"] > 5_000 / 25 > many["caughtUpSeconds"]
    assert (few["idleClients"], many["idleClients"]) == (0, 4)
    assert re.findall(r'id="line(\d+)"', picture.read_text("utf-8")) == ["0", "1"]
    runs = asked(pullsim, lake, "SELECT *, given['clients.count'] AS count FROM simulation_run ORDER BY variant, seed")
    assert [(run["variant"], run["seed"], run["count"]) for run in runs] == [
        ("0", "1", "3"),
        ("0", "2", "3"),
        ("1", "1", "12"),
        ("1", "2", "12"),
    ]
    told = asked(pullsim, lake, "SELECT variant, seed, result, count(*) AS n FROM consumption GROUP BY ALL")
    for run in runs:
        by_result = {row["result"]: int(row["n"]) for row in told if (row["variant"], row["seed"]) == (run["variant"], run["seed"])}
        assert by_result["CONSUME_SUCCESS"] == int(run["succeeded"])
        assert by_result["RECONSUME_LATER"] == int(run["sentBack"]) + int(run["deadLetters"])
    last = asked(pullsim, lake, "SELECT sum(lag) AS lag FROM simulated_lag WHERE variant = 0 AND seed = 1 AND atMillis = 0")
    assert int(last[0]["lag"]) == 5_000
    taken = asked(
        pullsim, lake, "SELECT clientId, size(taken) AS n FROM rebalance_event WHERE variant = 0 AND seed = 1 AND topic = 'orders'"
    )
    assert {row["clientId"]: row["n"] for row in taken}.keys() == {"client-0", "client-1", "client-2"}


RECORDED = """\
group = "g"
topic = "TopicTest"
until = "2h"
begin = "committed"
[messages]
recorded = true
[[clients]]
count = 2
"""


@slow_proof
def test_a_group_consumes_what_a_store_has_for_it(pullsim: Pullsim, spark: SparkSession, small_store: Path, tmp_path: Path) -> None:
    store, lake, scenario = tmp_path / "store", tmp_path / "lake", tmp_path / "recorded.toml"
    shutil.copytree(small_store, store)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"TopicTest@g":{0:50,1:0,2:30}}}', "utf-8")
    import_as(spark, lake, store)
    scenario.write_text(RECORDED, "utf-8")
    code, out, err = pullsim("simulate", "--lake", lake, "--scenario", scenario, "--format", "json")
    assert code == 0, err
    row = json.loads(out)
    # the queues have 60, 26, 33 and 26 messages (small.after-load.json); on the last one nothing is committed, and the broker says 0
    assert (row["succeeded"], row["consumedAll"]) == (10 + 26 + 3 + 26, True)
    scenario.write_text(RECORDED.replace("TopicTest", "TopicTset"), "utf-8")
    code, _, err = pullsim("simulate", "--lake", lake, "--scenario", scenario)
    assert (code, "recorded.toml, line 2, topic" in err, "the nearest known name is TopicTest" in err) == (2, True, True)
    scenario.write_text('subscription = "TagZ"\n' + RECORDED, "utf-8")
    code, _, err = pullsim("simulate", "--lake", lake, "--scenario", scenario)
    assert (code, "tags that occur in the recorded messages" in err) == (2, True)


@slow_proof
def test_transactions_of_a_scenario_are_told_with_their_group_and_in_a_table_of_their_own(pullsim: Pullsim, tmp_path: Path) -> None:
    lake, scenario = tmp_path / "lake", tmp_path / "paid.toml"
    messages = '[messages]\nrate = 10\nlasts = "1m"\neven = true\n[transactions]\ncommits = 1.0\ntakes = "1s"\n'
    scenario.write_text(f'group = "g"\ntopic = "paid"\nuntil = "20m"\n{messages}[[clients]]\n', "utf-8")
    varied = ("--vary", "transactions.commits=1.0,0.0", "--seeds", "2", "--format", "json")
    code, out, err = pullsim("simulate", "--lake", lake, "--scenario", scenario, *varied)
    assert code == 0, err
    committed, unknown = map(json.loads, out.splitlines())
    assert [committed[name] for name in ("sent", "committed", "checked", "givenUp", "succeeded")] == [600, 600, 0, 0, 600]
    assert (committed["commitSeconds50"], committed["commitSecondsMax"]) == (1.0, 1.0)
    # the broker asks about each of the 600 messages fifteen times, then it gives the message up
    assert [unknown[name] for name in ("committed", "checked", "givenUp", "undecided", "commitSeconds99")] == [0, 9000, 600, 0, None]
    rows = asked(pullsim, lake, "SELECT variant, seed, givenUp, commitMillisMax FROM simulated_transactions ORDER BY variant, seed")
    assert [tuple(row.values()) for row in rows] == [
        ("0", "1", "0", "1000"),
        ("0", "2", "0", "1000"),
        ("1", "1", "600", ""),
        ("1", "2", "600", ""),
    ]
