"""The commands that read captured traffic, and that make a request file of captured pulls."""

from __future__ import annotations

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import GivenSettings, settings_options
from pipeline.commands.new_run import now, run_id
from pipeline.commands.options import broker_option, lake_option
from pipeline.settings.quantities import counted
from pipeline.terminal import progress_to_stderr, say


@cli.command(
    "capture",
    cls=ExampleCommand,
    example="pullsim capture traffic.pcap --lake lake && pullsim replay --lake lake --compare --at recorded-max",
)
@click.argument("file")
@lake_option
@broker_option
@engine_options
def capture_command(file: str, lake: str, broker: str | None, engine: Engine) -> None:
    """Read the traffic of a broker, captured as pcap or pcapng, into the lake.

    Each PULL_MESSAGE becomes a row of pull_request, with the broker's answer. Committed and queried offsets go to offset_history,
    orders of the broker to reset them to offset_reset, subscriptions of heartbeats to subscription, bytes that cannot be read to
    bad_request. Reading the same FILE again replaces its rows.
    Spark is not needed for a small FILE that the lake, local or on S3, does not have; --master and --conf ask for Spark.
    """
    from pipeline.capture.capture_job import broker_of, run_capture
    from pipeline.capture.small_capture import read_small_capture
    from pipeline.files.given_files import require_input
    from pipeline.lake.lake import Lake

    done = None
    if engine.may_work_here:
        require_input("FILE", file)
        done = read_small_capture(lake, broker, file, run_id=run_id(), now=now, progress=progress_to_stderr, tell=engine.tell)
    if done is None:
        with engine.session("long", inputs={"FILE": file}, workers=True) as spark:
            done = run_capture(broker_of(Lake(spark, lake), broker), file, run_id=run_id(), now=now, progress=progress_to_stderr)
    say(
        f"captured for broker {done.broker}: {counted(done.pulls, 'pull')}, {done.answered:,} of them answered, "
        f"{counted(done.offsets, 'offset')}, "
        f"{done.bad:,} bad requests, lake version {done.lake_version}"
    )


@cli.command(
    "requests",
    cls=ExampleCommand,
    example="pullsim requests --lake lake --out captured.jsonl",
)
@lake_option
@click.option("--out", required=True, metavar="FILE", help="The request file, a JSON object a line.")
@broker_option
@settings_options
@engine_options
def requests_command(lake: str, out: str, broker: str | None, settings: GivenSettings, engine: Engine) -> None:
    """Write the captured pulls in the lake as a request file, for replay, whatif, stream and pace.

    A request has the filter that its group had registered, and the time at which the broker processed it. Pulls that the broker
    refused before it read its store are left out. The settings are those of the import, overridden by --properties and --set.
    """
    from pipeline.capture.captured_requests import Written, write_captured_requests
    from pipeline.files.given_files import require_output
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_run import ReplayOptions
    from pipeline.replay.small_replay import answered_here

    settings.check()

    def written(opened: OpenedBroker) -> Written:
        return write_captured_requests(opened, settings.over(opened.properties()), out)

    done = None
    if engine.may_work_here:
        require_output("--out", out, read=lake)
        done = answered_here(written, lake, broker, None, options=ReplayOptions(), reads="lines", tell=engine.tell)
    if done is None:
        with engine.session(reads=lake, broker=broker, outputs={"--out": out}, workers=True) as spark:
            done = written(OpenedBroker.of(spark, lake, broker))
    say(f"wrote {counted(done.requests, 'request')} to {out}; {done.left_out:,} captured pulls left out, which the broker refuses")
