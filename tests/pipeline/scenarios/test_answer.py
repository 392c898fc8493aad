"""`pullsim answer` reads a file of scenarios, and writes it with results, and the history of the broker as tables."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.lake.lake import Lake
from pipeline.lake.views import create_views
from pipeline.main import judged
from pipeline.scenarios.scenario_job import run_answer
from store_format.broker_version import BrokerVersion
from tests.runs.sampling import ALL, slow_proof
from tests.runs.scenario_answers import compared
from tests.truth.golden import golden_lines, needs_golden
from tests.truth.golden5 import needs_golden5, unpacked
from tests.truth.places import DATA, PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
RECORDED = DATA / "scenarios" / "recorded.jsonl"


def answer(spark: SparkSession, folder: Path, cases: Path, run_id: str = "r1", rules: BrokerVersion | None = None) -> Any:
    lake, out = Lake(spark, str(folder / "lake")), str(folder / "out.jsonl")
    return run_answer(lake, str(cases), out, rules=rules, run_id=run_id, now=lambda: NOW, progress=lambda _: None)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def asked(path: Path, cases: list[dict[str, Any]]) -> Path:
    """Write the cases without their recorded results to a file."""
    bare = [case | {"steps": [{name: step[name] for name in step if name != "result"} for step in case["steps"]]} for case in cases]
    path.write_text("".join(json.dumps(case) + "\n" for case in bare), "utf-8")
    return path


@slow_proof
@needs_golden5
def test_the_rules_of_a_version_reach_every_task(spark: SparkSession, tmp_path: Path) -> None:
    # message_was_removing reads the log of all with its settings, so it is answered a second time
    named = ("queue_last_ok", "lite_pull_code_unknown", "slave_never_commits")
    path = unpacked("on-4.9.3-stores") / "on-4.9.3-stores" / "5.5.0" / "broker" / "pull_codes.jsonl"
    base = next(case["brokerBase"] for case in lines(path) if case["name"] == "message_was_removing")
    recorded = [case for case in lines(path) if case["name"] in named or case["brokerBase"] == base]
    assert len(recorded) > len(named) + 1
    answer(spark, tmp_path, asked(tmp_path / "cases.jsonl", recorded), rules=BrokerVersion.V5_5_0)
    assert [compared(old, new) for old, new in zip(recorded, lines(tmp_path / "out.jsonl"), strict=True)] == [[]] * len(recorded)


def test_the_answers_are_the_lines_with_results_and_tables_of_what_happened(spark: SparkSession, tmp_path: Path) -> None:
    recorded = lines(RECORDED)
    done = answer(spark, tmp_path, asked(tmp_path / "cases.jsonl", recorded))
    told = lines(tmp_path / "out.jsonl")
    assert [compared(old, new) for old, new in zip(recorded, told, strict=True)] == [[]] * len(recorded)
    assert (done.scenarios, done.steps) == (len(recorded), sum(len(case["steps"]) for case in recorded))

    lake = Lake(spark, str(tmp_path / "lake"))
    tables = {name: spark.read.format("delta").load(lake.path(name)) for name in ("scenario_step", "broker_history", "offset_moved_event")}
    assert tables["scenario_step"].count() == done.steps
    pulls = tables["scenario_step"].where("op = 'pull' AND get_json_object(result, '$.code') = 21")
    # a pull that is answered with PULL_OFFSET_MOVED has its event, at its time
    assert tables["offset_moved_event"].join(pulls, ["line", "step", "at"]).count() == pulls.count() == tables["offset_moved_event"].count()
    offsets = tables["broker_history"].where("kind = 'consumer_offset' AND scenario = 'query_consumer_offset'").orderBy("step")
    assert [row["queueOffset"] for row in offsets.collect()] == [4, 1]
    # the example of the docs: what a pull saw of its group
    (example,) = re.findall(r"```sql\n(.*?)```", (PROJECT / "docs" / "scenarios.md").read_text("utf-8"), re.DOTALL)
    groups = {row["scenario"]: json.loads(row["groupAsOfThePull"]) for row in create_views(lake).sql(example).collect()}
    assert (groups["slave_offset_moved_no_check"]["brokerId"], groups["no_flag_broadcast_disabled"]["consumeBroadcastEnable"]) == (4, False)
    kinds = {row["kind"] for row in tables["broker_history"].select("kind").distinct().collect()}
    assert kinds == {"setting", "topic_config", "subscription_group", "registration", "unregistration", "consumer_offset", "message"}


@slow_proof
@needs_golden
def test_a_scenario_that_looks_at_the_log_goes_on_where_others_left_it(spark: SparkSession, tmp_path: Path) -> None:
    recorded = [case for case in golden_lines("broker", "pull_codes.jsonl") if ALL or case["broker"] == "B"]
    assert any(step["op"] == "deleteCommitLogHead" for case in recorded for step in case["steps"])
    answer(spark, tmp_path, asked(tmp_path / "cases.jsonl", recorded))
    told = lines(tmp_path / "out.jsonl")
    differing = {old["name"]: found for old, new in zip(recorded, told, strict=True) if (found := compared(old, new))}
    assert differing == {}


@pytest.mark.parametrize("bad", ['{"steps": [{"op": "sleep"}]}', "\udcff"])
def test_a_line_that_is_no_scenario_ends_with_2_before_anything_is_written(spark: SparkSession, tmp_path: Path, bad: str) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_bytes(b'{"steps": []}\n\n' + bad.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(Exception, match="line 3") as raised:
        answer(spark, tmp_path, cases)
    code, text = judged(raised.value)
    assert code == 2
    assert "cases.jsonl, line 3: expected" in text
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "lake" / "scenario_step").exists()
