"""The one place where a Spark session is built.

Everything below takes DataFrames or the session handed in. Under spark-submit the JVM is there already and its settings win; else one is
started here, with Delta's jars, and what it prints goes to a file instead of the user's terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pipeline.lake.driver_start import OPTIONS_OF_JAVA, archive_option, forget_archive, is_plain_start, keep_jars, known_jars
from pipeline.lake.scratch import scratch_folder
from pipeline.settings.resources import conf_text
from udfs.sql_functions import register

_DICTIONARY = "spark.hadoop.parquet.enable.dictionary#"
_PACKAGES, _OPTIONS = "spark.jars.packages", "spark.driver.extraJavaOptions"
DELTA_JARS = "io.delta:delta-spark_4.2_2.13:4.4.0,io.delta:delta-storage:4.4.0"

# for sessions that end before the JVM's second compiler pays; the first one fills the default code cache of 48 MB
SHORT_JOBS = {_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"}
# for those that end within minutes, in which it takes more than it gives but for what runs most
LONG_JOBS = {
    _OPTIONS: "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
    "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
}

# for queries of so few rows that they take less time than to make code of their plans, which Spark then walks
WALKED_PLANS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# Hadoop starts a chmod for each local file that it writes, and a readlink or two; on Linux Java needs no helper in between to start them
_PROCESSES = {"linux": "-Djdk.lang.Process.launchMechanism=VFORK"}

# Arrow's Java holds each read of a value against the bounds of its column once more, which takes a tenth of what reads answers
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# what collects garbage beside the work takes a tenth of it, where cores are few
_COLLECTOR = "-XX:+UseParallelGC"
# a JVM that is told of two collectors does not start
_ANY_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# those that an archive of classes is known to go with
_WITH_ARCHIVE = {"", *SHORT_JOBS.values(), *LONG_JOBS.values()}


# variables that tell Spark where temporary files go
_PLACES = {"SPARK_LOCAL_DIRS", "LOCAL_DIRS"}
# of a session that is alone on its machine: nobody else can reach it, and its workers have the package (others get it with a task)
_ALONE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "pipeline.worker_daemon",
}


class EngineError(RuntimeError):
    """Spark did not start, or not with what is needed."""


def spark_defaults(name: str) -> dict[str, str]:
    """The settings of a spark-defaults file under conf/: a name and a value a line."""
    lines = (line.strip() for line in conf_text(name).splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {key: value.strip() for key, value in pairs}


@cache
def columns_without_dictionary() -> tuple[str, ...]:
    """Paths of Parquet columns whose values hardly repeat: Spark's files and those of tasks have no dictionary for them."""
    return tuple(name.partition("#")[2] for name in spark_defaults("spark-defaults-local.conf") if name.startswith(_DICTIONARY))


def build_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
    app_name: str = "pullsim",
    leave_classes: bool = False,
) -> SparkSession:
    """Start a session with Delta and the SQL functions of `udfs`, or take the one that spark-submit prepared.

    Args:
        master: Spark master; local[*] where neither this nor spark-submit says one.
        conf: settings that win over all others.
        verbose: let Spark's own output reach stderr.
        app_name: name of the application.
        leave_classes: let the JVM leave an archive of its classes when it ends, with which the next ones start faster, if there is none.

    Raises:
        EngineError: the session did not start; the message ends with what Spark printed.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = dict[str, Any](conf or {})
    builder = SparkSession.Builder().appName(app_name).config(map=conf)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _with_functions(_submitted_session(builder if master is None else builder.master(master)))
    is_local = (master or "local").partition("[")[0] == "local"
    is_plain = is_local and is_plain_start(conf)  # other machines may not see the jars
    ours = _jars(conf, known_jars(DELTA_JARS) if is_plain else [])
    if is_local:
        ours |= _ALONE
        if not _PLACES & os.environ.keys() and "spark.local.dir" not in conf:
            ours["spark.local.dir"] = scratch_folder()
    settings = spark_defaults("spark-defaults-local.conf") | ours | conf
    options = settings.get(_OPTIONS, "")
    archive = archive_option(leave=leave_classes) if is_plain and options in _WITH_ARCHIVE else ""
    is_first = SparkSession.getActiveSession() is None
    with _jvm_output(verbose=verbose) as printed:
        builder = builder.master(master or "local[*]")
        try:
            session = _started(builder, settings | {_OPTIONS: f"{archive} {java_options(options)}"}, without=archive)
        except Exception as error:
            raise EngineError(f"Spark did not start: {error}\n{printed()}") from error
    if is_plain and is_first and _PACKAGES in ours:
        keep_jars(DELTA_JARS, session.sparkContext.getConf().get("spark.jars") or "")
    if not verbose:
        session.sparkContext.setLogLevel("OFF")
        # it repeats each refused query with the JVM's stack; the error itself says what is wrong
        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    return _with_functions(session)


def _jars(conf: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """The settings with which Spark has Delta: its files where they are known."""
    if "spark.jars" in conf:
        return {}
    return {"spark.jars": ",".join(known)} if known else {_PACKAGES: DELTA_JARS}


def _started(builder: Any, settings: Mapping[str, str], *, without: str) -> SparkSession:
    """A session, if need be without the option of an archive, which may be damaged; it is then removed."""
    try:
        session: SparkSession = builder.config(map=settings).getOrCreate()
    except Exception:
        if not without:
            raise
        session = builder.config(map={**settings, _OPTIONS: settings[_OPTIONS].removeprefix(without)}).getOrCreate()
        forget_archive()
    return session


def _with_functions(session: SparkSession) -> SparkSession:
    """The session with the functions of the broker's rules, which a replay calls too."""
    register(session)
    return session


def java_options(given: str) -> str:
    """Options of the driver's JVM: ours and then those given, without our garbage collector where these or the environment name one."""
    told = (given, *(os.environ.get(name, "") for name in OPTIONS_OF_JAVA))
    collector = "" if any(map(_ANY_COLLECTOR.search, told)) else _COLLECTOR
    return " ".join(filter(None, (_PROCESSES.get(sys.platform), _ARROW, collector, given)))


@contextlib.contextmanager
def set_meanwhile(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session, for all its threads, that are those of before again at the end of the block."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, former)


def start_workers(session: SparkSession) -> None:
    """Have Spark begin the process of its Python workers, whose imports take a second, while the tables are looked at; returns at once."""
    if (session.sparkContext.master or "").startswith("local["):
        threading.Thread(target=_run_worker, args=(session,), daemon=True).start()


def _run_worker(session: SparkSession) -> None:
    with contextlib.suppress(Exception):  # the session may end meanwhile
        run_worker(session)


def run_worker(session: SparkSession) -> None:
    """Run a task in a Python worker that does nothing."""
    session.range(1).mapInArrow(_unchanged, "id BIGINT").count()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches  # Spark looks at the signature of the function, and the built-in `iter` has none


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks the session's cores run side by side."""
    return session.sparkContext.defaultParallelism


def _submitted_session(builder: Any) -> SparkSession:
    """The session of spark-submit, whose own settings win; only what can be set late is added to them."""
    session: SparkSession = builder.getOrCreate()
    if "DeltaSparkSessionExtension" not in (session.conf.get("spark.sql.extensions", None) or ""):
        raise EngineError("the session has no Delta: give spark-submit --properties-file conf/spark-defaults-cluster.conf")
    for name, value in spark_defaults("spark-defaults-cluster.conf").items():
        if name.startswith(
            ("spark.sql.execution", "spark.sql.session", "spark.sql.maxConcurrent", "spark.sql.streaming", "spark.databricks.")
        ):
            session.conf.set(name, session.conf.get(name, None) or value)
    _let_planners_find_packages(session)
    return session


def _let_planners_find_packages(session: SparkSession) -> None:
    """Tell Python processes where the driver has these packages.

    Surprise: the process that plans the batches of a Python stream looks for --py-files in a folder of its own, where they are not.
    """
    environment = session.sparkContext.environment
    packages = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), packages)))


@contextlib.contextmanager
def _jvm_output(*, verbose: bool) -> Iterator[Any]:
    """While a JVM is started, let it (and the workers it forks) inherit a file as stdout and stderr; yields what reads the file's tail.

    With `verbose` it inherits stderr as both: what it prints is no output of a command.
    """
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as undone:
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            if stream is not None:
                stream.flush()
                terminal = os.dup(number)
                undone.callback(os.close, terminal)
                undone.callback(os.dup2, terminal, number)
                os.dup2(2 if verbose else log.fileno(), number)

        def tail() -> str:
            log.seek(0)
            return log.read()[-4000:].decode("utf-8", "replace")

        yield tail
