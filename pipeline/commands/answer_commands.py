"""The command that answers scenarios."""

from __future__ import annotations

import click

from pipeline.commands.cli import Engine, ExampleCommand, cli, engine_options, lake_option, now, run_id
from pipeline.terminal import progress_to_stderr, say


@cli.command("answer", cls=ExampleCommand, example="pullsim answer --lake scratch --cases scenarios.jsonl --out answered.jsonl")
@lake_option
@click.option("--cases", required=True, metavar="FILE", help="Scenarios, a JSON object with its steps a line.")
@click.option("--out", required=True, metavar="FILE", help="File for the same lines, with the results of their steps.")
@engine_options
def answer_command(lake: str, cases: str, out: str, engine: Engine) -> None:
    """Run scenarios against a simulated broker: topics, groups, heartbeats, messages, and pulls with their answers.

    Time is virtual: an operation takes no time, a wait takes its given time. The lake's tables scenario_step, broker_history and
    offset_moved_event record each event with its time.
    """
    from pipeline.lake.lake import Lake
    from pipeline.scenarios.scenario_job import run_answer

    with engine.session(inputs={"--cases": cases}, outputs={"--out": out}) as spark:
        done = run_answer(Lake(spark, lake), cases, out, run_id=run_id(), now=now, progress=progress_to_stderr)
    say(f"{done.scenarios:,} scenarios with {done.steps:,} steps answered to {done.out}")
