"""`pullsim stream`: answer pull requests as they arrive, each exactly once, in the table `pull_response`.

Rule: a batch is answered by the same function as a file. Its writes become visible with its row in lake_version, which names the batch. A
batch that died before this row is written again. A batch that died after it is read again, and its requests without an answer are answered:
a file may have been written over before the restart.
Surprise: Delta's txnAppId and txnVersion on each table do not suffice. They would skip the append of a batch whose rows were undone because
the batch had died before its commit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.lake_writer import LakeWriter
from pipeline.lake.session import register_source
from pipeline.schema import tables as t
from pipeline.stream.batch_work import BatchWork, StoppedError, Streamed, old_objects_kept
from pipeline.stream.batches import Batches, retry_on_conflict
from pipeline.stream.captured_batches import CapturedBatches, committed_runs
from pipeline.stream.holding import with_released
from pipeline.stream.report import StreamReport
from pipeline.stream.request_log import list_requests
from pipeline.stream.request_stream import NAME, RequestStream
from pipeline.stream.stream_run import REQUESTS, SPARK, StreamRun, repeated_batch

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
    """Answer the requests in a folder, or the captured pulls, and then new ones until the stream is stopped.

    Args:
        lake: has the broker's tables.
        run: the run of the checkpoint.
        checkpoint: folder of the checkpoint.
        batches: answers the batches; its `stop` ends the stream.
        report: reports on the stream.
        files_max: most files of a batch, if the source is a folder.
        once: whether to end when all requests that exist now are answered.
        trigger_seconds: least time between the starts of two batches.

    Raises:
        LakeError: the store was imported as found, the folder of requests cannot be listed, or other runs keep writing to the lake.
        OutputError: the first metrics cannot be published.
    """
    run.opened(lake).require_started()
    if isinstance(batches, CapturedBatches):
        requests = committed_runs(lake)
    else:
        repeated = repeated_batch(checkpoint)
        answered = repeated[1] if repeated and batches.has_committed(lake, repeated[0]) else 0
        requests = _requests(lake, run, checkpoint, files_max, answered)
        if run.hold:
            requests = with_released(requests, run.opened(lake), batches.settings_of(None, ""))
    report.begin()
    lake.spark.streams.addListener(report.listener)
    try:
        with old_objects_kept():
            query = _started(requests, run, checkpoint, batches, once=once, trigger_seconds=trigger_seconds)
            wait_for_end(query, batches, report)
    finally:
        lake.spark.streams.removeListener(report.listener)
    if batches.done.batches:
        now_at = Lake(lake.spark, lake.root)
        retry_on_conflict(now_at, run.run_id, [t.REPLAY_RUN], lambda: _finish(now_at, run, batches.now))
    return batches.done


def wait_for_end(query: StreamingQuery, batches: BatchWork, report: StreamReport) -> None:
    """Wait until a query ends or, after `batches.stop` is set, is between two batches; report on it meanwhile.

    Raises:
        Exception: the error that ended the query.
    """
    failed = True
    try:
        until_ended(query, batches, report.report_events)
        failed = False
    finally:
        report.end(failed=failed)


def until_ended(query: StreamingQuery, batches: BatchWork, report_events: Callable[[], None]) -> None:
    """Call `report_events` each second until a query ends or, after `batches.stop` is set, is between two batches.

    Raises:
        Exception: the error that ended the query.
    """
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            report_events()
            if batches.stop.is_set() and not batches.working:
                query.stop()
    except StreamingQueryException as error:
        if not isinstance(batches.failed, StoppedError):
            raise batches.failed or error from None


def _requests(lake: Lake, run: StreamRun, checkpoint: str, files_max: int, answered: int) -> DataFrame:
    try:
        list_requests(run.source)
    except OSError as error:
        raise LakeError(f"{run.source}: expected a folder of request files, found {error}") from error
    register_source(lake.spark, RequestStream)
    options = {"folder": run.source, "log": f"{checkpoint}/{REQUESTS}", "maxFilesPerTrigger": str(files_max), "answered": str(answered)}
    return lake.spark.readStream.format(NAME).options(**options).load()


def _started(
    requests: DataFrame, run: StreamRun, checkpoint: str, batches: Batches | CapturedBatches, *, once: bool, trigger_seconds: float
) -> StreamingQuery:
    writer = requests.writeStream.queryName(run.checkpoint).option("checkpointLocation", f"{checkpoint}/{SPARK}").foreachBatch(batches)
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{trigger_seconds:.3f} seconds")
    return timed.start()


def _finish(lake: Lake, run: StreamRun, now: Callable[[], dt.datetime]) -> None:
    """Set finishedAt of the run in replay_run to now; a later end of the same run replaces it."""
    began = lake.rows(t.REPLAY_RUN).filter(pc.field("runId") == run.run_id)
    ended = pa.Table.from_pylist([row | {"finishedAt": now()} for row in began.to_pylist()], began.schema)
    writer = LakeWriter(lake, run_id=run.run_id, what="stream", broker=run.broker)
    writer.replace_rows(t.REPLAY_RUN, ended, {"runId": run.run_id})
    writer.commit(now())
