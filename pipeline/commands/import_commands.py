"""The command that imports a store, once or while its broker runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, Jobs, engine_options
from pipeline.commands.given_settings import GivenSettings, rules_option, settings_options
from pipeline.commands.new_run import now, run_id
from pipeline.commands.options import FiniteNumber, check_alone, check_needed, lake_option, metrics_at, require_lasting_port
from pipeline.files.stopping import told_to_stop
from pipeline.settings.quantities import counted
from pipeline.settings.settings import BrokerSettings
from pipeline.terminal import progress_to_stderr, safe_text, say
from store_format.errors import without_credentials

if TYPE_CHECKING:
    from pipeline.importing.import_store import Imported
    from pipeline.lake.lake import Lake
    from pipeline.schema.tables import Layout
    from pipeline.serving.metrics import Publish


@cli.command("import", cls=ExampleCommand, example="pullsim import /data/rocketmq/store --lake lake --broker-name broker-a")
@click.argument("store")
@lake_option
@click.option(
    "--broker-name",
    metavar="NAME",
    help="Name in the lake, whatever --properties says; that of --properties by default, else the folder's.",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", "partitioned", "clustered"]),
    default="auto",
    show_default=True,
    help="Layout by queue.",
)
@click.option("--as-found", is_flag=True, help="Take the files as they are, to verify or export a sick store; replay refuses it then.")
@click.option("--follow", is_flag=True, help="Go on to import what the running broker appends to its store.")
@click.option("--checkpoint", metavar="DIR", help="Folder that remembers the progress of --follow; one below the lake by default.")
@click.option(
    "--trigger", type=FiniteNumber(min=0), metavar="SECONDS", help="With --follow, time between looks for new messages; 1 by default."
)
@click.option("--once", is_flag=True, help="End when --follow has added everything that is there.")
@click.option(
    "--metrics",
    metavar="FILE|PORT",
    help="With --follow, Prometheus metrics: a file, written whole each time, or [HOST:]PORT.",
)
@settings_options
@rules_option
@engine_options
def import_command(
    store: str,
    lake: str,
    broker_name: str | None,
    layout: str,
    as_found: bool,
    follow: bool,
    checkpoint: str | None,
    trigger: float | None,
    once: bool,
    metrics: str | None,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Read a broker's STORE directory into Delta tables, in the state after the broker's load and start, or as it is.

    STORE is only read. If the lake already has the broker, the import replaces its rows; else it adds the broker. Spark is
    not needed for a small store where the lake has no other broker, both local or on S3; --master and --conf ask for Spark.

    With --follow, the command adds new messages, batch by batch, until Ctrl-C or SIGTERM. If the broker truncated its log or deleted files
    of it, the whole store is imported again, and the table follow_event has the reason. Index files, the checkpoint and bytes that are no
    message stay as the last whole import read them: export and verify need a whole import. --metrics gives Prometheus the progress
    (docs/monitoring.md).

    --rules decides how the broker recovers log and queues, finds the min offset of a queue, and reads properties. A replay of the lake has
    the same rules, unless it is given others. Without --rules, files that only a broker 5.x writes tell 5.5.0, and the output names them.
    """
    from pipeline.files.given_files import require_store
    from pipeline.importing.import_store import broker_of
    from pipeline.importing.small_store import import_small_store
    from pipeline.lake.lake import Lake

    _require_fitting(follow, as_found, {"--checkpoint": checkpoint, "--trigger": trigger, "--once": once, "--metrics": metrics})
    require_lasting_port(metrics, lasts=not once, otherwise="leave out --once")
    broker_settings = settings.of_store(store)
    name = _named(broker_of(store, broker_name, broker_settings), broker_settings.broker_name)
    asked: Layout | None = None if layout == "auto" else layout  # type: ignore[assignment]
    importing = _importer(store, name, asked, broker_settings, as_found=as_found)
    import_here = partial(import_small_store, importing, lake, store, broker=name, layout=asked, tell=engine.tell)
    needs_spark = follow or not engine.may_work_here
    if not needs_spark:
        require_store(store)
        progress_to_stderr(broker_settings.told_version)
        small = import_here()
        if small is not None:
            _tell(small)
            return
    ends = once or not follow
    by_tasks = not follow and layout != "clustered" and not os.path.exists(lake)  # Spark itself writes to existing tables
    jobs: Jobs = "short" if by_tasks else "long" if ends else "endless"
    with metrics_at(metrics) as publish, engine.session(jobs, store=store, workers=True, leave_classes=ends) as spark:
        if needs_spark:  # else the line was printed above
            progress_to_stderr(broker_settings.told_version)
        opened = Lake(spark, lake)
        if follow:

            def again(into: Lake) -> Imported:
                return (import_here() if engine.may_work_here else None) or importing(into)

            pause = 1.0 if trigger is None else trigger
            _follow(opened, store, name, broker_settings, again, checkpoint, publish, once=once, trigger=pause)
            return
        done = importing(opened)
    _tell(done)


def _importer(store: str, name: str, layout: Layout | None, settings: BrokerSettings, *, as_found: bool) -> Callable[[Lake], Imported]:
    """Return the function that imports the store into a lake; each call is a run with its own id."""
    from pipeline.importing.import_store import import_store

    def importing(into: Lake) -> Imported:
        return import_store(
            into,
            store_path=store,
            broker=name,
            layout=layout,
            settings=settings,
            as_found=as_found,
            run_id=run_id(),
            now=now,
            progress=progress_to_stderr,
        )

    return importing


def _named(name: str, own: str | None) -> str:
    """Return the broker's name in the lake; if its own settings have another name, print both first."""
    if own not in {None, name}:
        progress_to_stderr(f"the broker is {name!r} in the lake, as --broker-name says; its own settings name it {own!r}")
    return name


def _require_fitting(follow: bool, as_found: bool, of_follow: Mapping[str, object]) -> None:
    if follow:
        check_alone("--follow", {"--as-found": as_found}, "it adds to a store as the broker's start leaves it")
    else:
        check_needed("--follow", of_follow, "an import without it ends when it has the store")


def _tell(done: Imported) -> None:
    for note in done.notes:
        say(safe_text(f"note: {note}"))
    say(
        f"imported broker {safe_text(done.broker)}: {counted(done.messages, 'message')}, {counted(done.entries, 'entry', 'entries')} "
        f"in {counted(done.queues, 'queue')}, "
        f"commit log {done.min_phy_offset} to {done.max_phy_offset}, layout {done.layout}, lake version {done.lake_version}"
    )


def _follow(
    lake: Lake,
    store_path: str,
    broker: str,
    settings: BrokerSettings,
    import_again: Callable[[Lake], Imported],
    checkpoint: str | None,
    publish: Publish | None,
    *,
    once: bool,
    trigger: float,
) -> None:
    from pipeline.files.store_files import StoreFiles, absolute_path
    from pipeline.follow.follow_batches import FollowBatches
    from pipeline.follow.follow_job import follow
    from pipeline.follow.follow_metrics import FollowReport
    from pipeline.follow.followed_timer import FollowedTimer
    from pipeline.serving.metrics import LastingPublish
    from pipeline.stream.stream_run import run_of_checkpoint

    store = StoreFiles(store_path)
    store.check_exists()
    folder = absolute_path(checkpoint) if checkpoint else f"{lake.root}/_checkpoints/follow-{quote(broker, safe='')}"
    texts = settings.as_texts()
    run, removed = run_of_checkpoint(folder, run_id=None, lake=lake.root, broker=broker, source=store.root, at="snapshot", settings=texts)
    for path in removed:
        progress_to_stderr(f"removed incomplete checkpoint file {folder}/{path}; its contents are recomputed")
    told = (lambda _: None) if publish is None else LastingPublish(publish, progress_to_stderr)
    report = FollowReport(broker=broker, store=without_credentials(store.root), started=now(), now=now, publish=told)
    with told_to_stop() as stop:
        batches = FollowBatches(
            root=lake.root,
            store=store,
            broker=broker,
            run_id=run.run_id,
            timer=FollowedTimer(store=store, broker=broker, settings=settings, now=now),
            import_again=import_again,
            progress=progress_to_stderr,
            now=now,
            stop=stop,
        )
        done = follow(lake, batches, folder, settings, report, once=once, trigger_seconds=trigger)
    events = f", {done.whole_imports:,} times the whole store was imported again" if done.whole_imports else ""
    say(f"run {run.run_id}: {counted(done.messages, 'message')} added in {counted(done.batches, 'batch', 'batches')}{events}")
