"""A lake from Python: questions that DuckDB answers at once, and work on Spark, through the functions that the commands call."""

from __future__ import annotations

import datetime as dt
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pullsim.rows import Rows
from pullsim.shown import Explained, Page
from store_format.errors import UnusableInputError, quoted_error

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.commands.given_settings import GivenSettings
    from pipeline.embedded.database import EmbeddedLake
    from pipeline.lake.asking import AskAll
    from pipeline.lake.opened_broker import OpenedBroker
    from pipeline.replay.replay_run import Replayed, ReplayOptions

Engine = Literal["auto", "duckdb", "spark"]
At = Literal["snapshot", "request-time", "recorded-max"]
Layout = Literal["auto", "partitioned", "clustered"]
Path = str | os.PathLike[str]
# values of broker settings by the broker's own names
Settings = Mapping[str, str | int | float | bool]
T = TypeVar("T")


class NeedsSparkError(UnusableInputError, ValueError):
    """Only DuckDB may answer, and cannot; the message says why."""


def open(path: Path, *, engine: Engine = "auto", spark: SparkSession | None = None) -> Lake:  # noqa: A001 (pullsim.open is the name)
    """The lake in a directory.

    Args:
        path: directory of the Delta tables, or a URI.
        engine: what reads the tables; "auto" is DuckDB if it can answer, else Spark.
        spark: session that answers everything; with None, work on Spark takes the active session, or starts one, which takes seconds.

    Raises:
        pullsim.Error: there is no lake, or it is damaged or of another version.

    >>> lake = pullsim.open("lake")
    """
    return Lake(path, engine=engine, spark=spark)


class Lake:
    """A lake; each call reads the newest version of it."""

    def __init__(self, path: Path, *, engine: Engine = "auto", spark: SparkSession | None = None) -> None:
        """Open the lake; arguments and errors are those of `pullsim.open`."""
        from pipeline.files.object_store import is_s3, require_bucket
        from pipeline.lake.committed import require_there

        if engine not in {"auto", "duckdb", "spark"}:
            raise ValueError(f'engine: expected "auto", "duckdb" or "spark", found {engine!r}')
        self.path = os.fspath(path)
        self._engine: Engine = "spark" if spark is not None else engine
        self._spark = spark
        if is_s3(self.path):
            require_bucket(self.path)
        require_there(self.path)

    def __repr__(self) -> str:
        return f"Lake({self.path!r})"

    def sql(self, query: str) -> Rows:
        """The rows of a query in Spark's SQL over the lake's tables, views and functions; docs/sql.md lists them.

        Args:
            query: a query, SHOW or DESCRIBE; it reads the lake and nothing else.

        Raises:
            pullsim.Error: the query names something unknown, or cannot be run.

        >>> lake = pullsim.open("lake")
        >>> lake.sql("SELECT minOffset, maxOffset FROM queue WHERE topic = 'orders' AND queueId = 0")
        minOffset  maxOffset
               94        373
        (1 row)
        """

        def quickly(lake: EmbeddedLake) -> Rows:
            from pipeline.embedded.questions import ask_table

            return Rows(ask_table(lake, query))

        def on_spark() -> Rows:
            from pipeline.lake.lake import Lake as SparkLake
            from pipeline.lake.read_only_sql import check_read_only
            from pipeline.lake.views import ask
            from pipeline.sql.statements import FUNCTIONS

            check_read_only(query, FUNCTIONS)
            return Rows(frame=ask(SparkLake(self.spark, self.path).require(), query))

        return self._answered(quickly, on_spark)

    def lag(
        self, *, group: str | None = None, topic: str | None = None, broker: str | None = None, until: dt.datetime | None = None
    ) -> Rows:
        """The consumer lag of each group and queue: the rows of the view consume_lag, sorted by broker, group, topic and queue.

        Args:
            group: only this consumer group.
            topic: only this topic.
            broker: only this broker.
            until: end of waiting times; by default the time of the store's last message.

        Raises:
            pullsim.Error: the lake has no such group, topic or broker.

        >>> lake = pullsim.open("lake")
        >>> lake.lag(group="g-first", topic="ledger").arrow()["lag"].to_pylist()
        [0, 13, 0, 5]
        """
        from pipeline.lag.lag_sql import AskedLag, check_names, diff_total
        from pipeline.lake.asking import names_with

        asked = AskedLag(broker=broker, group=group, topic=topic, until=until)

        def quickly(lake: EmbeddedLake) -> Rows:
            from pipeline.embedded.questions import errors_told
            from pipeline.embedded.translation import parsed

            with errors_told():
                check_names(lake.root, names_with(lake.asked), group=group, topic=topic, broker=broker)
                table = lake.table(parsed(asked.queue_lags))
                deleted = lake.table(parsed(asked.deleted)) if "OFFSET_BELOW_MIN" in table["reason"].to_pylist() else None
            return Rows(table, note=diff_total(table["lag"].to_pylist(), deleted["deleted"][0].as_py() if deleted else 0))

        def on_spark() -> Rows:
            from pipeline.lake.lake import Lake as SparkLake
            from pipeline.lake.views import ask, asking

            opened = SparkLake(self.spark, self.path).require()
            check_names(self.path, names_with(asking(opened)), group=group, topic=topic, broker=broker)
            return Rows(frame=ask(opened, asked.queue_lags))

        return self._answered(quickly, on_spark)

    def report(
        self,
        *,
        broker: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        from_: int | dt.datetime | None = None,
        to: int | dt.datetime | None = None,
    ) -> Page:
        """The page of `pullsim report` about the state of the groups; a notebook shows it.

        Args:
            broker: only this broker.
            group: only this consumer group.
            topic: only this topic.
            from_: only pulls, commits and messages from this time on, ms or a datetime; a datetime without a zone is in UTC.
            to: only pulls, commits and messages before this time, likewise.

        Raises:
            pullsim.Error: the lake has no such broker, group or topic, a time is not from 1970 to 9999, or `from_` is not before `to`.

        >>> lake = pullsim.open("lake")
        >>> lake.report().save("report.html")
        >>> page = lake.report(group="g-slow", from_=1_795_257_280_000)
        >>> "g-slow" in page.html, "g-first" in page.html
        (True, False)
        """
        from pipeline.commands.new_run import now
        from pipeline.report.build import report
        from pipeline.report.page import page as html_page
        from pipeline.report.scope import Filters, require_span

        since, until = _millis(from_), _millis(to)
        require_span(since, until, named=("from_", "to"))
        only = Filters(broker=broker, group=group, topic=topic, since=since, until=until)

        def page(ask: AskAll) -> Page:
            found = report(ask, only=only, named=self.path, made=now(), progress=lambda _: None)
            return Page(html_page(found))

        def quickly(lake: EmbeddedLake) -> Page:
            from pipeline.embedded.questions import errors_told

            with errors_told():
                return page(lake.asked)

        def on_spark() -> Page:
            from pipeline.lake.lake import Lake as SparkLake
            from pipeline.lake.views import asking

            return page(asking(SparkLake(self.spark, self.path).require()))

        return self._answered(quickly, on_spark)

    def explain(
        self,
        *,
        group: str | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        offset: int | None = None,
        max_msg_nums: int = 32,
        filter_type: str | None = None,
        expression: str | None = None,
        registered: bool = False,
        at: int | dt.datetime | None = None,
        request: str | None = None,
        broker: str | None = None,
        settings: Settings | None = None,
        rules: str | None = None,
    ) -> Explained:
        """Why the broker gives its answer to a pull: the checks, the window, the outcome of each entry, and why the scan ended.

        Args:
            group: consumer group that pulls; with topic, queue_id and offset, or else `request`.
            topic: topic of the queue.
            queue_id: queue of the topic.
            offset: queue offset to pull from.
            max_msg_nums: maximum number of messages of the answer.
            filter_type: TAG or SQL92; TAG if there is an expression.
            expression: the filter.
            registered: use the filter that the group registered for the topic.
            at: see the store as of this time, ms or a datetime; all of it by default.
            request: requestId of a captured pull in the table pull_request.
            broker: the broker; needed if the lake holds more than one.
            settings: broker settings that override those of the import.
            rules: version of the broker whose rules hold.

        Raises:
            pullsim.Error: there is no such pull, or a setting is wrong.
            TypeError: neither a whole pull nor a request is given, or both.

        >>> lake = pullsim.open("lake")
        >>> why = lake.explain(group="g-main", topic="orders", queue_id=0, offset=0)
        >>> why.facts["answer"]["status"]
        'OFFSET_TOO_SMALL'
        """
        from pipeline.questions.broker_checks import ExplainedPull, captured_pull
        from pipeline.questions.explain import Explanation, explain
        from pipeline.questions.explain_text import as_json, show

        place = {"group": group, "topic": topic, "queue_id": queue_id, "offset": offset}
        more = {"filter_type": filter_type, "expression": expression, "at": _millis(at)}
        is_whole = None not in place.values()
        is_more = any(value is not None for value in (*place.values(), *more.values()))
        if is_more if request is not None else not is_whole:
            raise TypeError("explain: expected group, topic, queue_id and offset, or else request alone, the id of a captured pull")
        given = _given(settings, rules)
        asked = None
        if request is None:
            asked = ExplainedPull(**place, **more, max_msg_nums=max_msg_nums, registered=registered).with_filter_type()  # type: ignore[arg-type]

        def explained(opened: OpenedBroker) -> Explanation:
            merged = given.over(opened.properties())
            return explain(opened, asked or captured_pull(opened, request or "", merged), merged)

        explanation = self._done_here(explained, "explains", broker) or explained(self._broker(broker))
        with redirect_stdout(io.StringIO()) as text:
            show(explanation, every_entry=False)
        return Explained(text.getvalue(), as_json(explanation))

    def replay(
        self,
        requests: Path | pa.Table | pd.DataFrame | pl.DataFrame | DataFrame | None = None,
        *,
        at: At = "snapshot",
        settings: Settings | None = None,
        rules: str | None = None,
        broker: str | None = None,
    ) -> Rows:
        """The broker's answers to pull requests: rows of the table pull_response, to which they are added.

        The rows for a file or frame are in the order of its requests. The rows for captured pulls are in the order of their ids, not of
        time; arrivalMicros of pull_request has the time.

        Args:
            requests: a file as for `pullsim replay --requests`; or a frame with the columns group, topic, queueId and offset, and if need
                be maxMsgNums (32 by default), filterType, expression and timestamp; or None for the captured pulls of the lake.
            at: which part of the store a request sees.
            settings: broker settings that override those of the import and of the file's header.
            rules: version of the broker whose rules hold.
            broker: the broker; needed if the lake holds more than one.

        Raises:
            pullsim.Error: a request, a setting or the broker is wrong; nothing was written.

        >>> lake = pullsim.open("lake")
        >>> answers = lake.replay("pulls.jsonl", settings={"maxTransferCountOnMessageInMemory": 8})
        >>> answers.arrow()["status"].to_pylist()[3:5]
        ['OFFSET_TOO_SMALL', 'FOUND']
        """
        from pipeline.capture.replay_captured import run_captured_replay
        from pipeline.commands.new_run import now, run_id
        from pipeline.replay.replay_job import run_replay
        from pipeline.replay.replay_run import ReplayOptions
        from pipeline.terminal import progress_to_stderr
        from pullsim.request_frames import request_file

        given, run = _given(settings, rules), run_id()
        options = ReplayOptions(at=at)

        def answer(path: str | None, opened: OpenedBroker) -> Replayed[Any]:
            more: dict[str, Any]
            stored, more = opened.properties(), {"options": options, "run_id": run, "now": now, "progress": progress_to_stderr}
            if path is None:
                return run_captured_replay(opened, settings=given.over(stored), **more)
            return run_replay(opened, path, settings_of=partial(given.of_file, stored), **more)

        with _job():
            if requests is None or isinstance(requests, str | os.PathLike):
                path = None if requests is None else os.fspath(requests)
                if not self._is_answered_here(partial(answer, path), path, broker, options):
                    answer(path, self._broker(broker))
            else:
                opened = self._broker(broker)
                with request_file(opened, requests, run) as path:
                    answer(path, opened)
        return self.sql(_ANSWERS.format(run=run))

    def capture(self, traffic: Path, *, broker: str | None = None) -> None:
        """Read a broker's captured traffic into the lake: its pulls with the recorded answers, offsets, subscriptions.

        Args:
            traffic: a file of pcap or pcapng; reading it again replaces its rows.
            broker: the broker; needed if the lake holds more than one.

        Raises:
            pullsim.Error: the file is missing or no capture, or the lake has no such broker; nothing was written.

        >>> lake = pullsim.open("lake")
        >>> lake.capture("traffic.pcap")
        >>> lake.sql("SELECT count(*) AS pulls, count(recordedCode) AS answered FROM pull_request")
        pulls  answered
          121       111
        (1 row)
        """
        from pipeline.capture.capture_job import broker_of, run_capture
        from pipeline.capture.small_capture import read_small_capture
        from pipeline.commands.new_run import now, run_id
        from pipeline.files.given_files import require_input
        from pipeline.files.store_files import absolute_path
        from pipeline.lake.lake import Lake as SparkLake
        from pipeline.terminal import progress_to_stderr

        path = os.fspath(traffic)
        require_input("traffic", path)
        whole = absolute_path(path)  # executors have a current folder of their own
        with _job():
            run, silent = run_id(), lambda _: None
            done = read_small_capture(self.path, broker, whole, run_id=run, now=now, progress=progress_to_stderr, tell=silent)
            if done is None:
                into = broker_of(SparkLake(self.spark, self.path), broker)
                run_capture(into, whole, run_id=run, now=now, progress=progress_to_stderr)

    def _done_here(self, work: Callable[[OpenedBroker], T], does: str, broker: str | None) -> T | None:
        """Return the result of work on a broker without Spark; None if Spark has to do the work."""
        from pipeline.files.store_files import is_local_or_s3
        from pipeline.lake.opened_broker import OpenedBroker
        from pipeline.tasks.small_work import done_here

        if self._engine == "spark" or not is_local_or_s3(self.path):
            return None
        return done_here(lambda: work(OpenedBroker.of(None, self.path, broker)), does, lambda _: None)

    def _is_answered_here(
        self, answer: Callable[[OpenedBroker], object], path: str | None, broker: str | None, options: ReplayOptions
    ) -> bool:
        """Whether the driver answered the requests of a file, or captured pulls, because they are few."""
        from pipeline.files.store_files import is_local_or_s3
        from pipeline.replay.small_replay import answered_here

        if self._engine == "spark" or not (is_local_or_s3(self.path) and is_local_or_s3(path or "")):
            return False
        return answered_here(answer, self.path, broker, path, options=options, reads="lines", tell=lambda _: None) is not None

    def _broker(self, name: str | None) -> OpenedBroker:
        from pipeline.lake.opened_broker import OpenedBroker

        return OpenedBroker.of(self.spark, self.path, name)

    @property
    def spark(self) -> SparkSession:
        """The session for work on Spark: the one given to `pullsim.open`, else the active one, else a new one, which stays.

        Raises:
            RuntimeError: there is no Java, or the session does not start.
        """
        from pipeline.files.object_store import is_s3
        from pullsim.session import session

        return session(s3=is_s3(self.path)) if self._spark is None else self._spark

    def _answered(self, quickly: Callable[[EmbeddedLake], T], on_spark: Callable[[], T]) -> T:
        """Return the answer of DuckDB, or of Spark if DuckDB cannot or may not answer."""
        if self._engine == "spark":
            return on_spark()
        from pipeline.embedded.database import EmbeddedLake
        from pipeline.embedded.opened_tables import NotSupportedError

        try:
            return quickly(EmbeddedLake(self.path))
        except NotSupportedError as error:
            if self._engine == "duckdb":
                raise NeedsSparkError(f'engine="duckdb": {error}; leave engine out, or give "spark"') from error
            return on_spark()


# in a file, requestId is the number of the line: 9 comes before 10
_ANSWERS = "SELECT * FROM pull_response WHERE runId = '{run}' ORDER BY length(requestId), requestId"


def import_store(
    store: Path,
    lake: Path,
    *,
    broker_name: str | None = None,
    layout: Layout = "auto",
    as_found: bool = False,
    properties: Path | None = None,
    settings: Settings | None = None,
    rules: str | None = None,
    spark: SparkSession | None = None,
) -> Lake:
    """Import a broker's store directory, which is only read; return the lake that has it.

    Args:
        store: directory of the store.
        lake: directory of the Delta tables; a broker of the same name in it is replaced.
        broker_name: name in the lake; that of `properties` by default, else the folder's.
        layout: layout of the tables by queue.
        as_found: take the files as they are, without the changes that the broker's load and start make.
        properties: the broker's broker.conf.
        settings: broker settings, which override those of `properties`.
        rules: version of the broker whose rules hold.
        spark: session; by default a small store is imported in this process, others as for `pullsim.open`.

    Raises:
        pullsim.Error: the store cannot be used, or the lake cannot take it; the lake is unchanged.

    >>> lake = pullsim.import_store("broker-a", "lake", properties="broker-a.conf")
    >>> lake.sql("SELECT brokerName, brokerRole FROM broker")
    brokerName  brokerRole
    broker-a    ASYNC_MASTER
    (1 row)
    """
    from pipeline.commands.new_run import now, run_id
    from pipeline.files.given_files import require_store
    from pipeline.files.object_store import is_s3, require_bucket
    from pipeline.importing import import_store as importing
    from pipeline.importing.small_store import import_small_store
    from pipeline.lake.lake import Lake as SparkLake
    from pipeline.terminal import progress_to_stderr
    from pullsim.session import session

    path = os.fspath(store)
    broker_settings = _given(settings, rules, properties).over()
    require_store(path)
    on_s3 = [one for one in (path, os.fspath(lake)) if is_s3(one)]
    for one in on_s3:
        require_bucket(one)
    name, asked = importing.broker_of(path, broker_name, broker_settings), None if layout == "auto" else layout
    run = partial(
        importing.import_store,
        store_path=path,
        broker=name,
        layout=asked,
        settings=broker_settings,
        as_found=as_found,
        run_id=run_id(),
        now=now,
        progress=progress_to_stderr,
    )
    with _job():
        done = None
        if spark is None:
            done = import_small_store(run, os.fspath(lake), path, broker=name, layout=asked, tell=lambda _: None)
        if done is None:
            done = run(SparkLake(session(s3=bool(on_s3)) if spark is None else spark, os.fspath(lake)))
    for note in done.notes:
        progress_to_stderr(f"note: {note}")
    return Lake(lake, spark=spark)


def _millis(time: int | dt.datetime | None) -> int | None:
    """Return the ms since 1970 of a time; None without a time."""
    from pipeline.settings.quantities import milliseconds

    if time is not None and not isinstance(time, int | dt.datetime):
        raise TypeError(f"expected a time as ms since 1970 or as a datetime, found {time!r}")
    return milliseconds(time) if isinstance(time, dt.datetime) else time


@contextmanager
def _job() -> Iterator[None]:
    """Run a block that writes to a lake; release the lake at its end, even if a notebook keeps the error's traceback.

    If a Python worker of Spark found unusable input, its error is raised instead of Spark's error about the worker.
    """
    from pyspark.errors import PythonException

    from pipeline.lake.lake_writer import releasing_lakes

    try:
        with releasing_lakes():
            yield
    except PythonException as error:
        if (text := quoted_error(str(error))) is None:
            raise
        raise UnusableInputError(text) from error


def _given(settings: Settings | None, rules: str | None, properties: Path | None = None) -> GivenSettings:
    """Return the settings in the form of a command line's; raise an error for a wrong one."""
    from pipeline.commands.given_settings import GivenSettings

    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (settings or {}).items()}
    given = GivenSettings(
        tuple(f"{name}={value}" for name, value in texts.items()), None if properties is None else os.fspath(properties), rules
    )
    given.check()
    return given
