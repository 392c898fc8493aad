"""`pullsim import --follow`: imports the whole store once, then the messages that its running broker appends."""

from __future__ import annotations

import json

from pyspark.sql.streaming.query import StreamingQuery

from pipeline.follow.follow_batches import FollowBatches
from pipeline.follow.follow_metrics import Followed, FollowReport
from pipeline.follow.follow_source import NAME, FollowedLog
from pipeline.importing.load_store import ENABLE_EXTENSION, with_extension
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.last_row import last_row
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.lake.session import register_source
from pipeline.schema import tables as t
from pipeline.settings.settings import RULES_VERSION, BrokerSettings
from pipeline.store.store_settings import store_settings
from pipeline.stream.batch_work import old_objects_kept
from pipeline.stream.stream_job import until_ended
from pipeline.stream.stream_run import SPARK
from store_format.errors import without_credentials

BYTES_MAX = 64 << 20


def follow(
    lake: Lake,
    batches: FollowBatches,
    checkpoint: str,
    settings: BrokerSettings,
    report: FollowReport,
    *,
    once: bool,
    trigger_seconds: float,
) -> Followed:
    """Add the messages that are appended to the commit log, until the run is stopped.

    `batches` adds each batch. With `once`, the run ends when the messages that are in the log now are added.

    Raises:
        LakeError: the store cannot be followed.
        StoreError: the store cannot be used.
        OutputError: the first metrics cannot be published.
    """
    report.report(batches.done)
    failed = True
    try:
        imported = _imported(lake, batches, settings)
        with old_objects_kept():
            query = _started(imported, batches, checkpoint, settings, once=once, trigger_seconds=trigger_seconds)
            until_ended(query, batches, lambda: report.report(batches.done))
        failed = False
    finally:
        report.end(batches.done, failed=failed)
    return batches.done


def _imported(lake: Lake, batches: FollowBatches, settings: BrokerSettings) -> Lake:
    """Import the whole store unless the lake has it already; return the lake, from which the batches go on."""
    root = batches.store.root
    if with_extension(settings, batches.store).value(ENABLE_EXTENSION):
        raise LakeError(f"{root}: expected a store without consume queue extension to follow, found one; import it without --follow")
    row = OpenedBroker(lake, batches.broker).row()
    if row is None or row["store"] != without_credentials(root) or row["asFound"]:  # else only messages after the import are missing
        batches.import_again(lake)
        lake = Lake(lake.spark, lake.root)
    return lake


def _started(
    lake: Lake, batches: FollowBatches, checkpoint: str, settings: BrokerSettings, *, once: bool, trigger_seconds: float
) -> StreamingQuery:
    broker = OpenedBroker(lake, batches.broker)
    row = broker.row()
    assert row is not None
    batches.done = Followed(lake_version=lake.at.version, log_end=row["maxPhyOffset"])
    mark = last_row(broker, t.COMMIT_LOG, ("physicOffset", "storeSize", "recordCrc32"))
    delays = store_settings(batches.store, settings).delays
    options = {
        "path": batches.store.root,
        "brokerName": batches.broker,
        "mappedFileSizeCommitLog": str(row["mappedFileSizeCommitLog"]),
        "startingOffset": str(row["maxPhyOffset"]),
        "minOffset": str(row["minPhyOffset"]),
        "mark": json.dumps(mark),
        "maxBytesPerTrigger": str(BYTES_MAX),
        "delays": json.dumps(delays or ()),
        RULES_VERSION: settings.version.value,
        "multiDispatch": str(bool(settings.value("enableLmq") and settings.value("enableMultiDispatch"))).lower(),
    }
    register_source(lake.spark, FollowedLog)
    records = lake.spark.readStream.format(NAME).options(**options).load()
    writer = records.writeStream.option("checkpointLocation", f"{checkpoint}/{SPARK}").foreachBatch(batches)
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{trigger_seconds:.3f} seconds")
    return timed.start()
