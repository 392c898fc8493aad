"""The commands that explain the answer to a pull, and that compare the answers under two sets of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.cli import ExampleCommand, cli
from pipeline.commands.engine import Engine, engine_options
from pipeline.commands.given_settings import VERSIONS, GivenSettings, rules_option, settings_options
from pipeline.commands.options import (
    behind_option,
    broker_option,
    check_alone,
    check_behind,
    filters_option,
    format_option,
    given_of,
    lake_option,
    moment,
)
from pipeline.settings.settings import SettingsError
from pipeline.settings.slave_lag import SlaveLag
from pipeline.terminal import is_terminal, progress_to_stderr, safe_text, say, say_json
from store_format.broker_version import BrokerVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INT, _LONG = (click.IntRange(-(2**bits), 2**bits - 1) for bits in (31, 63))


@cli.command(
    "explain",
    cls=ExampleCommand,
    example="pullsim explain --lake lake --group g --topic orders --queue 0 --offset 100 --filter-type TAG --expression 'paid || sent'",
)
@lake_option
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help="A captured pull, by its requestId or the end of it, as `pullsim pulls` shows it; not with the options of a pull.",
)
@click.option("--group", metavar="NAME", help="Consumer group that pulls.")
@click.option("--topic", metavar="NAME", help="Topic; one that is not in the store is explained too.")
@click.option("--queue", "queue_id", type=_INT, metavar="ID", help="Queue of the topic.")
@click.option("--offset", type=_LONG, help="Queue offset to pull from.")
@click.option("--max-msg-nums", type=_INT, default=32, show_default=True, help="Maximum number of messages of the answer.")
@click.option("--filter-type", metavar="TYPE", help="TAG or SQL92; TAG if there is an --expression.")
@click.option("--expression", metavar="TEXT", help="The filter.")
@click.option("--registered", is_flag=True, help="Use the filter that the group registered for the topic.")
@click.option("--at", callback=moment, metavar="TIME", help="See the store as of this time: ms, or a time in UTC. All of it by default.")
@click.option("--all", "every_entry", is_flag=True, help="Show every entry, also those of long runs with the same outcome.")
@broker_option
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Form of the explanation.")
@click.option("--versus", type=VERSIONS, help="Another version of the broker: tell whether it answers otherwise, and by which rule.")
@settings_options
@rules_option
@engine_options
def explain_command(
    lake: str,
    request_id: str | None,
    group: str | None,
    topic: str | None,
    queue_id: int | None,
    offset: int | None,
    max_msg_nums: int,
    filter_type: str | None,
    expression: str | None,
    registered: bool,
    at: int | None,
    every_entry: bool,
    broker: str | None,
    form: str,
    versus: str | None,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Explain the answer to a pull: the checks, the window, the outcome of each entry, and why the scan ended.

    The end is what the broker answers, with its code. Give a pull with --group, --topic, --queue and --offset, or a captured one with
    --request. The settings are those of the import, or those of --properties and --set. As json the output is one object with all entries.
    With --versus, the pull is also answered by the rules of another version, and the rule that makes a difference is named.
    """
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.questions.broker_checks import ExplainedPull, captured_pull
    from pipeline.questions.explain import Explanation, explain
    from pipeline.questions.explain_text import as_json, show
    from pipeline.tasks.small_work import done_here
    from pipeline.upgrade.other_version import OtherVersion, differences_to, lines_of, told

    given: dict[str, Any] = {"group": group, "topic": topic, "queue_id": queue_id, "offset": offset, "filter_type": filter_type}
    given |= {"expression": expression, "registered": registered, "at": at}
    _check_pull(request_id, given)
    asked = None if request_id is not None else ExplainedPull(max_msg_nums=max_msg_nums, **given).with_filter_type()
    settings.check()

    def explained(spark: SparkSession | None) -> tuple[Explanation, OtherVersion | None]:
        opened = OpenedBroker.of(spark, lake, broker)
        if spark is None:
            engine.tell("the driver explains, without Java")
        merged = settings.over(opened.properties())
        progress_to_stderr(merged.told_version)
        pull = asked or captured_pull(opened, request_id or "", merged)
        return explain(opened, pull, merged), None if versus is None else differences_to(opened, pull, merged, BrokerVersion(versus))

    found = done_here(partial(explained, None), "explains", engine.tell) if engine.may_work_here else None
    if found is None:
        with engine.session(reads=lake, broker=broker) as spark:
            found = explained(spark)
    explanation, other = found
    if form == "json":
        say_json(as_json(explanation) | ({} if other is None else {"versus": told(other)}))
        return
    show(explanation, every_entry=every_entry)
    for line in () if other is None else lines_of(other):
        say(line)


def _check_pull(request_id: str | None, given: Mapping[str, Any]) -> None:
    """Check that either the id of a captured pull is given, or a whole pull; `given` has fields of ExplainedPull, None if not given."""
    options = {f"--{'queue' if name == 'queue_id' else name.replace('_', '-')}": value for name, value in given.items()}
    if request_id is not None:
        check_alone("--request", options, "the captured pull has these values")
        return
    missing = given_of({name: options[name] is None for name in ("--group", "--topic", "--queue", "--offset")})
    if missing:
        raise click.UsageError(
            f"expected --group, --topic, --queue and --offset, found no {missing}; for a captured pull give --request instead, with an id "
            "that `pullsim pulls` shows"
        )


@contextmanager
def _of_option(name: str) -> Iterator[None]:
    """Name the option `name` instead of --set in errors of its settings."""
    try:
        yield
    except SettingsError as error:
        where = error.where.replace("--set", name, 1)
        raise SettingsError(where, error.name, error.expected, error.found, error.hint) from error


def _names(settings: tuple[str, ...]) -> frozenset[str]:
    return frozenset(setting.partition("=")[0] for setting in settings)


@cli.command(
    "whatif",
    cls=ExampleCommand,
    example="pullsim whatif --lake lake --requests trace.jsonl --set maxTransferCountOnMessageInMemory=128 --drain",
)
@lake_option
@click.option(
    "--requests", metavar="FILE", help="Pull requests, a JSON object a line, or Parquet; by default the captured pulls in the lake."
)
@click.option(
    "--versus", multiple=True, metavar="NAME=VALUE", help="A current broker setting, where it is not that of the import; repeatable."
)
@click.option(
    "--at",
    type=click.Choice(["snapshot", "request-time", "recorded-max"]),
    help="What of the store a request sees; by default request-time for captured pulls, else snapshot, which is all of it.",
)
@click.option("--drain", "with_drain", is_flag=True, help="Count the pulls that it takes to read the same messages (slower).")
@filters_option
@behind_option
@broker_option
@format_option
@settings_options
@rules_option
@engine_options
def whatif_command(
    lake: str,
    requests: str | None,
    versus: tuple[str, ...],
    with_drain: bool,
    at: Any,
    filters: frozenset[str] | None,
    behind: SlaveLag,
    broker: str | None,
    form: str,
    settings: GivenSettings,
    engine: Engine,
) -> None:
    """Answer the same pulls under the current settings and under those that --set proposes, and show how the answers differ.

    The current settings are those of the import, of the file's header line, and of --properties, overridden by --versus. The proposed ones
    are the same, overridden by --set instead. As json the output is one object, as csv a row for each number. With --behind, the side with
    brokerRole=SLAVE lacks the end of the store.

    Captured pulls that the broker refuses before it asks the store are left out, and those that --filters does not name; both are counted.
    """
    from pipeline.files.given_files import require_input
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.questions.what_if import WhatIf, what_if
    from pipeline.questions.what_if_text import as_json, csv_text, show
    from pipeline.replay.replay_run import ReplayOptions
    from pipeline.replay.small_replay import answered_here

    if not settings.options and not versus:
        raise click.UsageError(
            "expected a setting to change, found none; give --set NAME=VALUE, or --versus NAME=VALUE for the current value"
        )
    at = at or ("request-time" if requests is None else "snapshot")
    check_behind(behind, at, others={"--drain": with_drain})
    settings.check()
    other = replace(settings, options=versus)
    with _of_option("--versus"):
        other.check()
    options = ReplayOptions(at=at, filters=filters, slave_lag=behind)

    def answered(opened: OpenedBroker) -> WhatIf:
        stored = opened.properties()
        return what_if(
            opened,
            requests,
            options=options,
            settings_of=(partial(other.of_file, stored), partial(settings.of_file, stored)),
            given=_names(settings.options) | _names(versus),
            with_drain=with_drain,
            progress=progress_to_stderr,
        )

    result = None
    if engine.may_work_here and not with_drain:
        if requests is not None:
            require_input("--requests", requests)
        result = answered_here(answered, lake, broker, requests, options=options, reads="lines", tell=engine.tell)
    if result is None:
        with engine.session("long", reads=lake, broker=broker, inputs={"--requests": requests}, workers=True) as spark:
            result = answered(OpenedBroker.of(spark, lake, broker))
    if form == "json":
        say_json(as_json(result))
    elif form == "csv":
        text = csv_text(result).removesuffix("\n")
        say(safe_text(text) if is_terminal() else text)
    else:
        show(result)
