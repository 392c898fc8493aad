"""The options of the engines, --engine, --master, --conf and --verbose, and what they start: DuckDB in this process, or a Spark session."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar
from warnings import catch_warnings, simplefilter

import click

from pipeline.terminal import progress_to_stderr

if TYPE_CHECKING:
    from pipeline.embedded.database import EmbeddedLake

Jobs = Literal["short", "long", "endless"]
P = ParamSpec("P")
R = TypeVar("R")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_OF_S3 = "spark.hadoop.fs.s3a."
ENGINES = ("auto", "duckdb", "spark")


@dataclass
class Engine:
    """The options of the engines: --master, --conf and --verbose of every command, and --engine of those that DuckDB can answer.

    Attributes:
        master: value of --master; None without it.
        conf: the settings of Spark that --conf gives.
        verbose: whether --verbose is given.
        choice: value of --engine, one of ENGINES; "auto" without it.
        chosen_by: the option that made the choice.
    """

    master: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    verbose: bool = False
    choice: str = "auto"
    chosen_by: str = "--engine spark"

    @property
    def is_spark_given(self) -> bool:
        """Whether --master, --conf or spark-submit chose Spark."""
        return self.master is not None or bool(self.conf) or "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit sets it

    @property
    def may_work_here(self) -> bool:
        """Whether this process may do small work without Spark: no option chose Spark, and all paths are local or on S3."""
        if self.is_spark_given:
            return False
        uris = given_uris()
        if not uris:
            return True
        from pipeline.files.object_store import is_s3

        return all(map(is_s3, uris))

    def tell(self, line: str) -> None:
        """Print a line about the engine that does the work, if --verbose is given."""
        if self.verbose:
            progress_to_stderr(line)

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
        """Yield a Spark session, and stop it at the end. Files, lake and broker are checked first, because Spark takes seconds to start.

        Args:
            jobs: "long" if the time of the jobs grows with the data that Spark itself works on.
            reads: a lake that must exist; None for no check.
            inputs: option -> file that must exist; None if the option is not given.
            outputs: option -> file that must be writable; likewise.
            store: directory of a store that must exist; None for no check.
            broker: a broker that the lake `reads` must have; None for no check.
            workers: whether Python workers are needed in any case.
            leave_classes: as in build_session.
        """
        s3 = _check_named(inputs or {}, outputs or {}, store=store, reads=reads, broker=broker)
        from pipeline.lake.lake_writer import releasing_lakes
        from pipeline.lake.session import LONG_JOBS, SHORT_JOBS, build_session, require_java, start_workers, tasks_running
        from pipeline.tasks.running import watched

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
            with releasing_lakes(), watched(tasks_running(spark)) if jobs != "endless" else nullcontext():
                yield spark
        finally:
            # an interrupted call to the JVM may have lost the connection to it
            is_interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
            with suppress(Exception) if is_interrupted else nullcontext(), catch_warnings():
                if is_interrupted:  # Ctrl-C ends the JVM, too
                    simplefilter("ignore", RuntimeWarning)
                spark.stop()

    def without_spark(self, root: str, answer: Callable[[EmbeddedLake], None]) -> bool:
        """Let the embedded engine answer, and return whether it did.

        Args:
            root: path of the lake.
            answer: shows the answer; raises NotSupportedError before it shows anything if only Spark can answer.

        Raises:
            click.UsageError: only DuckDB may answer, and cannot.
        """
        if self.choice == "spark" or (self.choice == "auto" and self.is_spark_given):
            if self.verbose:
                given = f"{self.chosen_by} was" if self.choice == "spark" else "--master, --conf or spark-submit were"
                progress_to_stderr(f"Spark answers: {given} given")
            return False
        if self.is_spark_given:
            raise click.UsageError("--engine duckdb cannot be combined with --master, --conf or spark-submit: DuckDB runs in this process")
        from pipeline.embedded.database import EmbeddedLake
        from pipeline.embedded.opened_tables import NotSupportedError

        try:
            answer(EmbeddedLake(root))
        except NotSupportedError as error:
            if self.choice == "duckdb":
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
    """Check files, lake and broker, as `Engine.session` says; return whether any path of the command line is on S3."""
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
            require_output(option, path, read=reads)
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
    """Check that the buckets of the command line can be opened; return Spark's settings without those of S3 that all libraries need."""
    uris = given_uris()
    if not uris and not any(name.startswith(_OF_S3) for name in conf):
        return conf
    from pipeline.files.object_store import is_s3, require_bucket, s3_path, take_settings

    rest = take_settings(conf)
    # each bucket is checked once, however many paths are in it
    for uri in {s3_path(uri).split("/")[2]: uri for uri in reversed(uris) if is_s3(uri)}.values():
        require_bucket(uri)
    return rest


def _is_no_lost_call(record: logging.LogRecord) -> bool:
    """Whether a log record is not py4j's about a call without an answer: after that one, the error follows, or Ctrl-C ended the call."""
    return not str(record.msg).endswith(("while sending command.", "while shutting down connection"))


def _conf(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for (name, separator, _), value in zip(pairs, values, strict=True):
        if not separator or not name:
            raise click.BadParameter(f"expected name=value, found {value!r}")
    return {name: value for name, _, value in pairs}


def engine_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options --master, --conf and --verbose; the command gets them as `engine`, with --engine if that option is added."""

    @wraps(command)
    def with_engine(*args: Any, master: str | None, conf: dict[str, str], verbose: bool, choice: str = "auto", **options: Any) -> R:
        return command(*args, engine=Engine(master, _open_stores(conf), verbose, choice), **options)

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
    """Add the option --engine to a command with `engine_options`; the command gets it as `engine.choice`."""
    text = "What reads the tables; auto is DuckDB, without Java, where it can answer, else Spark, and --verbose says why."
    return click.option("--engine", "choice", type=click.Choice(ENGINES), default="auto", show_default=True, help=text)(command)
