"""`pullsim replay` without a file: answer captured pulls from the store, and compare the answers with the broker's recorded answers.

Broker source (4.9.3): PullMessageProcessor, PullRequestHoldService.
Rule: the broker's checks come first (pull_checks); pulls that pass them are answered like other requests. The time of a held pull is the
time of its answer, because the broker processes a held pull again when it wakes it.
Surprise: an answer may have a message past its own maxOffset, if it was dispatched between the broker's reads of maxOffset and the entries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.capture.answer_bodies import with_body_sha256
from pipeline.capture.captured_answers import answer_captured_here
from pipeline.capture.captured_pulls import OF_REQUEST, PROCESSED_AT, answered_query, captured_pulls
from pipeline.capture.comparison import CapturedComparison, compare_captured, judged_query
from pipeline.capture.pull_checks import checked
from pipeline.capture.recorded_minimum import with_recorded_minimum
from pipeline.embedded.relations import SparkRelations
from pipeline.files.output_file import OutputFile, output_file, write_lines
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.answer_lines import response_json
from pipeline.replay.message_texts import with_messages
from pipeline.replay.replay import RequestProfile
from pipeline.replay.replay_job import answer
from pipeline.replay.replay_run import Replayed, ReplayOptions, ReplayRun, count_by_error, replayed
from pipeline.settings.settings import BrokerSettings
from pipeline.tasks.computed_once import kept

SOURCE = "pull_request"


def run_captured_replay(
    broker: OpenedBroker,
    *,
    options: ReplayOptions,
    settings: BrokerSettings,
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
) -> Replayed[CapturedComparison]:
    """Answer the captured pulls of a broker.

    Raises:
        LakeError: no traffic of the broker was captured, or its store was imported as found.
        OutputError: the file for the answers cannot be written.
        SettingsError: a slave lag is given, and the broker is no slave.
    """
    started = now()
    progress(settings.told_version)
    options.check_roles(settings.pull_settings().broker_role)
    run = ReplayRun(
        broker=broker,
        run_id=run_id,
        source=SOURCE,
        source_digest=None,
        settings=settings,
        at=options.at,
        started=started,
        slave_lag=options.slave_lag,
    )
    with output_file(options.out) if options.out else nullcontext() as out:
        progress("answering")
        answer_all = _answer_captured if broker.lake.has_session else answer_captured_here
        errors, comparison = answer_all(run, options=options, out=out, now=now)
    return replayed(run_id, errors, comparison, options)


def _answer_captured(
    run: ReplayRun, *, options: ReplayOptions, out: OutputFile | None, now: Callable[[], dt.datetime]
) -> tuple[dict[str | None, int], CapturedComparison | None]:
    """As `answer_captured_here`, on Spark."""
    pulls, spark = captured_pulls(run.broker), run.broker.lake.spark
    with (
        answered_captured(run.broker, pulls, options=options, settings=run.settings) as answered,
        SparkRelations(spark, answered=answered, pulls=pulls) as relations,
    ):
        comparison = None
        if options.compare:
            with kept(relations.frame(judged_query(options.at))) as judged, SparkRelations(spark, judged=judged) as of_judged:
                comparison = compare_captured(of_judged)
        if out is not None:
            _to_file(run.broker, answered, options, out)
        else:
            run.write(answered, now)
        return count_by_error(answered), comparison


@contextmanager
def answered_captured(broker: OpenedBroker, pulls: DataFrame, *, options: ReplayOptions, settings: BrokerSettings) -> Iterator[DataFrame]:
    """Answer captured pulls; yields the answers, which are cached for the block.

    An answer has `seq`, `code`, `bodySha256`, `heldMillis`, `wokenMillis`, and the columns of the store's answer.

    Of `options`, only `at`, `filters`, `messages` and `slave_lag` are used.
    """
    checks = checked(broker, pulls, settings).persist()
    joined = pulls.withColumn("timestamp", F.expr(PROCESSED_AT)).join(options.chosen(checks), "seq")
    passed = joined.where("refusedCode IS NULL AND checkError IS NULL")
    no_line = F.lit(None).cast("STRING").alias("line")
    requests = passed.select("seq", *OF_REQUEST, F.lit(False).alias("registered"), "recordedMaxOffset", no_line)
    chosen = ReplayOptions(at=options.at, slave_lag=options.slave_lag)
    given = answer(broker, requests, options=chosen, settings=settings.pull_settings(), profile=RequestProfile()).persist()
    own = F.col("recordedMinOffset") if options.at != "snapshot" else F.lit(None).cast("BIGINT")
    given_then = with_recorded_minimum(
        with_body_sha256(broker, given).join(pulls.select("seq", own.alias("recordedMinOffset")), "seq"), settings.pull_settings()
    ).drop("recordedMinOffset")
    query = answered_query(given_then.columns)
    try:
        with SparkRelations(pulls.sparkSession, asked=joined, given=given_then) as relations, kept(relations.frame(query)) as answered:
            yield answered
    finally:
        given.unpersist()
        checks.unpersist()


def request_json() -> Column:
    """Return the JSON of a pull's fields as a request file has them, from the columns of a request."""
    request = F.struct(
        F.col("consumerGroup").alias("group"),
        "topic",
        "queueId",
        F.col("queueOffset").alias("offset"),
        "maxMsgNums",
        F.when(F.col("filterType").isNotNull(), F.struct(F.col("filterType").alias("type"), "expression")).alias("filter"),
        "timestamp",
    )
    return F.to_json(request, {"ignoreNullFields": "false"})


def _to_file(broker: OpenedBroker, answered: DataFrame, options: ReplayOptions, out: OutputFile) -> None:
    full = with_messages(broker, answered) if options.messages else answered
    rows = full.select("seq", "requestId", request_json().alias("request"), _response(options).alias("response"))
    line = F.concat(
        F.lit('{"requestId":'), _json("requestId"), F.lit(',"request":'), "request", F.lit(',"response":'), "response", F.lit("}")
    )
    write_lines(rows.orderBy("seq").select(line.alias("value")), out)


def _json(name: str) -> Column:
    return F.regexp_extract(F.to_json(F.struct(F.col(name).alias("x"))), r'^\{"x":(.*)\}$', 1)


def _response(options: ReplayOptions) -> Column:
    """The answer as JSON: the store's answer with `code` and `bodySha256`, or only these two if the store has no answer."""
    more = F.to_json(F.struct("code", "bodySha256"))
    of_store = response_json(messages=F.col("messages") if options.messages else None)
    both = F.concat(F.regexp_replace(of_store, r"\}$", ","), F.regexp_replace(more, r"^\{", ""))
    return F.when(F.col("error").isNotNull(), of_store).when(F.col("status").isNull(), more).otherwise(both)
