"""The command that answers scenarios."""

from __future__ import annotations

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import VERSIONS
from pipeline.commands.new_run import now, run_id
from pipeline.commands.options import lake_option
from pipeline.terminal import progress_to_stderr, say
from store_format.broker_version import DEFAULT_VERSION, BrokerVersion

_RULES = "Version of the broker whose rules hold; by default that of rulesVersion in a scenario's brokerBase, else 4.9.3."


@cli.command("answer", cls=ExampleCommand, example="pullsim answer --lake scratch --cases scenarios.jsonl --out answered.jsonl")
@lake_option
@click.option("--cases", required=True, metavar="FILE", help="Scenarios, a JSON object with its steps a line.")
@click.option("--out", required=True, metavar="FILE", help="File for the same lines, with the results of their steps.")
@click.option("--rules", type=VERSIONS, help=_RULES)
@engine_options
def answer_command(lake: str, cases: str, out: str, rules: str | None, engine: Engine) -> None:
    """Run scenarios against a simulated broker: topics, groups, heartbeats, messages, and pulls with their answers.

    Time is virtual: an operation takes no time, a wait takes its given time. The lake's tables scenario_step, broker_history and
    offset_moved_event record each event with its time.
    """
    from pipeline.lake.lake import Lake
    from pipeline.scenarios.scenario_job import run_answer

    with engine.session(inputs={"--cases": cases}, outputs={"--out": out}) as spark:
        version = None if rules is None else BrokerVersion(rules)
        done = run_answer(Lake(spark, lake), cases, out, rules=version, run_id=run_id(), now=now, progress=progress_to_stderr)
    others = "" if rules else ", where no brokerBase names others"
    progress_to_stderr(f"the rules are those of broker {rules or DEFAULT_VERSION.value}{others}")
    say(f"{done.scenarios:,} scenarios with {done.steps:,} steps answered to {done.out}")
