"""The command that answers pull requests as they arrive."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from pipeline.cli import (
    Engine,
    ExampleCommand,
    at_option,
    broker_option,
    check_hold,
    cli,
    engine_options,
    hold_option,
    lake_option,
    now,
    settings_options,
)
from pipeline.console import progress_to_stderr, say
from pipeline.settings import BrokerSettings


@cli.command(
    "stream",
    cls=ExampleCommand,
    example="pullsim stream --lake lake --requests incoming/ --checkpoint checkpoints/incoming --trigger 5",
)
@lake_option
@click.option("--requests", required=True, metavar="DIR", help="Folder of files of pull requests, a JSON object a line.")
@click.option("--checkpoint", required=True, metavar="DIR", help="Folder that remembers what was read; one for each stream.")
@at_option
@hold_option
@click.option("--once", is_flag=True, help="Answer what is there and end.")
@click.option(
    "--trigger", type=click.FloatRange(min=0), default=1.0, show_default=True, metavar="SECONDS", help="Look for new files so often."
)
@click.option("--max-files", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N", help="Files of one batch.")
@click.option("--run-id", metavar="ID", help="Go on with this run under a new checkpoint; what it has answered is left out.")
@broker_option
@settings_options
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
    run_id: str | None,
    broker: str | None,
    settings: tuple[str, ...],
    properties: str | None,
    master: str | None,
    conf: dict[str, str],
    verbose: bool,
) -> None:
    """Answer the pull requests in a folder, and those that come, into the table pull_response: each exactly once, whatever is killed when.

    Put files there by renaming them: one that grows while it is read is read again, as another one. The same content is answered once,
    whatever its name. Lines that are no requests go to bad_request. Ctrl-C or SIGTERM end the stream behind the batch it is at.

    With --hold, a pull with the suspend bit (2) in its sysFlag that finds nothing waits, and is answered once as of the moment at which a
    message or the broker's sweep wakes it. Time is that of the requests: a pull is answered as soon as a later request comes than that
    moment, or a line {"kind": "heartbeat", "timestamp": MS}. What still waits at the end is kept in the checkpoint, and goes on to wait
    with the next start.
    """
    from pipeline.lake import Lake
    from pipeline.store_files import absolute_path
    from pipeline.stream.batches import Batches
    from pipeline.stream.stream_job import run_stream
    from pipeline.stream.stream_run import run_of_checkpoint
    from udfs.sql_functions import register

    check_hold(hold, at)
    folder, source = absolute_path(checkpoint), absolute_path(requests)
    with Engine(master, conf, verbose).session() as spark, _told_to_stop() as stop:
        opened = Lake(spark, lake).require()
        register(spark)
        name = opened.broker(broker)
        stored = opened.properties(name)

        def settings_of(header: dict[str, Any] | None, where: str) -> BrokerSettings:
            return BrokerSettings.from_sources(stored=stored, header=header, header_where=where, properties=properties, options=settings)

        given = settings_of(None, "").as_texts()
        run, removed = run_of_checkpoint(
            folder, run_id=run_id, lake=opened.root, broker=name, source=source, at=at, settings=given, hold=hold
        )
        for path in removed:
            progress_to_stderr(f"{folder}/{path} was not whole: removed, what it said is found out again")
        progress_to_stderr(f"run {run.run_id}: answering what is in {source}")
        batches = Batches(root=opened.root, run=run, settings_of=settings_of, progress=progress_to_stderr, now=now, stop=stop)
        done = run_stream(opened, run, folder, batches, files_max=max_files, once=once, trigger_seconds=trigger)
    say(f"run {run.run_id}: answered {done.answered:,} requests in {done.batches:,} batches, {done.bad:,} bad ones")


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that is set where the process is asked to end."""
    stop = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        yield stop
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
