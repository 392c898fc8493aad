"""`pullsim stream`: pull requests that keep arriving -> answers in `pull_response`, each exactly once.

Rule: a batch is answered by the function that answers a file, and what it wrote is visible from its one row in lake_version on, which
names the batch. A batch that died before it is written again, one that died after it is known by it and left alone.
Surprise: Delta's txnAppId and txnVersion on each table would not do. They skip the append of a batch whose rows were undone because the
rest of it never came.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.lake.delta_sql import literal
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.schema import tables as t
from pipeline.stream.batch_work import BatchWork, StoppedError, Streamed
from pipeline.stream.batches import Batches, retry_on_conflict
from pipeline.stream.captured_batches import CapturedBatches, committed_runs
from pipeline.stream.holding import with_released
from pipeline.stream.report import StreamReport
from pipeline.stream.request_log import list_requests
from pipeline.stream.request_stream import NAME, RequestStream
from pipeline.stream.stream_run import REQUESTS, SPARK, StreamRun

_LOOK_SECONDS = 1


def run_stream(
    lake: Lake,
    run: StreamRun,
    checkpoint: str,
    batches: Batches | CapturedBatches,
    report: StreamReport,
    *,
    files_max: int,
    once: bool,
    trigger_seconds: float,
) -> Streamed:
    """Answer what is in the folder of requests, or was captured, and what comes until it is stopped.

    Args:
        lake: with the broker's tables.
        run: of the checkpoint.
        checkpoint: its folder.
        batches: what answers them, and is told to stop.
        report: what tells of them.
        files_max: of one batch of a folder.
        once: end when all that is there now is answered.
        trigger_seconds: between the starts of two batches, where there is anything for the second.

    Raises:
        LakeError: the store was imported as it was found, there is no folder of requests, or other runs keep writing to the lake.
        OutputError: the metrics cannot be put where they belong, at the start.
    """
    run.opened(lake).require_started()
    if isinstance(batches, CapturedBatches):
        requests = committed_runs(lake)
    else:
        requests = _requests(lake, run, checkpoint, files_max)
        if run.hold:
            requests = with_released(requests, run.opened(lake), batches.settings_of(None, ""))
    report.begin()
    lake.spark.streams.addListener(report.listener)
    try:
        query = _started(requests, run, checkpoint, batches, once=once, trigger_seconds=trigger_seconds)
        wait_for_end(query, batches, report)
    finally:
        lake.spark.streams.removeListener(report.listener)
    if batches.done.batches:
        now_at = Lake(lake.spark, lake.root)
        retry_on_conflict(now_at, run.run_id, [t.REPLAY_RUN], lambda: _finish(now_at, run, batches.now))
    return batches.done


def wait_for_end(query: StreamingQuery, batches: BatchWork, report: StreamReport) -> None:
    """Tell what a query does until it ends, or is asked to and is between two batches; what ended it otherwise is raised."""
    failed = True
    try:
        until_ended(query, batches, report.tell)
        failed = False
    finally:
        report.end(failed=failed)


def until_ended(query: StreamingQuery, batches: BatchWork, tell: Callable[[], None]) -> None:
    """Call `tell` again and again until a query ends, or is asked to and is between two batches; what ended it otherwise is raised."""
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            tell()
            if batches.stop.is_set() and not batches.working:
                query.stop()
    except StreamingQueryException as error:
        if not isinstance(batches.failed, StoppedError):
            raise batches.failed or error from None


def _requests(lake: Lake, run: StreamRun, checkpoint: str, files_max: int) -> DataFrame:
    try:
        list_requests(run.source)
    except OSError as error:
        raise LakeError(f"{run.source}: expected a folder of request files, found {error}") from error
    lake.spark.dataSource.register(RequestStream)
    options = {"folder": run.source, "log": f"{checkpoint}/{REQUESTS}", "maxFilesPerTrigger": str(files_max)}
    return lake.spark.readStream.format(NAME).options(**options).load()


def _started(
    requests: DataFrame, run: StreamRun, checkpoint: str, batches: Batches | CapturedBatches, *, once: bool, trigger_seconds: float
) -> StreamingQuery:
    writer = requests.writeStream.queryName(run.checkpoint).option("checkpointLocation", f"{checkpoint}/{SPARK}").foreachBatch(batches)
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{trigger_seconds} seconds")
    return timed.start()


def _finish(lake: Lake, run: StreamRun, now: Callable[[], dt.datetime]) -> None:
    """Say in replay_run when the run ended, the last time so far."""
    mine = F.col("runId") == run.run_id
    ended = lake.table(t.REPLAY_RUN).where(mine).withColumn("finishedAt", F.lit(now()))
    writer = LakeWriter(lake, run_id=run.run_id, what="stream", broker=run.broker)
    writer.replace_rows(t.REPLAY_RUN, ended.localCheckpoint(), f"runId = {literal(run.run_id)}")
    writer.commit(now())
