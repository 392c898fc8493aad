"""The command that tells what an upgrade of the broker changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import VERSIONS, GivenSettings, settings_options
from pipeline.commands.options import broker_option, lake_option
from pipeline.terminal import progress_to_stderr, say_json, show_values
from store_format.broker_version import BrokerVersion


@cli.command("upgrade", cls=ExampleCommand, example="pullsim upgrade --lake lake --from 4.9.3 --to 5.5.0 --store /data/rocketmq/store")
@lake_option
@click.option("--from", "earlier", type=VERSIONS, required=True, help="Version that the broker has.")
@click.option("--to", "later", type=VERSIONS, required=True, help="Version to which it is upgraded.")
@click.option(
    "--requests",
    metavar="FILE",
    help="Pull requests, a JSON object a line, or Parquet; by default the captured pulls, or made ones if there are none.",
)
@click.option(
    "--at",
    type=click.Choice(["snapshot", "request-time", "recorded-max"]),
    help="What of the store a request sees; by default request-time for captured pulls, else snapshot.",
)
@click.option("--store", metavar="DIR", help="Directory of the store, to compare what the start of both versions does to its files.")
@broker_option
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="Form of the result."
)
@settings_options
@engine_options
def upgrade_command(
    lake: str,
    earlier: str,
    later: str,
    requests: str | None,
    at: Any,
    store: str | None,
    broker: str | None,
    form: str,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Tell what another version of the broker would change: answers, groups, settings, files, and what a return would lose.

    The verdict comes first, in sentences. Each pull is answered by the rules of both versions; each difference is counted for the rule that
    makes it. Without --requests and without captured pulls, pulls are made for each group and queue: at the committed offset, at 0, before
    the first message, at the end and past it. STORE is only read. As csv, only the pulls are told: a row for each rule and outcome.

    The exit code is 1 if the answer to a pull differs in what a client sees.
    """
    from pipeline.files.given_files import require_input, require_store
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_run import ReplayOptions
    from pipeline.replay.small_replay import answered_here
    from pipeline.upgrade.upgrade_job import Upgrade, run_upgrade
    from pipeline.upgrade.upgrade_text import as_json, outcome_rows, show

    versions = BrokerVersion(earlier), BrokerVersion(later)
    if versions[0].place >= versions[1].place:
        raise click.UsageError(f"--to: expected a later version than --from {earlier}, found {later}")
    ruled = replace(settings, rules=earlier)
    ruled.check()

    def compared(opened: OpenedBroker) -> Upgrade:
        return run_upgrade(
            opened,
            requests,
            store,
            versions=versions,
            settings_of=partial(ruled.of_file, opened.properties()),
            at=at,
            progress=progress_to_stderr,
        )

    result = None
    if engine.may_work_here:
        if requests is not None:
            require_input("--requests", requests)
        if store is not None:
            require_store(store)
        result = answered_here(compared, lake, broker, requests, options=ReplayOptions(), reads="queues", tell=engine.tell)
    if result is None:
        inputs = {"--requests": requests}
        with engine.session("long", reads=lake, broker=broker, inputs=inputs, store=store, workers=True) as spark:
            result = compared(OpenedBroker.of(spark, lake, broker))
    if form == "json":
        say_json(as_json(result))
    elif form == "csv":
        show_values(("rule", earlier, later, "pulls"), outcome_rows(result.pulls.rules), form)
    else:
        show(result)
    if result.pulls.seen:
        raise SystemExit(1)
