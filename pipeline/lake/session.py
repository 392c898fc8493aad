"""Build the Spark session; no other module does.

Under spark-submit, the JVM runs already, and its settings win. Otherwise the JVM is started here with Delta's jars, and its output goes to
a file instead of the terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pipeline.files.object_store import s3_access, without_secrets
from pipeline.lake.driver_start import (
    JAVA_LEAST,
    OPTIONS_OF_JAVA,
    archive_option,
    forget_archive,
    is_plain_start,
    java_fault,
    keep_jars,
    known_jars,
)
from pipeline.lake.scratch import scratch_folder
from pipeline.settings.resources import conf_text
from pipeline.tasks.computed_once import is_one_process
from pipeline.tasks.running import Look, Running
from udfs.sql_functions import register

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

_HADOOP = "spark.hadoop."
_DICTIONARY = "spark.hadoop.parquet.enable.dictionary#"
_PACKAGES, _OPTIONS = "spark.jars.packages", "spark.driver.extraJavaOptions"
DELTA_JARS = "io.delta:delta-spark_4.2_2.13:4.4.0,io.delta:delta-storage:4.4.0"
# S3A of the version that pyspark's Hadoop has, with the parts of Amazon's SDK that S3A needs: 10 MB in place of the whole SDK's 686 MB
S3_JARS = ",".join(
    (
        DELTA_JARS,
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:s3-transfer-manager:2.35.4",
        "software.amazon.awssdk:sts:2.35.4",
    )
)
_EXCLUDED_JARS = {"spark.jars.excludes": "software.amazon.awssdk:bundle"}

# for short sessions: they end before the JVM's second compiler pays off, so it is switched off; the first compiler needs a larger code
# cache than the default of 48 MB
SHORT_JOBS = {_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"}
# for sessions of minutes: the second compiler only compiles the code that runs most; compiling the rest would cost more than it saves
LONG_JOBS = {
    _OPTIONS: "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=12000 "
    "-XX:Tier4CompileThreshold=300000 -XX:Tier4BackEdgeThreshold=800000"
}

# for queries of few rows: Spark interprets their plans, as generating and compiling code takes longer than the query
INTERPRETED_PLANS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# Hadoop starts a process (chmod, readlink) for each local file that it writes; with VFORK, Java needs no helper process for this
_PROCESSES = {"linux": "-Djdk.lang.Process.launchMechanism=VFORK"}

# without these, Arrow's Java checks the bounds at each read of a value, which takes a tenth of the time in which answers are read
_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# on few cores, a concurrent garbage collector takes a tenth of the time
_COLLECTOR = "-XX:+UseParallelGC"
# a JVM with options for two collectors does not start
_ANY_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# driver options that are known to work with a class archive
_WITH_ARCHIVE = {"", *SHORT_JOBS.values(), *LONG_JOBS.values()}


# environment variables that set Spark's folders for temporary files
_TEMPORARY_FOLDERS = {"SPARK_LOCAL_DIRS", "LOCAL_DIRS"}
# settings of a session on one machine: it is not reachable from others, and its Python workers preload the package
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "pipeline.worker_daemon",
}


# setting for the Python that runs tasks, if another Python made their function
_TASKS_PYTHON = "spark.sql.execution.pyspark.python"

# Ivy's message about each package that it did not find
_NOT_FOUND = re.compile(r"unresolved dependency: (\S+): not found")
_JAVA_PACKAGE = f"apt-get install openjdk-{JAVA_LEAST}-jre-headless"


class EngineError(RuntimeError):
    """Spark did not start, or started without Delta."""


def spark_defaults(name: str) -> dict[str, str]:
    """The settings in a spark-defaults file under conf/, which has a name and a value in each line."""
    lines = (line.strip() for line in conf_text(name).splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {key: value.strip() for key, value in pairs}


@cache
def columns_without_dictionary() -> tuple[str, ...]:
    """Paths of Parquet columns whose values hardly repeat: Spark's files and those of tasks have no dictionary for them."""
    return tuple(name.partition("#")[2] for name in spark_defaults("spark-defaults-local.conf") if name.startswith(_DICTIONARY))


def require_java() -> None:
    """Check, before Spark is started, that there is a Java that Spark runs on; under spark-submit it runs already.

    Raises:
        EngineError: there is no Java, or it is too old.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    fault = java_fault()
    if fault is not None:
        raise EngineError(f"Spark needs Java {JAVA_LEAST} or newer, found {fault}; install one (Debian: {_JAVA_PACKAGE}), or set JAVA_HOME")


def build_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
    app_name: str = "pullsim",
    leave_classes: bool = False,
    functions: bool = True,
    s3: bool = False,
) -> SparkSession:
    """Start a session with Delta and the SQL functions of `udfs`; under spark-submit, return the session that it prepared.

    Args:
        master: Spark master; None for local[*] or the master of spark-submit.
        conf: settings that win over all others.
        verbose: whether Spark's own output goes to stderr.
        app_name: name of the application.
        leave_classes: whether the JVM writes a class archive at its end, if there is none; later JVMs start faster with it.
        functions: whether to define the SQL functions now, which takes a second; `create_views` defines them when a query needs them.
        s3: whether the session opens paths on S3.

    Raises:
        EngineError: the session did not start; the message ends with what Spark printed.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf, secrets = without_secrets(conf or {})
    builder = SparkSession.Builder().appName(app_name).config(map=dict[str, Any](conf))
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        submitted = _submitted_session(builder if master is None else builder.master(master))
        if s3:
            _open_s3(submitted)
        _set(submitted, secrets)
        return _with_functions(submitted) if functions else submitted
    is_local = (master or "local").partition("[")[0] == "local"
    is_plain = is_local and is_plain_start(conf)  # other machines may not see the jars
    packages = S3_JARS if s3 else DELTA_JARS
    ours = _jars(conf, packages, known_jars(packages) if is_plain else [])
    if s3:
        ours |= {f"{_HADOOP}{name}": value for name, value in s3_access().hadoop_settings().items()}
    if is_local:
        ours |= _LOCAL_ONLY
        if not _TEMPORARY_FOLDERS & os.environ.keys() and "spark.local.dir" not in conf:
            ours["spark.local.dir"] = scratch_folder()
            ours["spark.sql.warehouse.dir"] = f"{ours['spark.local.dir']}/warehouse"  # else a folder in the working directory
    settings = spark_defaults("spark-defaults-local.conf") | ours | conf
    options = settings.get(_OPTIONS, "")
    archive = archive_option(leave=leave_classes) if is_plain and options in _WITH_ARCHIVE else ""
    is_first = SparkSession.getActiveSession() is None
    with _jvm_output(verbose=verbose) as printed:
        builder = builder.master(master or "local[*]")
        try:
            with _interrupts_wait():
                session = _started(builder, settings | {_OPTIONS: f"{archive} {java_options(options)}"}, without=archive)
        except Exception as error:
            raise EngineError(_why_not_started(error, printed())) from error
    if is_plain and is_first and _PACKAGES in ours:
        keep_jars(packages, session.sparkContext.getConf().get("spark.jars") or "")
    if not verbose:
        session.sparkContext.setLogLevel("OFF")
        # this logger prints each refused query with the JVM's stack; the exception has the reason already
        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    if s3:
        _open_s3(session)
    _set(session, secrets)
    return _with_functions(session) if functions else session


def _why_not_started(error: Exception, printed: str) -> str:
    """The message about a session that did not start: the packages that were not found, or else all that Spark printed."""
    missing = sorted(set(_NOT_FOUND.findall(printed)))
    if missing:
        return (
            f"Spark did not start: found no Maven package {', '.join(missing)}; without network, hand its jars over as docs/cluster.md says"
        )
    return f"Spark did not start: {error}\n{printed}"


def _jars(conf: Mapping[str, str], packages: str, known: Sequence[str]) -> dict[str, str]:
    """The settings that give Spark the jars of Maven packages: the files in `known`, or else the packages to download."""
    if "spark.jars" in conf:
        return {}
    return {"spark.jars": ",".join(known)} if known else {_PACKAGES: packages} | _EXCLUDED_JARS


def _open_s3(session: SparkSession) -> None:
    """Give a session and its tasks the settings of S3, credentials among them.

    They become settings of the session and variables of Python's workers. Settings of Spark stand on the command line of a Java process.
    """
    access = s3_access()
    for name, value in (access.hadoop_settings() | access.hadoop_credentials()).items():
        if session.conf.get(f"{_HADOOP}{name}", None) is None:
            session.conf.set(name, value)
    session.sparkContext.environment.update(access.variables())


def _set(session: SparkSession, secrets: Mapping[str, str]) -> None:
    """Give a session Hadoop's secret settings; as settings of Spark they would stand on a command line, as `_open_s3` explains."""
    for name, value in secrets.items():
        session.conf.set(name, value)


def _started(builder: Any, settings: Mapping[str, str], *, without: str) -> SparkSession:
    """Start a session; if this fails, start it without the class archive's option `without`, and remove the archive as damaged."""
    try:
        session: SparkSession = builder.config(map=settings).getOrCreate()
    except Exception:
        if not without:
            raise
        session = builder.config(map={**settings, _OPTIONS: settings[_OPTIONS].removeprefix(without)}).getOrCreate()
        forget_archive()
    return session


def _with_functions(session: SparkSession) -> SparkSession:
    """Register the SQL functions of `udfs` in the session, and return it."""
    register(session)
    return session


def java_options(given: str) -> str:
    """Options of the driver's JVM: those of this module, then `given`.

    The option for the garbage collector is left out if `given` or the environment names a collector.
    """
    options_given = (given, *(os.environ.get(name, "") for name in OPTIONS_OF_JAVA))
    collector = "" if any(map(_ANY_COLLECTOR.search, options_given)) else _COLLECTOR
    return " ".join(filter(None, (_PROCESSES.get(sys.platform), _ARROW, collector, given)))


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C take effect only at the end of the block, which starts a JVM.

    Surprise: if PySpark is interrupted here, it deletes the folder in which the JVM leaves its port. The JVM then runs on without a driver.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if noted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session, for all its threads, and restore them at the end of the block."""
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
    """Start Spark's Python worker process in the background, because its imports take a second; returns at once."""
    if is_one_process(session):
        threading.Thread(target=_run_worker, args=(session,), daemon=True).start()


def _run_worker(session: SparkSession) -> None:
    with contextlib.suppress(Exception):  # the session may end in the meantime
        run_worker(session)


def run_worker(session: SparkSession) -> None:
    """Run empty tasks in Python workers, one for each core."""
    tasks = tasks_at_once(session)
    session.range(0, tasks, 1, tasks).mapInArrow(_unchanged, "id BIGINT").count()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches  # not the built-in `iter`: Spark needs a function with a signature


def tasks_at_once(session: SparkSession) -> int:
    """The number of tasks that the session's cores run at the same time."""
    return session.sparkContext.defaultParallelism


def tasks_running(session: SparkSession) -> Look:
    """Return a function that gives the running stages of a session with their tasks; it asks the JVM only when it is called."""

    def look() -> Iterator[Running]:
        tracker = session.sparkContext.statusTracker()
        for stage in tracker.getActiveStageIds():
            found = tracker.getStageInfo(stage)
            if found is not None:
                yield Running(stage, found.numCompletedTasks, found.numTasks)

    return look


def _submitted_session(builder: Any) -> SparkSession:
    """The session of spark-submit; settings that it lacks and that can still be set are added.

    Raises:
        EngineError: the session has no Delta.
    """
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
    """Add the folder of this package to the PYTHONPATH of Spark's Python processes.

    Surprise: the process that plans batches of a Python stream searches --py-files in a folder of its own, which does not have them.
    """
    environment = session.sparkContext.environment
    packages = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), packages)))


def register_source(session: SparkSession, source: type[DataSource]) -> None:
    """Register a Python data source; its batches are planned by the Python of this process, and read by the Python of tasks.

    Surprise: Spark plans batches in a process on the driver's machine, with the Python of tasks. In client mode, PYSPARK_PYTHON may be a
    path that only executors have.
    """
    context = session.sparkContext
    of_tasks = context.pythonExec
    session.conf.set(_TASKS_PYTHON, of_tasks)
    context.pythonExec = sys.executable
    try:
        session.dataSource.register(source)
    finally:
        context.pythonExec = of_tasks


@contextlib.contextmanager
def _jvm_output(*, verbose: bool) -> Iterator[Any]:
    """For the block, replace stdout and stderr by a file that a started JVM inherits; yields a function that reads the file's tail.

    With `verbose`, the JVM inherits stderr for both, because its output is no output of the command.
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
