"""The group of all commands, the options that they share, and the commands replay, sql and demo."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar

import click

from pipeline.settings.quantities import milliseconds
from pipeline.settings.settings import RULES_VERSION, BrokerSettings, SettingsError, nearest
from pipeline.settings.slave_lag import NO_SLAVE_LAG, SlaveLag
from pipeline.terminal import progress_to_stderr, say, tell_replayed
from store_format.broker_version import BrokerVersion

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.replay.replay_run import Replayed
    from pipeline.requests.request_file import RequestFile

Jobs = Literal["short", "long", "endless"]
P = ParamSpec("P")
R = TypeVar("R")
FORMATS = ("table", "json", "csv")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_OF_S3 = "spark.hadoop.fs.s3a."
READERS = ("auto", "duckdb", "spark")
VERSIONS = click.Choice([version.value for version in BrokerVersion])


@dataclass
class Engine:
    """The options for Spark that every command takes: --master, --conf and --verbose."""

    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    verbose: bool = False

    @contextmanager
    def session(
        self,
        jobs: Jobs = "short",
        *,
        reads: str | None = None,
        inputs: Mapping[str, str | None] | None = None,
        outputs: Mapping[str, str | None] | None = None,
        store: str | None = None,
        broker: str | None = None,
        workers: bool = False,
        leave_classes: bool = False,
    ) -> Iterator[Any]:
        """A Spark session, which is stopped at the end. What the command line names is checked before Spark starts, which takes seconds.

        Args:
            jobs: "long" if the time of the jobs grows with the data that Spark itself works on.
            reads: a lake that must exist; None for no check.
            inputs: option -> file that must exist; None where the option is not given.
            outputs: option -> file that must be writable; likewise.
            store: directory of a store that must exist; None for no check.
            broker: a broker that the lake `reads` must have; None for no check.
            workers: whether Python workers are needed in any case.
            leave_classes: as in build_session.
        """
        s3 = _check_named(inputs or {}, outputs or {}, store=store, reads=reads, broker=broker)
        from pipeline.lake.lake_writer import releasing_lakes
        from pipeline.lake.session import LONG_JOBS, SHORT_JOBS, build_session, require_java, start_workers

        require_java()
        for logger in (logging.getLogger(), logging.getLogger("py4j.clientserver")):
            logger.addFilter(_is_no_lost_call)
        progress_to_stderr("starting Spark")
        conf = {"short": SHORT_JOBS, "long": LONG_JOBS, "endless": {}}[jobs] | self.conf
        spark = build_session(
            master=self.master,
            conf=conf,
            verbose=self.verbose,
            leave_classes=leave_classes,
            functions=False,
            s3=s3,
        )
        if workers:
            start_workers(spark)
        try:
            with releasing_lakes():
                yield spark
        finally:
            # a call to the JVM that was interrupted may have cost the connection to it
            is_interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
            with suppress(Exception) if is_interrupted else nullcontext():
                spark.stop()

    def without_spark(self, reader: str, root: str, answer: Callable[[EmbeddedLake], None]) -> bool:
        """Whether the embedded engine answered.

        Args:
            reader: the value of --engine.
            root: path of the lake.
            answer: shows the answer; raises NotSupportedError before it shows anything if only Spark can answer.

        Raises:
            click.UsageError: only DuckDB may answer, and cannot.
        """
        of_spark = self.master is not None or self.conf or "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit sets it
        if reader == "spark" or (reader == "auto" and of_spark):
            if self.verbose:
                given = "--engine spark was" if reader == "spark" else "--master, --conf or spark-submit were"
                progress_to_stderr(f"Spark answers: {given} given")
            return False
        if of_spark:
            raise click.UsageError("--engine duckdb cannot be combined with --master, --conf or spark-submit: DuckDB runs in this process")
        from pipeline.embedded.database import EmbeddedLake
        from pipeline.embedded.opened_tables import NotSupportedError

        try:
            answer(EmbeddedLake(root))
        except NotSupportedError as error:
            if reader == "duckdb":
                raise click.UsageError(f"--engine duckdb: {error}; leave --engine out, or give --engine spark") from error
            from pipeline.lake.driver_start import java_fault

            if self.verbose or java_fault() is not None:
                progress_to_stderr(f"Spark answers: {error}")
            return False
        if self.verbose:
            progress_to_stderr("DuckDB answered, without Java")
        return True


def _check_named(
    inputs: Mapping[str, str | None], outputs: Mapping[str, str | None], *, store: str | None, reads: str | None, broker: str | None
) -> bool:
    """Check what the command line names, as `Engine.session` says; gives whether any of it is on S3."""
    from pipeline.files.given_files import require_input, require_output, require_scheme, require_store
    from pipeline.files.object_store import is_s3
    from pipeline.lake.lake import require_there
    from pipeline.lake.opened_broker import require_broker

    uris = given_uris()
    for option, path in inputs.items():
        if path is not None:
            require_input(option, path)
    for option, path in outputs.items():
        if path is not None:
            require_output(option, path)
    for uri, option in uris.items():
        require_scheme(option, uri)
    if store is not None:
        require_store(store)
    if reads is not None:
        require_there(reads)
        if broker is not None:
            require_broker(reads, broker)
    return any(map(is_s3, uris))


def given_uris() -> dict[str, str]:
    """The URIs among the paths that the running command was given, each with the name of its option or argument."""
    context = click.get_current_context(silent=True)
    if context is None:  # the session is not of a command
        return {}
    found = [(one, context.params.get(one.name or "")) for one in context.command.params if _is_path(one)]
    names = {one: one.opts[0] if isinstance(one, click.Option) else one.make_metavar(context) for one, _ in found}
    return {value: names[one] for one, value in found if isinstance(value, str) and _URI.match(value)}


def _is_path(parameter: click.Parameter) -> bool:
    """Whether the value of an option or argument is the path of a file or folder."""
    if isinstance(parameter, click.Option):
        return (parameter.metavar or "").startswith(("FILE", "DIR"))
    return parameter.name in {"file", "store"}


def _open_stores(conf: dict[str, str]) -> dict[str, str]:
    """Check that the buckets of the command line can be opened; gives the settings of Spark without those of S3 that all libraries need."""
    uris = given_uris()
    if not uris and not any(name.startswith(_OF_S3) for name in conf):
        return conf
    from pipeline.files.object_store import is_s3, require_bucket, take_settings

    rest = take_settings(conf)
    for uri in filter(is_s3, uris):
        require_bucket(uri)
    return rest


def _is_no_lost_call(record: logging.LogRecord) -> bool:
    """Whether a log record is not the one that py4j makes of a call without an answer: the error follows, or Ctrl-C ended the call."""
    return not str(record.msg).endswith(("while sending command.", "while shutting down connection"))


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
        return command(*args, engine=Engine(master, _open_stores(conf), verbose), **options)

    return _engine_options(with_engine)


def unused_engine_options(command: Callable[..., R]) -> Callable[..., R]:
    """Accept --master, --conf and --verbose for a command that needs no Spark: they change nothing, and --help leaves them out."""

    @wraps(command)
    def without_engine(*args: Any, master: str | None, conf: dict[str, str], verbose: bool, **options: Any) -> R:
        return command(*args, **options)

    return _engine_options(without_engine, hidden=True)


def _engine_options(command: Callable[..., R], *, hidden: bool = False) -> Callable[..., R]:
    verbose = click.option(
        "--verbose", is_flag=True, hidden=hidden, help="Tell which engine answers and why; let Spark's own log reach stderr."
    )
    conf = click.option("--conf", multiple=True, callback=_conf, metavar="NAME=VALUE", hidden=hidden, help="A Spark setting; repeatable.")
    return click.option("--master", metavar="URL", hidden=hidden, help="Spark master; local[*] by default.")(conf(verbose(command)))


def engine_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --engine; the command gets it as `reader`."""
    text = "What reads the tables; auto is DuckDB, without Java, where it can answer, else Spark, and --verbose says why."
    return click.option("--engine", "reader", type=click.Choice(READERS), default="auto", show_default=True, help=text)(command)


def lake_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --lake."""
    return click.option("--lake", required=True, metavar="DIR", help="Directory of the Delta tables.")(command)


def broker_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option --broker."""
    return click.option("--broker", metavar="NAME", help="Broker in the lake; needed if the lake holds more than one.")(command)


@dataclass(frozen=True)
class GivenSettings:
    """The broker's settings on the command line: the values of --set, the path of --properties, and the value of --rules."""

    options: tuple[str, ...] = ()
    properties: str | None = None
    rules: str | None = None

    @property
    def with_rules(self) -> tuple[str, ...]:
        """The values of --set, after that of --rules as one of them."""
        return self.options if self.rules is None else (f"{RULES_VERSION}={self.rules}", *self.options)

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
            stored=stored, header=header, header_where=header_where, properties=self.properties, options=self.with_rules
        )

    def of_file(self, stored: Mapping[str, str], file: RequestFile | None) -> BrokerSettings:
        """The broker's settings as `over` returns them, with the header of `file` if there is one."""
        if file is None:
            return self.over(stored)
        return file.settings(stored=stored, properties=self.properties, options=self.with_rules)

    def of_store(self, store: str, *, header: Any = None, header_where: str = "") -> BrokerSettings:
        """The broker's settings as `over` returns them; where nothing else names the version, the files of a store tell it.

        Raises:
            SettingsError: as in `over`.
            StoreError: the store cannot be read.
        """
        from pipeline.store.told_rules import told_rules

        return BrokerSettings.from_sources(
            header=header,
            header_where=header_where,
            properties=self.properties,
            options=self.with_rules,
            written_by=told_rules(store),
        )

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


def rules_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the option --rules to a command with `settings_options`, whose `settings` then name the version."""

    @wraps(command)
    def with_rules(*args: Any, settings: GivenSettings, rules: str | None, **options: Any) -> R:
        return command(*args, settings=replace(settings, rules=rules), **options)

    text = "Version of the broker whose rules hold; by default the one that settings, headers or the store's files tell, else 4.9.3."
    return click.option("--rules", type=VERSIONS, help=text)(with_rules)


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


# headings of `pullsim --help`, with their commands; a command that none names stands below the last
SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Begin": ("demo", "import", "capture", "requests"),
    "See what a broker has": (
        "groups",
        "topics",
        "clients",
        "lag",
        "offsets",
        "message",
        "dlq",
        "transactions",
        "timers",
        "pop",
        "retention",
        "report",
        "serve",
        "sql",
    ),
    "Ask why, and what if": ("explain", "whatif", "upgrade", "replay"),
    "Answer as pulls arrive": ("stream", "pace"),
    "Simulate": ("simulate", "answer", "generate"),
    "Check and convert stores": ("verify", "recover", "lookup", "export", "frames"),
}
_OF_SPARK = {"master", "conf", "verbose"}


class ExampleCommand(click.Command):
    """A command whose help text ends with the options of Spark and an example."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = f"\b\nExample:\n  {example}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of Spark under a heading of their own."""
        own, of_spark = list[tuple[str, str]](), list[tuple[str, str]]()
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (of_spark if parameter.name in _OF_SPARK else own).append(record)
        for heading, records in (("Options", own), ("Options of Spark", of_spark)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Commands(click.Group):
    """The group of commands, listed under headings; the error for an unknown command names the nearest known ones."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first sentence of its help, under the headings of SECTIONS."""
        named = {name for names in SECTIONS.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in named]
        for heading, names in {**SECTIONS, "More": others}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, _summary(command)) for name, command in commands if command is not None]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first of `args` names, and the other arguments."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = ", ".join(nearest(args[0], self.list_commands(ctx)))
            raise click.UsageError(f"there is no command {args[0]!r}; the nearest known: {known}", ctx)
        return super().resolve_command(ctx, args)


def _summary(command: click.Command) -> str:
    """The first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


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
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_job import run_replay
    from pipeline.replay.replay_run import ReplayOptions

    check_hold(hold, at, of_table=requests is None)
    check_behind(behind, at, others={"--hold": hold})
    options = ReplayOptions(at=at, filters=filters, messages=not no_messages, compare=compare, out=out, hold=hold, slave_lag=behind)
    inputs, outputs = {"--requests": requests}, {"--out": out}
    with engine.session("long", reads=lake, broker=broker, inputs=inputs, outputs=outputs, workers=True) as spark:
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
@click.argument("query", required=False)
@lake_option
@click.option(
    "--init-file",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_init_file,
    help="Print the path of the init file of spark-sql.",
)
@click.option("--file", metavar="FILE", help="A file of statements, with a semicolon after each.")
@click.option("--allow-files", is_flag=True, help="Run any SQL of Spark: other files and tables are read and written, Java code is called.")
@format_option
@engine_option
@engine_options
def sql_command(query: str | None, lake: str, file: str | None, allow_files: bool, form: str, reader: str, engine: Engine) -> None:
    """Run SQL over the lake's tables, views and functions.

    Without a query, statements come from --file or standard input; on a terminal there is a prompt. A statement reads the lake and nothing
    else: a query, SHOW, DESCRIBE or EXPLAIN. Anything else is refused, unless --allow-files is given.

    `DESCRIBE NAME` explains the columns of a table or view. This gives spark-sql the same tables and views:
    spark-sql -i $(pullsim sql --init-file) --hivevar lake=/data/lake
    """
    from pipeline.commands.sql_statements import Answers, prompting, run_prompt, text_of

    if query is not None and file is not None:
        raise click.UsageError("--file cannot be combined with a query: give one of them")
    if allow_files and reader == "duckdb":
        raise click.UsageError("--allow-files cannot be combined with --engine duckdb: only Spark reads and writes other files")
    text = text_of(file) if query is None else query
    with Answers(engine, "spark" if allow_files else reader, lake, form, allow_files=allow_files) as answers:
        if text is None:
            run_prompt(answers, prompting())
        else:
            answers.show_all(text)


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
