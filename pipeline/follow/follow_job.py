"""`pullsim import --follow`: imports the whole store once, then the messages that its running broker appends."""

from __future__ import annotations

import json

from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.files.store_files import StoreFiles
from pipeline.follow.follow_batches import FollowBatches, Followed
from pipeline.follow.follow_source import NAME, FollowedLog
from pipeline.importing.load_store import ENABLE_EXTENSION, with_extension
from pipeline.lake.lake import Lake, LakeError
from pipeline.lake.opened_broker import OpenedBroker
from pipeline.schema import tables as t
from pipeline.settings.settings import BrokerSettings
from pipeline.store.store_settings import store_settings
from pipeline.stream.stream_job import until_ended
from pipeline.stream.stream_run import SPARK

BYTES_MAX = 64 << 20


def follow(
    lake: Lake,
    batches: FollowBatches,
    checkpoint: str,
    settings: BrokerSettings,
    *,
    once: bool,
    trigger_seconds: float,
) -> Followed:
    """Add the messages that are appended to the commit log, until the run is stopped.

    Args:
        lake: the lake to write to.
        batches: adds each batch, and is stopped at the end.
        checkpoint: folder of the stream's checkpoint.
        settings: the broker's settings.
        once: end when the messages that are in the log now were added.
        trigger_seconds: seconds between two reads of the store.

    Raises:
        LakeError: the store cannot be followed.
        StoreError: the store cannot be used.
    """
    _require_followable(batches.store, settings)
    if not _has_store(lake, batches):
        batches.import_again(lake)
        lake = Lake(lake.spark, lake.root)
    query = _started(lake, batches, checkpoint, settings, once=once, trigger_seconds=trigger_seconds)
    until_ended(query, batches, lambda: None)
    return batches.done


def _has_store(lake: Lake, batches: FollowBatches) -> bool:
    """Whether the lake has this store in the state after start, so that only later messages are missing."""
    row = OpenedBroker(lake, batches.broker).row()
    return row is not None and row["store"] == batches.store.root and not row["asFound"]


def _require_followable(store: StoreFiles, settings: BrokerSettings) -> None:
    if with_extension(settings, store).value(ENABLE_EXTENSION):
        raise LakeError(f"{store.root}: expected a store without consume queue extension to follow, found one; import it without --follow")


def _started(
    lake: Lake, batches: FollowBatches, checkpoint: str, settings: BrokerSettings, *, once: bool, trigger_seconds: float
) -> StreamingQuery:
    broker = OpenedBroker(lake, batches.broker)
    row = broker.row()
    assert row is not None
    last = F.max(F.struct("physicOffset", "storeSize", "recordCrc32")).alias("last")
    mark = broker.table(t.COMMIT_LOG).agg(last).first()
    delays = store_settings(batches.store, settings).delays
    options = {
        "path": batches.store.root,
        "brokerName": batches.broker,
        "mappedFileSizeCommitLog": str(row["mappedFileSizeCommitLog"]),
        "startingOffset": str(row["maxPhyOffset"]),
        "minOffset": str(row["minPhyOffset"]),
        "mark": json.dumps(None if mark is None else mark["last"]),
        "maxBytesPerTrigger": str(BYTES_MAX),
        "delays": json.dumps(delays or ()),
        "multiDispatch": str(bool(settings.value("enableLmq") and settings.value("enableMultiDispatch"))).lower(),
    }
    lake.spark.dataSource.register(FollowedLog)
    records = lake.spark.readStream.format(NAME).options(**options).load()
    writer = records.writeStream.option("checkpointLocation", f"{checkpoint}/{SPARK}").foreachBatch(batches)
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{trigger_seconds} seconds")
    return timed.start()
