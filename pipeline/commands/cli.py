"""The group of all commands, the options that they share, and the commands replay, sql and demo."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import click

from pipeline.settings.quantities import milliseconds
from pipeline.settings.settings import BrokerSettings, SettingsError, nearest
from pipeline.settings.slave_lag import NO_SLAVE_LAG, SlaveLag
from pipeline.terminal import progress_to_stderr, say, show_rows, tell_replayed

if TYPE_CHECKING:
    from pipeline.replay.replay_run import Replayed
    from pipeline.requests.request_file import RequestFile

P = ParamSpec("P")
R = TypeVar("R")
FORMATS = ("table", "json", "csv")


@dataclass
class Engine:
    """The options for Spark that every command takes: --master, --conf and --verbose."""

    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    verbose: bool = False

    @contextmanager
    def session(
        self,
        jobs: Literal["short", "long", "endless"] = "short",
        *,
        reads: str | None = None,
        workers: bool = False,
        leave_classes: bool = False,
    ) -> Iterator[Any]:
        """A Spark session, which is stopped at the end.

        Args:
            jobs: "long" if the time of the jobs grows with the data that Spark itself works on.
            reads: a lake that must exist; None for no check.
            workers: whether Python workers are needed in any case.
            leave_classes: as in build_session.
        """
        from pipeline.lake.lake import require_there
        from pipeline.lake.session import LONG_JOBS, SHORT_JOBS, build_session, start_workers

        if reads is not None:
            require_there(reads)
        progress_to_stderr("starting Spark")
        conf = {"short": SHORT_JOBS, "long": LONG_JOBS, "endless": {}}[jobs] | self.conf
        spark = build_session(master=self.master, conf=conf, verbose=self.verbose, leave_classes=leave_classes)
        if workers:
            start_workers(spark)
        try:
            yield spark
        finally:
            spark.stop()


def _conf(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for (name, separator, _), value in zip(pairs, values, strict=True):
        if not separator or not name:
            raise click.BadParameter(f"expected name=value, found {value!r}")
    return {name: value for name, _, value in pairs}


def engine_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options --master, --conf and --verbose; the command gets them as `engine`."""

    @wraps(command)
    def with_engine(*args: Any, master: str | None, conf: dict[str, str], verbose: bool, **options: Any) -> R:
        return command(*args, engine=Engine(master, conf, verbose), **options)

    decorated = click.option("--verbose", is_flag=True, help="Let Spark's own log reach stderr.")(with_engine)
    decorated = click.option("--conf", multiple=True, callback=_conf, metavar="NAME=VALUE", help="A Spark setting; repeatable.")(decorated)
    return click.option("--master", metavar="URL", help="Spark master; local[*] by default.")(decorated)


def lake_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --lake."""
    return click.option("--lake", required=True, metavar="DIR", help="Directory of the Delta tables.")(command)


def broker_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --broker."""
    return click.option("--broker", metavar="NAME", help="Broker in the lake; needed if the lake holds more than one.")(command)


@dataclass(frozen=True)
class GivenSettings:
    """The broker's settings on the command line: the values of --set, and the path of --properties."""

    options: tuple[str, ...] = ()
    properties: str | None = None

    def over(
        self, stored: Mapping[str, str] | None = None, *, header: Any = None, header_where: str = "the config of the header"
    ) -> BrokerSettings:
        """The broker's settings: these override those of a request file's header, and the header's override those of the import.

        Args:
            stored: the import's settings, texts by name; None without an import.
            header: the `config` object of a request file's header; None without one.
            header_where: name of the header in errors.

        Raises:
            SettingsError: a name is unknown, a value has another type, or the file of --properties cannot be read.
        """
        return BrokerSettings.from_sources(
            stored=stored, header=header, header_where=header_where, properties=self.properties, options=self.options
        )

    def of_file(self, stored: Mapping[str, str], file: RequestFile) -> BrokerSettings:
        """The broker's settings as `over` returns them, with the header of `file`."""
        return file.settings(stored=stored, properties=self.properties, options=self.options)

    def check(self) -> None:
        """Raise for a wrong setting, before anything is started.

        Raises:
            SettingsError: as in `over`.
        """
        self.over()


def settings_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options --properties and --set; the command gets them as `settings`."""

    @wraps(command)
    def with_settings(*args: Any, settings: tuple[str, ...], properties: str | None, **options: Any) -> R:
        return command(*args, settings=GivenSettings(settings, properties), **options)

    file = click.Path(exists=True, dir_okay=False)
    decorated = click.option("--properties", type=file, metavar="FILE", help="The broker's broker.conf.")(with_settings)
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A broker setting by its own name; repeatable.")(
        decorated
    )


def format_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --format for rows."""
    return click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the rows.")(
        command
    )


def at_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --at."""
    moments = click.Choice(["snapshot", "request-time", "recorded-max"])
    return click.option("--at", type=moments, default="snapshot", show_default=True, help="What of the store a request sees.")(command)


def hold_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --hold."""
    text = "Let pulls that may be held wait for messages, as long polling does; needs --at request-time."
    return click.option("--hold", is_flag=True, help=text)(command)


def check_hold(hold: bool, at: str, *, of_table: bool) -> None:
    """Raise if --hold is given without --at request-time, or for the table of captured pulls.

    Args:
        hold: whether --hold is given.
        at: value of --at.
        of_table: whether the pulls come from the table of captured pulls.

    Raises:
        click.UsageError: --hold cannot be combined with the other options.
    """
    if hold and at != "request-time":
        raise click.UsageError(
            f"--hold: expected --at request-time, so that pulls have a time at which they begin to wait, found --at {at}"
        )
    if hold and of_table:
        raise click.UsageError(
            "--hold: expected files in --requests; a captured pull is answered as of its recorded wake-up, without --hold"
        )


def _behind(_context: click.Context, _parameter: click.Parameter, value: str | None) -> SlaveLag:
    try:
        return NO_SLAVE_LAG if value is None else SlaveLag.of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def behind_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --behind, the slave lag, to a command."""
    text = "Slave lag, what the slave lacks of the store: bytes of the log, or a time with --at request-time."
    return click.option("--behind", callback=_behind, metavar="SIZE|TIME", help=text)(command)


def check_behind(behind: SlaveLag, at: str, *, others: Mapping[str, bool]) -> None:
    """Check that --behind can be combined with --at and other options.

    Args:
        behind: the slave lag.
        at: which part of the store a request sees.
        others: options that need a master's store, and whether they are given.

    Raises:
        click.UsageError: --behind cannot be combined with one of the options.
    """
    if behind == NO_SLAVE_LAG:
        return
    if at == "recorded-max":
        raise click.UsageError("--behind cannot be combined with --at recorded-max: a recorded maximum is the end of one queue only")
    if behind.millis and at != "request-time":
        raise click.UsageError(f"--behind with a time: expected --at request-time, so that pulls have a time of their own, found --at {at}")
    for name, given in others.items():
        if given:
            raise click.UsageError(f"--behind cannot be combined with {name}: {name} assumes a master's store")


def _filters(_context: click.Context, _parameter: click.Parameter, value: str | None) -> frozenset[str] | None:
    if value is None:
        return None
    kinds = frozenset(value.split(","))
    if unknown := kinds - {"null", "TAG", "SQL92"}:
        raise click.BadParameter(f"expected null, TAG or SQL92 with commas between, found {', '.join(sorted(map(repr, unknown)))}")
    return kinds


def filters_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --filters."""
    text = "Answer only requests with these filters: null,TAG,SQL92."
    return click.option("--filters", callback=_filters, metavar="KINDS", help=text)(command)


def moment(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """The ms since 1970 (UTC) of a time that is the value of an option, None without a value; a callback for click."""
    if value is None:
        return None
    try:
        stamp = int(value) if value.lstrip("-").isdecimal() else milliseconds(dt.datetime.fromisoformat(value))
        if -(2**63) <= stamp < 2**63:
            return stamp
    except (ValueError, OverflowError):
        pass
    raise click.BadParameter(f"expected ms since 1970 or a time such as 2024-05-01T12:00:00 (UTC), found {value!r}")


class ExampleCommand(click.Command):
    """A command whose help text ends with an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = f"\b\nExample:\n  {example}"


class Commands(click.Group):
    """The group of commands; the error for an unknown command names the nearest known ones."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first of `args` names, and the other arguments."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = ", ".join(nearest(args[0], self.list_commands(ctx)))
            raise click.UsageError(f"there is no command {args[0]!r}; the nearest known: {known}", ctx)
        return super().resolve_command(ctx, args)


def run_id() -> str:
    """The id for a new run."""
    return uuid.uuid4().hex


def now() -> dt.datetime:
    """The time of the wall clock."""
    return dt.datetime.now(dt.UTC)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="pullsim")
def cli() -> None:
    """Ask a RocketMQ 4.9.3 broker's store what the broker would have answered, and query lag in SQL."""


@cli.command(
    "replay",
    cls=ExampleCommand,
    example="pullsim replay --lake lake --requests trace.jsonl --out answers.jsonl --compare",
)
@lake_option
@click.option("--requests", metavar="FILE", help="Pull requests, a JSON object a line; by default the captured pulls of pull_request.")
@click.option("--out", metavar="FILE", help="File for the answers; by default they go to the table pull_response.")
@at_option
@filters_option
@hold_option
@behind_option
@click.option("--no-messages", is_flag=True, help="Leave the messages out of the answers.")
@click.option("--compare", is_flag=True, help="Compare the answers with the recorded ones; exit code 1 if any differs.")
@broker_option
@settings_options
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
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_job import run_replay
    from pipeline.replay.replay_run import ReplayOptions

    check_hold(hold, at, of_table=requests is None)
    check_behind(behind, at, others={"--hold": hold})
    options = ReplayOptions(at=at, filters=filters, messages=not no_messages, compare=compare, out=out, hold=hold, slave_lag=behind)
    with engine.session("long", reads=lake, workers=True) as spark:
        opened = OpenedBroker.of(spark, lake, broker)
        stored = opened.properties()
        done: Replayed[Any]
        if requests is None:
            own = settings.over(stored)
            done = run_captured_replay(opened, options=options, settings=own, run_id=run_id(), now=now, progress=progress_to_stderr)
        else:
            done = run_replay(
                opened,
                requests,
                options=options,
                settings_of=partial(settings.of_file, stored),
                run_id=run_id(),
                now=now,
                progress=progress_to_stderr,
            )
    tell_replayed(done)
    if done.comparison is not None and done.comparison.differ:
        raise SystemExit(1)


def _tell_init_file(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from pipeline.lake.init_file import init_file

        say(str(init_file()))
        context.exit()


@cli.command(
    "sql",
    cls=ExampleCommand,
    example='pullsim sql --lake lake "SELECT * FROM consume_lag ORDER BY lag DESC" --format csv',
)
@click.argument("query")
@lake_option
@click.option(
    "--init-file",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_init_file,
    help="Print the path of the init file of spark-sql.",
)
@click.option("--allow-files", is_flag=True, help="Run any SQL of Spark: other files and tables are read and written, Java code is called.")
@format_option
@engine_options
def sql_command(query: str, lake: str, allow_files: bool, form: str, engine: Engine) -> None:
    """Run SQL over the lake's tables, views and functions.

    QUERY reads the lake and nothing else: a query, SHOW, DESCRIBE or EXPLAIN. Anything else is refused, unless --allow-files is given.

    `DESCRIBE NAME` explains the columns of a table or view. This gives spark-sql the same tables and views:
    spark-sql -i $(pullsim sql --init-file) --hivevar lake=/data/lake
    """
    from pipeline.lake.lake import Lake
    from pipeline.lake.read_only_sql import check_read_only
    from pipeline.lake.views import ask
    from pipeline.sql.statements import FUNCTIONS

    if not query.strip():
        raise click.UsageError('expected a query in SQL, found none; "SHOW TABLES" lists what can be asked')
    if not allow_files:
        check_read_only(query, FUNCTIONS)
    with engine.session("long", reads=lake) as spark:
        show_rows(ask(Lake(spark, lake).require(), query, allow_files=allow_files), form)


@cli.command("demo", cls=ExampleCommand, example="pullsim demo --lake demo-lake")
@click.option("--lake", metavar="DIR", help="Directory for the lake; a temporary one, removed at the end, by default.")
@engine_options
def demo_command(lake: str | None, engine: Engine) -> None:
    """Import a real broker's store, replay recorded pulls against it, compare the answers, and show lag."""
    from pipeline.commands.demo import run_demo

    with engine.session(workers=True, leave_classes=True) as spark:
        differ = run_demo(spark, lake, run_id=run_id, now=now)
    if differ:
        raise SystemExit(1)


__all__ = ["SettingsError", "cli"]
