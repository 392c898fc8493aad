"""The commands for streams: one answers pull requests as they arrive, the other feeds them at a pace."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options, unused_engine_options
from pipeline.commands.given_settings import GivenSettings, rules_option, settings_options
from pipeline.commands.new_run import now
from pipeline.commands.options import FiniteNumber, at_option, broker_option, check_hold, hold_option, lake_option, metrics_at
from pipeline.files.stopping import told_to_stop
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.terminal import progress_to_stderr, say

if TYPE_CHECKING:
    from pipeline.pace.request_pace import Faults


@cli.command(
    "stream",
    cls=ExampleCommand,
    example="pullsim stream --lake lake --requests incoming/ --checkpoint checkpoints/incoming --trigger 5",
)
@lake_option
@click.option(
    "--requests",
    required=True,
    metavar="DIR|pull_request",
    help="Folder of files of pull requests, a JSON object a line, or Parquet; or pull_request: the table of captured pulls. "
    "A folder of that name is ./pull_request.",
)
@click.option("--checkpoint", required=True, metavar="DIR", help="Folder that remembers what was read; one for each stream.")
@at_option
@hold_option
@click.option("--once", is_flag=True, help="Answer the requests that are there, and end.")
@click.option(
    "--trigger", type=FiniteNumber(min=0), default=1.0, show_default=True, metavar="SECONDS", help="Time between looks for new files."
)
@click.option("--max-files", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N", help="Files of one batch.")
@click.option("--metrics", metavar="FILE|PORT", help="Prometheus metrics: a file, written whole after each batch, or [HOST:]PORT.")
@click.option("--run-id", metavar="ID", help="Go on with this run under a new checkpoint; requests that have an answer are skipped.")
@broker_option
@settings_options
@rules_option
@engine_options
def stream_command(
    lake: str,
    requests: str,
    checkpoint: str,
    at: Any,
    hold: bool,
    once: bool,
    trigger: float,
    max_files: int,
    metrics: str | None,
    run_id: str | None,
    broker: str | None,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Answer the pull requests in a folder, and those that arrive there, into table pull_response, each exactly once even after a kill.

    Put files there by renaming them: a file that grows while it is read is read again, as another file. The same content is answered once,
    whatever its name. A line may also be a frame of PULL_MESSAGE, {"frameHex": HEX}. Lines that are no requests go to bad_request. Ctrl-C
    or SIGTERM end the stream after its current batch.

    With `--requests pull_request` the requests are the lake's captured pulls, and the pulls of each `pullsim capture` that ends. They are
    answered as `pullsim replay` without --requests answers them.

    Each batch prints a line with its work and the waiting requests. --metrics gives these numbers and the lag of each group to Prometheus:
    docs/streams.md.

    With --hold, a pull with the suspend bit (2) in its sysFlag that finds nothing waits, and is answered once as of the moment at which a
    message or the broker's sweep wakes it. The time of the stream is that of the requests: a pull is answered when a request or a line
    {"kind": "heartbeat", "timestamp": MS} comes that is later than that moment. Pulls that wait at the end are kept in the checkpoint, and
    wait further after the next start.
    """
    from pipeline.capture.replay_captured import SOURCE
    from pipeline.files.store_files import absolute_path
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.stream.batches import Batches
    from pipeline.stream.captured_batches import CapturedBatches
    from pipeline.stream.report import report_of
    from pipeline.stream.request_log import RequestLog
    from pipeline.stream.stream_job import run_stream
    from pipeline.stream.stream_run import REQUESTS, run_of_checkpoint, store_versions

    of_table = requests == SOURCE
    check_hold(hold, at, of_table=of_table)
    folder, source = absolute_path(checkpoint), SOURCE if of_table else absolute_path(requests)
    with metrics_at(metrics) as publish, engine.session("endless", reads=lake) as spark, told_to_stop() as stop:
        opened = OpenedBroker.of(spark, lake, broker)
        stored, root = opened.properties(), opened.lake.root

        def settings_of(header: dict[str, Any] | None, where: str) -> BrokerSettings:
            return settings.over(stored, header=header, header_where=where)

        given = settings_of(None, "")
        progress_to_stderr(given.told_version)
        asked = {"broker": opened.name, "source": source, "at": at, "settings": given.as_texts(), "hold": hold}
        run, removed = run_of_checkpoint(folder, run_id=run_id, lake=root, store=store_versions(opened.lake), **asked)
        for path in removed:
            progress_to_stderr(f"removed incomplete checkpoint file {folder}/{path}; its contents are recomputed")
        progress_to_stderr(f"run {run.run_id}: answering what is in {source}")
        log_folder = f"{folder}/{REQUESTS}"
        captured = CapturedBatches(root=root, run=run, settings=given, captures_max=max_files, now=now, stop=stop)
        batches = captured if of_table else Batches(root=root, run=run, settings_of=settings_of, requests=log_folder, now=now, stop=stop)
        log = None if of_table else RequestLog(log_folder)
        report = report_of(spark, run, log, batches.counts, progress=progress_to_stderr, now=now, publish=publish)
        done = run_stream(opened.lake, run, folder, batches, report, files_max=max_files, once=once, trigger_seconds=trigger)
    say(
        f"run {run.run_id}: answered {counted(done.answered, 'request')} in {counted(done.batches, 'batch', 'batches')}, "
        f"{counted(done.bad, 'bad one')}"
    )


def _above_zero(_context: click.Context, _parameter: click.Parameter, value: float | None) -> float | None:
    if value is None or (math.isfinite(value) and value > 0):
        return value
    raise click.BadParameter(f"expected a number above 0, found {value}")


def _faults(_context: click.Context, _parameter: click.Parameter, value: str) -> Faults:
    from dataclasses import fields

    from pipeline.pace.request_pace import Faults

    known = [field.name for field in fields(Faults)]
    shares: dict[str, float] = {}
    for part in value.split(",") if value else []:
        name, _, number = part.partition("=")
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if name not in known or name in shares or not 0 <= share <= 1:
            raise click.BadParameter(
                f"expected some of {', '.join(known)}, each once, as NAME=SHARE with a share from 0 to 1, found {part!r}"
            )
        shares[name] = share
    return Faults(**shares)


@cli.command("pace", cls=ExampleCommand, example="pullsim pace trace.jsonl --into incoming/ --speed 10 --faults late=0.1,duplicated=0.05")
@click.argument("file")
@click.option("--into", "folder", required=True, metavar="DIR", help="Folder that a stream reads; it is created if it does not exist.")
@click.option("--speed", type=float, callback=_above_zero, metavar="N", help="Pace, as a multiple of that of the requests' timestamps.")
@click.option("--rate", type=float, callback=_above_zero, metavar="R", help="Pace in requests a second.")
@click.option("--loop", type=click.IntRange(min=1), default=1, show_default=True, metavar="K", help="How many times the requests are fed.")
@click.option(
    "--tick", type=float, default=1.0, show_default=True, callback=_above_zero, metavar="SECONDS", help="Time from one file to the next."
)
@click.option(
    "--faults",
    callback=_faults,
    default="",
    metavar="NAME=SHARE,...",
    help="Shares of requests that are lost, late, duplicated, reordered.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="S", help="Seed of the faults.")
@unused_engine_options
def pace_command(
    file: str,
    folder: str,
    speed: float | None,
    rate: float | None,
    loop: int,
    tick: float,
    faults: Faults,
    seed: int,
) -> None:
    """Feed the pull requests of FILE into a folder for `pullsim stream`: as fast as possible, or at a pace.

    At a pace, each file has the requests of one tick, and appears at the tick's end. The same FILE, options and seed give the same files,
    and a file that exists stays: after a kill, start the feed again. To feed all requests again, give another --seed. Ctrl-C or SIGTERM end
    the feed after its current file. This needs no Spark.
    """
    from pipeline.pace.feed import feed_folder, feed_of
    from pipeline.pace.request_pace import Pace

    if speed is not None and rate is not None:
        raise click.UsageError("--speed cannot be combined with --rate: each sets the pace; give one of them")
    feed, requests = feed_of(file, pace=Pace(speed=speed, rate=rate, tick_seconds=tick), faults=faults, seed=seed, loop=loop)
    progress_to_stderr(f"feeding the {counted(requests, 'request')} of {file}, {loop:,} times, as {feed.id}")
    with told_to_stop() as stop:
        done = feed_folder(feed, folder, clock=time.monotonic, wait=stop.wait)
    if done.were_there:
        progress_to_stderr(f"{counted(done.were_there, 'file was', 'files were')} there already")
    if done.late_seconds >= tick:
        progress_to_stderr(f"the pace was not kept: a file came {done.late_seconds:.1f} s after it was due")
    say(
        f"fed {counted(done.requests, 'request')} in {counted(done.files, 'file')} into {folder}"
        f"{', ended before the rest' if stop.is_set() else ''}"
    )
