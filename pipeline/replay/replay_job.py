"""`pullsim replay`: answer the requests of a file, write the answers, and compare them with recorded ones.

The answers go to a file or to the table pull_response.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.files.output_file import OutputFile, output_file
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.replay.answered_requests import Comparison, write_and_compare
from pipeline.replay.driver_answers import answer_file_here
from pipeline.replay.held_pulls import TIMEOUT_NEEDED, Polling, lacks_timeout, may_wait, not_found, with_wakes, without_never_woken
from pipeline.replay.lmq import beyond_lmq_limit, has_lmq_limit
from pipeline.replay.message_texts import message_fragments
from pipeline.replay.replay import Finish, RequestProfile, replay
from pipeline.replay.replay_run import Replayed, ReplayOptions, ReplayRun, count_by_error, replayed
from pipeline.replay.response_files import DIGEST_CHARACTERS, ResponseFiles, no_errors
from pipeline.requests.request_file import RequestFile, scan_file
from pipeline.requests.request_lines import RequestError
from pipeline.requests.request_source import TIME_NEEDED, packed_requests, read_requests
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings, PullSettings
from pipeline.tasks.computed_once import computed_once, kept


def answer(
    broker: OpenedBroker,
    requests: DataFrame,
    *,
    options: ReplayOptions,
    settings: PullSettings,
    profile: RequestProfile,
    finish: Finish | None = None,
) -> DataFrame:
    """Answer the requests that the options choose; gives rows of ANSWER_SCHEMA, or with `finish`, rows of its schema.

    Requests that are not chosen still count as pulls for the limit on light message queues. `finish` cannot be combined with this limit.
    """
    null_answers = beyond_lmq_limit(broker, requests, settings)
    chosen = options.chosen(requests)
    answered = replay(
        broker,
        chosen,
        at=options.at,
        settings=settings,
        with_entries=options.messages,
        profile=profile.under(settings, options.filters),
        slave_lag=options.slave_lag_of(settings.broker_role),
        finish=finish,
    )
    return answered if null_answers is None else null_answers(answered)


def held_requests(
    broker: OpenedBroker, requests: DataFrame, *, options: ReplayOptions, settings: PullSettings, profile: RequestProfile
) -> DataFrame:
    """The requests that the broker would hold: they have the suspend bit, and find no message as of their time."""
    asking = requests.where(may_wait())
    first = answer(broker, asking, options=replace(options, messages=False), settings=settings, profile=profile)
    return asking.join(not_found(first).select("seq"), "seq")


def when_woken(broker: OpenedBroker, held: DataFrame, *, settings: BrokerSettings, profile: RequestProfile) -> DataFrame:
    """(seq, wokenMillis) for each held request: when the broker runs it again, or NEVER."""
    pull = settings.pull_settings()
    looks = profile.under(pull).into_messages
    runs = with_wakes(broker, held, settings=pull, polling=Polling.of(settings), into_messages=looks)
    return computed_once(runs.groupBy("seq").agg(F.min("wakes").alias("wokenMillis")))


def answer_woken(
    broker: OpenedBroker, requests: DataFrame, *, options: ReplayOptions, settings: PullSettings, profile: RequestProfile
) -> DataFrame:
    """Answer requests of which some were held; gives the rows of `answer` with heldMillis and wokenMillis.

    A held request has a wokenMillis, and is answered as of this time. The other requests have NULL in both columns.
    """
    at_wake = requests.withColumn("timestamp", F.coalesce("wokenMillis", "timestamp"))
    answers = answer(broker, at_wake, options=options, settings=settings, profile=profile)
    held_at = F.when(F.col("wokenMillis").isNotNull(), F.col("timestamp")).alias("heldMillis")
    return without_never_woken(answers.join(requests.select("seq", held_at, "wokenMillis"), "seq"))


def run_replay(
    broker: OpenedBroker,
    requests_path: str,
    *,
    options: ReplayOptions,
    settings_of: Callable[[RequestFile], BrokerSettings],
    run_id: str,
    now: Callable[[], dt.datetime],
    progress: Callable[[str], None],
) -> Replayed[Comparison]:
    """Answer the requests of a file.

    Args:
        broker: the broker whose store answers.
        requests_path: path of the request file.
        options: of the replay.
        settings_of: gives the broker's settings for a file, whose header may have a configuration.
        run_id: of this replay.
        now: gives the wall-clock time.
        progress: called with a text at each step.

    Raises:
        RequestError: a line is no request; nothing was written.
        OutputError: the file for the answers cannot be written.
        LakeError: the store was imported as found.
        SettingsError: a slave lag is given, and the broker is no slave.
    """
    started = now()
    progress(f"reading {requests_path}")
    file = scan_file(requests_path)
    if options.compare and file.is_parquet:
        raise RequestError(file.path, 1, "recorded answers in lines of JSON, for --compare", "a Parquet file")
    settings = settings_of(file)
    progress(settings.told_version)
    options.check_roles(settings.pull_settings().broker_role)
    with output_file(options.out) if options.out else nullcontext() as out:
        progress("answering")
        run = ReplayRun(
            broker=broker,
            run_id=run_id,
            source=file.path,
            source_digest=file.sha256,
            settings=settings,
            at=options.at,
            started=started,
            slave_lag=options.slave_lag,
        )
        answer_file = _answer_file if broker.lake.has_session else answer_file_here
        errors, comparison = answer_file(run, file, options=options, out=out, now=now)
    return replayed(run_id, errors, comparison, options)


def _answer_file(
    run: ReplayRun, file: RequestFile, *, options: ReplayOptions, out: OutputFile | None, now: Callable[[], dt.datetime]
) -> tuple[dict[str | None, int], Comparison | None]:
    """As `answer_file_here`, on Spark."""
    spark = run.broker.lake.spark
    requests = read_requests(spark, file, with_lines=False)
    packed = None
    if not (options.hold or options.slave_lag.millis):
        packed = partial(packed_requests, spark, file, needs_time=options.at == "request-time")
    profile = RequestProfile(into_messages=file.has_other_filters, far=file.has_large_max, about=file.lines, packed=packed)
    if profile.under(run.settings.pull_settings(), options.filters).packed is None:
        check_timestamps(requests, file, options)  # else the tasks that pack the requests check them
    if out is None and not options.compare:
        return _write_answers(run, requests, options=options, profile=profile, now=now), None
    return _compare_answers(run, file, requests, options=options, profile=profile, out=out, now=now)


def _write_answers(
    run: ReplayRun, requests: DataFrame, *, options: ReplayOptions, profile: RequestProfile, now: Callable[[], dt.datetime]
) -> dict[str | None, int]:
    """Write the answers to pull_response, if possible directly from the answering tasks; return the number of answers by error."""
    pull = run.settings.pull_settings()
    writer = run.writer()
    files_of = writer.file_writer(t.PULL_RESPONSE)
    if files_of is None or options.hold or has_lmq_limit(pull):
        return _append_answers(run, _answers(run, requests, options=options, profile=profile), now, writer)
    finish = ResponseFiles(broker=run.broker.name, run_id=run.run_id, source_digest=run.source_digest or "", writer=files_of)
    rows = answer(run.broker, requests, options=options, settings=pull, profile=profile, finish=finish)
    files = [row.asDict() for row in rows.collect()]
    writer.append_files(t.PULL_RESPONSE, files)
    run.commit(writer, now)
    if no_errors(files):
        return {None: sum(file["records"] for file in files)}
    return count_by_error(writer.written(t.PULL_RESPONSE).where(F.col("runId") == run.run_id))


def _append_answers(
    run: ReplayRun, answers: DataFrame, now: Callable[[], dt.datetime], writer: LakeWriter | None = None
) -> dict[str | None, int]:
    """Append answers of ANSWER_SCHEMA to pull_response; gives the number of answers by error."""
    request_id = F.concat_ws("-", F.lit((run.source_digest or "")[:DIGEST_CHARACTERS]), F.col("seq").cast("STRING"))
    written = run.write(response_rows(answers.withColumn("requestId", request_id)), now, writer)
    return count_by_error(written.where(F.col("runId") == run.run_id))


def _compare_answers(
    run: ReplayRun,
    file: RequestFile,
    requests: DataFrame,
    *,
    options: ReplayOptions,
    profile: RequestProfile,
    out: OutputFile | None,
    now: Callable[[], dt.datetime],
) -> tuple[dict[str | None, int], Comparison | None]:
    """Write the answers to a file or to pull_response, and compare them if `options.compare`.

    Returns:
        The number of answers by error, and the comparison or None.
    """
    answers = _answers(run, requests, options=options, profile=profile)
    uses = (2 if options.messages else 1) + (out is None)
    with kept(answers) if uses > 1 else nullcontext(answers) as answers:
        messages = message_fragments(run.broker, answers) if options.messages else None
        rules = run.settings.pull_settings().rules
        errors, comparison = write_and_compare(file, answers, messages, out, with_comparison=options.compare, rules=rules)
        if out is None:
            _append_answers(run, answers, now)
    return errors, comparison


def _answers(run: ReplayRun, requests: DataFrame, *, options: ReplayOptions, profile: RequestProfile) -> DataFrame:
    settings, pull = run.settings, run.settings.pull_settings()
    if not options.hold:
        return answer(run.broker, requests, options=options, settings=pull, profile=profile)
    held = held_requests(run.broker, requests, options=options, settings=pull, profile=profile)
    woken = when_woken(run.broker, held, settings=settings, profile=profile)
    return answer_woken(run.broker, requests.join(woken, "seq", "left"), options=options, settings=pull, profile=profile)


def check_timestamps(requests: DataFrame, file: RequestFile, options: ReplayOptions) -> None:
    """Check that each request has the times that the options need.

    Raises:
        RequestError: a request lacks a needed time; the error names the first one.
    """
    chosen = options.chosen(requests)
    needed = []
    if options.at == "request-time":
        needed.append((F.col("timestamp").isNull(), TIME_NEEDED))
    if options.hold:
        needed.append((lacks_timeout(), TIMEOUT_NEEDED))
    for is_missing, expected in needed:
        first = chosen.where(is_missing).select(F.min("seq")).first()
        if first is not None and first[0] is not None:
            raise RequestError(file.path, first[0], expected, "none")


def response_rows(answers: DataFrame) -> DataFrame:
    """Rows of pull_response without brokerName and runId, from answers with a `requestId`."""
    times = [F.lit(None).cast("BIGINT").alias(name) for name in ("heldMillis", "wokenMillis") if name not in answers.columns]
    return answers.drop("filterMessageCount").select("*", F.lit(None).cast("STRING").alias("bodySha256"), *times)
