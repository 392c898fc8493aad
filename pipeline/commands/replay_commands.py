"""The commands replay and demo."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import GivenSettings, rules_option, settings_options
from pipeline.commands.new_run import now, run_id
from pipeline.commands.options import (
    at_option,
    behind_option,
    broker_option,
    check_behind,
    check_hold,
    filters_option,
    hold_option,
    lake_option,
    named,
)
from pipeline.settings.slave_lag import SlaveLag
from pipeline.terminal import progress_to_stderr, tell_replayed

if TYPE_CHECKING:
    from pipeline.replay.replay_run import Replayed


@cli.command(
    "replay",
    cls=ExampleCommand,
    example="pullsim replay --lake lake --requests trace.jsonl --out answers.jsonl --compare",
)
@lake_option
@click.option(
    "--requests", metavar="FILE", help="Pull requests, a JSON object a line, or Parquet; by default the captured pulls of pull_request."
)
@click.option("--out", metavar="FILE", help="File for the answers; by default they go to the table pull_response.")
@at_option
@filters_option
@hold_option
@behind_option
@click.option("--no-messages", is_flag=True, help="Leave the messages out of the answers.")
@click.option("--compare", is_flag=True, help="Compare the answers with the recorded ones; exit code 1 if any differs.")
@broker_option
@settings_options
@rules_option
@engine_options
def replay_command(
    lake: str,
    requests: str | None,
    out: str | None,
    at: Any,
    filters: frozenset[str] | None,
    hold: bool,
    behind: SlaveLag,
    no_messages: bool,
    compare: bool,
    broker: str | None,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Answer pull requests as the broker would have.

    The settings are those of the import, overridden by those of the file's header line, and these by --properties and --set.

    With --hold, a pull with the suspend bit (2) in its sysFlag that finds nothing waits for suspendTimeoutMillis, and is answered as of
    the moment at which a message or the broker's sweep wakes it.

    With --behind, a slave answers (--set brokerRole=SLAVE --set brokerId=1), whose store lacks the end of its master's.

    Captured pulls (`pullsim capture`) are compared by code, offsets and the SHA-256 of the messages. A pull that was held is answered as of
    the moment at which it was woken.
    """
    from pipeline.capture.replay_captured import run_captured_replay
    from pipeline.files.given_files import require_input, require_output
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_job import run_replay
    from pipeline.replay.replay_run import ReplayOptions
    from pipeline.replay.small_replay import Reads, answered_here

    check_hold(hold, at, of_table=requests is None)
    check_behind(behind, at, others={"--hold": hold})
    options = ReplayOptions(at=at, filters=filters, messages=not no_messages, compare=compare, out=out, hold=hold, slave_lag=behind)

    def answered(opened: OpenedBroker) -> Replayed[Any]:
        stored, run = opened.properties(), run_id()
        if requests is None:
            own = settings.over(stored)
            return run_captured_replay(opened, options=options, settings=own, run_id=run, now=now, progress=progress_to_stderr)
        settings_of = partial(settings.of_file, stored)
        return run_replay(opened, requests, options=options, settings_of=settings_of, run_id=run, now=now, progress=progress_to_stderr)

    done = None
    if engine.may_work_here:
        if requests is not None:
            require_input("--requests", requests)
        if out is not None:
            require_output("--out", out, read=lake)
        has_messages = options.messages and (compare or out is not None)
        reads: Reads = "lines" if compare or has_messages else "queues"
        done = answered_here(answered, lake, broker, requests, options=options, reads=reads, tell=engine.tell)
    if done is None:
        inputs, outputs = {"--requests": requests}, {"--out": out}
        with engine.session("long", reads=lake, broker=broker, inputs=inputs, outputs=outputs, workers=True) as spark:
            done = answered(OpenedBroker.of(spark, lake, broker))
    tell_replayed(done)
    if requests is None and at == "snapshot" and done.comparison is not None and done.comparison.differ:
        progress_to_stderr(
            "the store was seen as it is now, unlike by these pulls: --at recorded-max ends each queue where it ended for the broker"
        )
    if done.comparison is not None and done.comparison.differ:
        raise SystemExit(1)


@cli.command("demo", cls=ExampleCommand, example="pullsim demo --lake demo-lake")
@click.option("--lake", callback=named, metavar="DIR", help="Directory for the lake; a temporary one, removed at the end, by default.")
@engine_options
def demo_command(lake: str | None, engine: Engine) -> None:
    """Import a real broker's store, replay recorded pulls against it, compare the answers, and show lag."""
    from pipeline.commands.demo import run_demo

    with engine.session(workers=True, leave_classes=True) as spark:
        differ = run_demo(spark, lake, run_id=run_id, now=now)
    if differ:
        raise SystemExit(1)
