"""The command that reads captured traffic."""

from __future__ import annotations

import click

from pipeline.commands.cli import Engine, ExampleCommand, broker_option, cli, engine_options, lake_option, now, run_id
from pipeline.terminal import progress_to_stderr, say


@cli.command("capture", cls=ExampleCommand, example="pullsim capture traffic.pcap --lake lake && pullsim replay --lake lake --compare")
@click.argument("file")
@lake_option
@broker_option
@engine_options
def capture_command(file: str, lake: str, broker: str | None, engine: Engine) -> None:
    """Read the traffic of a broker, captured as pcap or pcapng, into the lake.

    Each PULL_MESSAGE becomes a row of pull_request, with the broker's answer. Committed and queried offsets go to offset_history,
    subscriptions of heartbeats to subscription, bytes that cannot be read to bad_request. Reading the same FILE again replaces its rows.
    """
    from pipeline.capture.capture_job import broker_of, run_capture
    from pipeline.lake.lake import Lake

    with engine.session("long", workers=True) as spark:
        opened = Lake(spark, lake)
        done = run_capture(broker_of(opened, broker), file, run_id=run_id(), now=now, progress=progress_to_stderr)
    say(
        f"captured for broker {done.broker}: {done.pulls:,} pulls, {done.answered:,} of them answered, {done.offsets:,} offsets, "
        f"{done.bad:,} bad requests, lake version {done.lake_version}"
    )
