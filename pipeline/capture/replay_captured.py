"""`pullsim replay` without a file: answer captured pulls from the store, and compare the answers with the broker's recorded answers.

Broker source (4.9.3): PullMessageProcessor, PullRequestHoldService.
Rule: the broker's checks come first (pull_checks); pulls that pass them are answered like other requests. The time of a held pull is the
time of its answer, because the broker processes a held pull again when it wakes it.
Surprise: an answer may have a message past its own maxOffset, if it was dispatched between the broker's reads of maxOffset and the entries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.capture.answer_bodies import with_body_sha256
from pipeline.capture.comparison import CapturedComparison, compare_captured
from pipeline.capture.pull_checks import checked
from pipeline.capture.recorded_minimum import with_recorded_minimum
from pipeline.files.output_file import OutputFile, output_file, write_lines
from pipeline.lake.lake import LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.answer_lines import response_json
from pipeline.replay.message_texts import with_messages
from pipeline.replay.replay import RequestProfile
from pipeline.replay.replay_job import answer
from pipeline.replay.replay_run import Replayed, ReplayOptions, ReplayRun, count_by_error, replayed
from pipeline.schema import capture_tables as ct
from pipeline.settings.settings import BrokerSettings
from udfs.pull.codes import ResponseCode

SOURCE = "pull_request"
SOURCES_MAX = 1000
# SQL: ms at which the broker processed a pull; a held pull is processed again when it wakes
PROCESSED_AT = "IF(held, coalesce(answerMicros, arrivalMicros), arrivalMicros) DIV 1000"
SEQUENCES = 1 << 53  # more than the sequence numbers of a source
_OF_REQUEST = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "filterType", "expression", "timestamp")


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
    pulls = captured_pulls(broker)
    with output_file(options.out) if options.out else nullcontext() as out:
        progress("answering")
        with answered_captured(broker, pulls, options=options, settings=settings) as answered:
            comparison = compare_captured(pulls, answered, at=options.at) if options.compare else None
            if out is not None:
                _to_file(broker, answered, options, out)
            else:
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
                run.write(answered, now)
            errors = count_by_error(answered)
    return replayed(run_id, errors, comparison, options)


def captured_pulls(broker: OpenedBroker) -> DataFrame:
    """The broker's rows of pull_request with `seq`, a number that orders them by file and by place in the file.

    Raises:
        LakeError: there are no rows, or rows of more than SOURCES_MAX files.
    """
    pulls = broker.table(ct.PULL_REQUEST)
    sources = [row["sourceDigest"] for row in pulls.select("sourceDigest").distinct().orderBy("sourceDigest").collect()]
    if not sources:
        others = broker.lake.table(ct.PULL_REQUEST).select("brokerName").distinct().orderBy("brokerName").collect()
        raise no_captured_pulls(broker, [row["brokerName"] for row in others])
    require_few_sources(broker, sources)
    return pulls_of(pulls, sources)


def no_captured_pulls(broker: OpenedBroker, others: Sequence[str]) -> LakeError:
    """The error about a broker without captured pulls; `others` are the brokers of the lake that have some."""
    found = f"captured pulls of {', '.join(map(repr, others))} only" if others else "none"
    return LakeError(
        f"{broker.lake.root}: expected captured pulls of broker {broker.name!r}, found {found}; "
        f"give --requests FILE, or capture some with `pullsim capture FILE.pcap --lake {broker.lake.root} --broker {broker.name}`"
    )


def require_few_sources(broker: OpenedBroker, sources: Sequence[str]) -> None:
    """Check the number of captured files that the pulls of a broker are from.

    Raises:
        LakeError: they are more than SOURCES_MAX.
    """
    if len(sources) > SOURCES_MAX:
        raise LakeError(f"{broker.lake.root}: expected captured pulls of at most {SOURCES_MAX} files, found {len(sources)}")


def pulls_of(pulls: DataFrame, sources: Sequence[str]) -> DataFrame:
    """The rows of pull_request from some files, with `seq` as in `captured_pulls`; `sources` are at most SOURCES_MAX digests."""
    ranks = pulls.sparkSession.createDataFrame(list(enumerate(sources)), "rank BIGINT, sourceDigest STRING")
    return pulls.join(F.broadcast(ranks), "sourceDigest").withColumn("seq", F.col("rank") * SEQUENCES + F.col("sequence"))


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
    requests = passed.select("seq", *_OF_REQUEST, F.lit(False).alias("registered"), "recordedMaxOffset", no_line)
    chosen = ReplayOptions(at=options.at, slave_lag=options.slave_lag)
    given = answer(broker, requests, options=chosen, settings=settings.pull_settings(), profile=RequestProfile()).persist()
    own = F.col("recordedMinOffset") if options.at != "snapshot" else F.lit(None).cast("BIGINT")
    given_then = with_recorded_minimum(
        with_body_sha256(broker, given).join(pulls.select("seq", own.alias("recordedMinOffset")), "seq"), settings.pull_settings()
    ).drop("recordedMinOffset")
    answered = _with_codes(joined, given_then).persist()
    try:
        yield answered
    finally:
        answered.unpersist()
        given.unpersist()
        checks.unpersist()


def _with_codes(pulls: DataFrame, given: DataFrame) -> DataFrame:
    # an answer has no status where the store throws or answers null
    code = F.coalesce("refusedCode", "code", F.when(F.col("error").isNull(), F.lit(int(ResponseCode.SYSTEM_ERROR))))
    of_pull = pulls.select(
        "seq",
        "requestId",
        *_OF_REQUEST,
        "refusedCode",
        "checkError",
        F.expr("IF(held, arrivalMicros DIV 1000, NULL)").alias("heldMillis"),
        F.when(F.col("held"), F.col("timestamp")).alias("wokenMillis"),
    )
    own = [name for name in given.columns if name not in of_pull.columns]
    joined = of_pull.join(given.select("seq", *own), "seq", "left").withColumn("error", F.coalesce("error", "checkError"))
    return joined.withColumn("code", code.cast("INT"))


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
    """The answer as JSON: the store's answer with `code` and `bodySha256`, or only these two where the store has no answer."""
    more = F.to_json(F.struct("code", "bodySha256"))
    of_store = response_json(messages=F.col("messages") if options.messages else None)
    both = F.concat(F.regexp_replace(of_store, r"\}$", ","), F.regexp_replace(more, r"^\{", ""))
    return F.when(F.col("error").isNotNull(), of_store).when(F.col("status").isNull(), more).otherwise(both)
